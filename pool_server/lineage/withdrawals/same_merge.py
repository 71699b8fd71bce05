"""Whether one merge is another, made again without what was withdrawn.

A recipe says itself that it is: ``successor_of`` names the file that it replaces and what was left
out. Two things can be told from the recipes of both.

* Whether the claim can be true (`is_same_merge`): the method, its options, and every input that
  holds nothing of what was left out, with its weight, are the same; each other input is gone, or
  something else stands there.
* Whether nothing needs to be believed (`is_proven`): what was left out was withdrawn, and what
  stands in the place of another input is known to replace that. Of a file that the pool itself
  has made by such a recipe nobody has to vouch for anything.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from pool_server.database.records import ModelVersionRecord
from pool_server.errors import RecipeRefusedError
from pool_server.lineage.withdrawals import repository

if TYPE_CHECKING:
    from aggregators.methods import Recipe, RecipeInput, Succession


def is_same_merge(session: Session, old: Recipe, new: Recipe, claim: Succession) -> bool:
    """Tell whether `new` can be `old` without what its claim says was left out.

    Returns
    -------
    bool
        False where that cannot be told: an input has changed whose own recipe is not in the pool.

    Raises
    ------
    RecipeRefusedError
        It is not; names the first difference.
    """
    holders = _holders(session, claim)
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


def is_proven(
    session: Session, old: Recipe, new: Recipe, claim: Succession, replaced: ModelVersionRecord
) -> bool:
    """Tell whether `new`, of which `is_same_merge` holds, is what `old` is without the withdrawn.

    What was left out was withdrawn; every other input stands where it stood, or in its place what
    replaces it in the eyes of those whose file it is, or of the site of `replaced`.
    """
    left_out = {each.digest for each in claim.without}
    if repository.withdrawn_among(session, left_out) != left_out:
        return False
    holders = _holders(session, claim)
    held = {each.digest for each in old.inputs} & holders
    rebuilt = repository.vouched_successors(session, held, replaced.model.site_id)
    position = 0
    for each in old.inputs:
        found = new.inputs[position] if position < len(new.inputs) else None
        if each.digest not in holders:
            if found is None or (found.digest, found.weight) != (each.digest, each.weight):
                return False
            position += 1
        elif (
            found is not None
            and found.weight == each.weight
            and (each.digest, found.digest) in rebuilt
        ):
            position += 1
    return position == len(new.inputs)


def _holders(session: Session, claim: Succession) -> set[str]:
    return repository.holders_of(session, {each.digest for each in claim.without})


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
