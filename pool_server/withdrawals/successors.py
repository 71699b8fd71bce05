"""What replaces a version: the same merge, made again without what was withdrawn.

A recipe says itself that it is such a merge: ``successor_of`` names the file that it replaces
and what was left out. Whether it is, can be seen from the two recipes: the method, its options,
and every input that holds nothing of what was left out, with its weight, are the same; each
other input is gone, or stands there rebuilt.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from pool_server.errors import RecipeRefusedError
from pool_server.events.service import News, tell_all
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.records import ModelVersionRecord, SuccessorRecord
from pool_server.registry.standing import address_of
from pool_server.withdrawals import repository
from pool_server.withdrawals.flagging import subject_of

if TYPE_CHECKING:
    from aggregators.methods import Recipe, RecipeInput, Succession

REPLACED_EVENT = "version.replaced"


def link_published(
    session: Session, caller: Caller, version: ModelVersionRecord, recipe: Recipe
) -> None:
    """Link a version that is being published with those that its recipe says it replaces.

    Called with the version, its recipe and its parents written. Nothing is linked when the pool
    has neither the replaced file nor its recipe.

    Raises
    ------
    RecipeRefusedError
        The recipe is not that of the replaced file without what was left out.
    """
    if recipe.successor_of is None or recipe.successor_of.digest == version.digest:
        return
    for each in find_replaced(session, recipe):
        link_successor(session, caller, each, version)


def find_replaced(session: Session, recipe: Recipe) -> Sequence[ModelVersionRecord]:
    """Return the versions that a recipe says it replaces, as far as the pool can tell it does.

    None when the pool has neither the replaced file nor its recipe.

    Raises
    ------
    RecipeRefusedError
        The recipe is not that of the replaced file without what was left out.
    """
    from aggregators.methods import parse_recipe

    claim = recipe.successor_of
    if claim is None:
        return []
    replaced = repository.versions_of(session, claim.digest)
    document = repository.recipe_of(session, claim.digest)
    if not replaced or document is None:
        return []
    old = parse_recipe(json.dumps(document))
    return replaced if is_same_merge(session, old, recipe, claim) else []


def is_same_merge(session: Session, old: Recipe, new: Recipe, claim: Succession) -> bool:
    """Tell whether `new` is `old` without what its claim says was left out.

    Returns
    -------
    bool
        False where that cannot be told: an input has changed whose own recipe is not in the pool.

    Raises
    ------
    RecipeRefusedError
        It is not; names the first difference.
    """
    holders = repository.holders_of(session, {each.digest for each in claim.without})
    if (old.method, old.options) != (new.method, new.options):
        raise _no_successor(f"its method or options are not those of {claim.digest}")
    for each in new.inputs:
        if each.digest in holders:
            raise _no_successor(f"its input {each.digest} still holds what was left out")
    kept = [each for each in old.inputs if each.digest not in holders]
    missing = _not_in_order(kept, new.inputs)
    known = repository.merged_among(session, {each.digest for each in missing})
    if any(each.digest not in known for each in missing):
        return False
    if missing:
        raise _no_successor(
            f"the input {missing[0].digest} (weight {missing[0].weight:g}) holds nothing that was "
            "left out and yet is missing, or has another weight"
        )
    if len(new.inputs) > len(old.inputs):
        raise _no_successor("it has more inputs than what it replaces")
    return len(kept) < len(old.inputs)


def link_successor(
    session: Session, caller: Caller, version: ModelVersionRecord, successor: ModelVersionRecord
) -> None:
    """Write that a version replaces another, and whatever that one replaced; again is no error."""
    replaced = {version.id} | repository.replaced_through(session, [version.id])
    known = repository.successor_pairs(session, successor.id)
    actor = f"{caller.site}/{caller.token_name}"
    session.add_all(
        SuccessorRecord(version_id=each, successor_id=successor.id, created_by=actor)
        for each in sorted(replaced - known - {successor.id})
    )
    session.flush()
    if version.id in known:
        return
    record_act(
        session,
        caller,
        "version.replace",
        subject_of(version),
        successor=subject_of(successor),
        successor_digest=successor.digest,
    )
    site_ids = {version.model.site_id} | repository.downloaders_of(session, version.id)
    details = {"successor": address_of(successor), "digest": successor.digest}
    tell_all(
        session,
        [News(each, REPLACED_EVENT, address_of(version), details) for each in sorted(site_ids)],
    )


def _not_in_order(wanted: Sequence[RecipeInput], found: Sequence[RecipeInput]) -> list[RecipeInput]:
    """Return those of `wanted` that `found` does not have in the same order and weight."""
    # Recipes may have thousands of inputs, and strangers write them: none is gone through again.
    places: dict[tuple[str, float], list[int]] = defaultdict(list)
    for place, each in enumerate(found):
        places[each.digest, each.weight].append(place)
    missing, position = [], 0
    for each in wanted:
        at = places[each.digest, each.weight]
        following = bisect_left(at, position)
        if following == len(at):
            missing.append(each)
        else:
            position = at[following] + 1
    return missing


def _no_successor(why: str) -> RecipeRefusedError:
    return RecipeRefusedError(
        f"the recipe says that it replaces another, but {why}",
        hint="Send the recipe that `poolctl merge --replay OLD --without ...` wrote, as it is.",
    )
