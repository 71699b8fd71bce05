"""Conditions for a file to become a version: its description, and the rights of other sites.

Knowing a digest proves nothing: it may come from a family tree or a recipe. A site that may not
download a file of the pool must send it, and learns nothing about it: the announcement is
answered as if the file were new.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy.orm import Session

from aggregators.errors import RecipeError
from aggregators.methods import Recipe, parse_recipe
from pool_server.database.records import ModelRecord, SiteRecord, UploadRecord
from pool_server.errors import NotAllowedError, RecipeRefusedError, RefusedError
from pool_server.http.identity import Caller
from pool_server.models.descriptions import require_labels
from pool_server.registry import access
from pool_server.registry.repository import find_original
from pool_server.registry.terms import require_terms
from pool_server.settings import PoolSettings
from pool_server.wire.cards import read_card
from pool_server.wire.models import Visibility
from pool_server.wire.uploads import UploadRequest, VersionDescription


def require_description(session: Session, site: SiteRecord, request: UploadRequest) -> None:
    """Raise unless the pool accepts the labels, card and terms."""
    require_wording(request)
    require_terms(
        session,
        request.terms,
        {} if request.recipe is None else name_parents(request.recipe, request.digest),
        site=site,
        use=request.intended_use,
    )


def require_wording(request: VersionDescription) -> None:
    """Raise unless labels and card can be read and are allowed."""
    require_labels(request.labels)
    try:
        read_card(request.card)
    except ValueError as error:
        raise RefusedError(str(error), code="card_refused") from error


def name_parents(recipe: dict[str, Any], digest: str) -> dict[str, str]:
    """Return the recipe's name for each input, by digest."""
    return {
        input_["digest"]: input_.get("address") or input_.get("file_name") or input_["digest"][:12]
        for input_ in recipe["inputs"]
        if input_["digest"] != digest
    }


def take_description(upload: UploadRecord, request: UploadRequest) -> None:
    """Store the uploader's present description with an upload."""
    upload.file_name = request.file_name
    upload.description = request.description
    upload.labels = dict(request.labels)
    upload.metrics = dict(request.metrics)
    upload.card = request.card
    upload.terms = [term.model_dump() for term in request.terms]
    upload.recipe = request.recipe
    signed = request.statement
    upload.statement = None if signed is None else signed.model_dump(mode="json")


def arrives_as_draft(settings: PoolSettings, caller: Caller, *, on_request: bool = False) -> bool:
    """Return whether a version becomes a draft: on request, and in a curated pool.

    There only the curators of the pool publish at once.
    """
    return on_request or (settings.curated and not caller.has_role("curator"))


def read_recipe(document: dict[str, object], digest: str) -> Recipe:
    """Read a recipe and make sure that it makes the file of that digest."""

    try:
        recipe = parse_recipe(json.dumps(document))
    except RecipeError as error:
        raise RecipeRefusedError(
            str(error), hint="Send the recipe that `poolctl merge` wrote, as it is."
        ) from error
    promised = recipe.output.digest if recipe.output is not None else None
    if promised != digest:
        raise RecipeRefusedError(
            f"the recipe makes a file with SHA-256 {promised or '(left open)'}, expected {digest}",
            hint="Send the recipe that was written with this very file, or none.",
            details={"found": promised, "expected": digest},
        )
    return recipe


_WIDTH = (access.PRIVATE, access.SITES, access.CONSORTIUM)


def require_merge_rights(caller: Caller, parents: Iterable[Sequence[ModelRecord]]) -> None:
    """Raise unless the caller may merge every parent that it may see in the pool.

    Parents that it may not see count as unknown. If several models have a parent, the right to
    merge one of them is enough.
    """
    for homes in parents:
        if not any(access.may(caller, model, "merge") for model in homes):
            access.require_right(caller, homes[0], "merge")


def require_copy_right(
    session: Session, caller: Caller, site_id: int, digest: str, version_id: int | None = None
) -> None:
    """Raise unless a file may become a model of a site, as far as the site knows its owner.

    The site that published it first says so, also of copies. `version_id` is the new version.
    """
    keeper = find_keeper(session, caller, site_id, digest, version_id)
    if keeper is None:
        return
    if "see" in access.rights_of_site(caller.site_id, keeper):
        access.require_right(caller, keeper, "redistribute")
    raise NotAllowedError(
        f"site {caller.site!r} fetched this file from another site, which does not let it be "
        "handed on",
        code="right_missing",
        hint="Ask the site that you have it from for the right `redistribute`.",
        details={"right": "redistribute"},
    )


def find_keeper(
    session: Session, caller: Caller, site_id: int, digest: str, version_id: int | None = None
) -> ModelRecord | None:
    """Return the model of a file that its owner does not let others hand on; None if they may."""
    original = find_original(session, site_id, digest, other_than=version_id)
    if original is None or original.model.site_id == site_id:
        return None
    return None if access.may(caller, original.model, "redistribute") else original.model


def initial_visibility(
    default: Visibility, site_id: int, sources: Iterable[Sequence[ModelRecord]]
) -> Visibility:
    """Return the default visibility of a new model.

    A model made from models that other sites do not share with all is not shown to all by
    default. `sources` are, for each file that it was made from, the models that have it.
    """
    for homes in sources:
        if not any(m.site_id == site_id or m.visibility == access.CONSORTIUM for m in homes):
            return access.PRIVATE
    return default


def require_visibility(model: ModelRecord | None, visibility: Visibility | None) -> None:
    """Raise if a version is announced for more, or fewer, than its model is shared with."""
    if model is not None and visibility not in {None, model.visibility}:
        address = f"{model.site.name}/{model.name}"
        raise RefusedError(
            f"{address} is there already, with visibility {model.visibility!r}, not {visibility!r}",
            code="sharing_refused",
            hint=f"Visibility is of the whole model: change it with `poolctl models share "
            f"{address}`.",
            details={"found": visibility, "expected": model.visibility},
        )


def require_not_wider(model: ModelRecord, upload: UploadRecord) -> None:
    """Raise if a model was made since an upload was announced, and more see it than that said.

    The upload was meant as its first version, and would have set its visibility.
    """
    if upload.visibility is None or model.created_at <= upload.created_at:
        return
    if _WIDTH.index(model.visibility) > _WIDTH.index(upload.visibility):
        address = f"{model.site.name}/{model.name}"
        raise RefusedError(
            f"{address} was made meanwhile, with visibility {model.visibility!r}; the file was "
            f"announced for {upload.visibility!r}",
            code="sharing_refused",
            hint="Upload it under another name, or announce it again for this model.",
            details={"found": upload.visibility, "expected": model.visibility},
        )
