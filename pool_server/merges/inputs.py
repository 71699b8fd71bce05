"""The models that a merge takes: in the pool, whole, and for the caller to merge."""

from __future__ import annotations

from sqlalchemy.orm import Session

from aggregators.methods import Recipe
from pool_server.database.records import ModelVersionRecord
from pool_server.errors import MergeRefusedError
from pool_server.http.identity import Caller
from pool_server.lineage.family.repository import round_files_among
from pool_server.lineage.withdrawals.repository import find_refusal
from pool_server.merges import repository
from pool_server.models.access import may, readable_by
from pool_server.models.states import AVAILABLE, DRAFT
from pool_server.wire.models.models import ROUND_FILES


def require_mergeable_inputs(session: Session, caller: Caller, recipe: Recipe) -> int:
    """Return the bytes of all distinct inputs together.

    The same file may stand in the pool under several names; one that the caller may merge is
    enough.

    Raises
    ------
    MergeRefusedError
        Names the first input that is not there, or not for the caller to merge.
    """
    return sum(version.size_bytes for version in find_inputs(session, caller, recipe).values())


def find_inputs(session: Session, caller: Caller, recipe: Recipe) -> dict[str, ModelVersionRecord]:
    """Return a version for each distinct input of a recipe, by digest."""
    refusal = find_refusal(session, recipe.input_digests)
    if refusal is not None:
        raise MergeRefusedError(
            f"input {refusal.digest} was withdrawn ({refusal.reason}) and cannot be merged any "
            "more, under no name",
            hint="Make the recipe without it: `poolctl merge --replay RECIPE --without DIGEST`.",
        )
    seen = repository.versions_of_digests(session, recipe.input_digests, readable_by(caller))
    inputs: dict[str, ModelVersionRecord] = {}
    for entry in recipe.inputs:
        versions = seen.get(entry.digest, [])
        known_as = f"{entry.digest}" + (f" ({entry.address})" if entry.address else "")
        if not versions and (found := round_files_among(session, [entry.digest])):
            what = ROUND_FILES[found[entry.digest]]
            raise MergeRefusedError(
                f"input {known_as} is {what}, which only rounds combine",
                hint="Download the result of the round instead.",
            )
        if not versions:
            raise MergeRefusedError(
                f"input {known_as} is not in the pool",
                hint="Upload it first, or merge at home with `poolctl merge`.",
            )
        whole = [version for version in versions if _is_whole(caller, version)]
        if not whole:
            raise MergeRefusedError(
                f"input {known_as} is {versions[0].state} and cannot be merged",
                hint=f"`poolctl models info {versions[0].model.site.name}/"
                f"{versions[0].model.name}@{versions[0].number}` tells why.",
            )
        allowed = [version for version in whole if may(caller, version.model, "merge")]
        if not allowed:
            raise MergeRefusedError(
                f"{versions[0].model.site.name} does not let your site merge {known_as}",
                hint=f"Ask {versions[0].model.site.name} for the right to merge it.",
            )
        inputs[entry.digest] = allowed[0]
    return inputs


def _is_whole(caller: Caller, version: ModelVersionRecord) -> bool:
    """Tell whether a version's state lets it be merged; drafts are for their own site to use."""
    own_draft = version.state == DRAFT and version.model.site_id == caller.site_id
    return own_draft or version.state == AVAILABLE
