"""What replaces a version, and who has to say so.

Everybody who asks for a version that was withdrawn, or holds what was, is sent to its successors.
That a recipe fits proves nothing of the file that comes with it. So a version becomes the
successor of another only in one of these ways:

=====================================  =========================================================
who vouches for it                     when
=====================================  =========================================================
the site of the replaced version       it uploads a file whose recipe says so, and can be right
                                       (`link_published`); or it names any version
                                       (`service.name_successor`), as do curators of the pool
the pool                               it made the file itself, and the recipe leaves nothing to
                                       be believed (`link_made`)
=====================================  =========================================================

An upload of another site that says so is only told to the site of the replaced version.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from pool_server.activity.events.service import News, tell_all
from pool_server.database.records import ModelVersionRecord, SuccessorRecord
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.lineage.withdrawals import repository
from pool_server.lineage.withdrawals.flagging import subject_of
from pool_server.lineage.withdrawals.same_merge import is_proven, is_same_merge
from pool_server.models.access import rights_of_site
from pool_server.models.registry.repository import hold_families
from pool_server.models.registry.standing import address_of, name_for_site
from pool_server.models.states import AVAILABLE

if TYPE_CHECKING:
    from aggregators.methods import Recipe

REPLACED_EVENT = "version.replaced"
OFFERED_EVENT = "version.successor-offered"


def link_published(
    session: Session, caller: Caller, version: ModelVersionRecord, recipe: Recipe
) -> None:
    """Link a version that is being published with those that its recipe says it replaces.

    Those of its own site, that is; other sites are told that there is something to look at.
    Called with the version, its recipe and its parents written. Nothing is linked when the caller
    cannot see the replaced file and its recipe.

    Raises
    ------
    RecipeRefusedError
        The recipe is not that of the replaced file without what was left out.
    """
    if recipe.successor_of is None or recipe.successor_of.digest == version.digest:
        return
    site_id = version.model.site_id
    replaced = find_replaced(session, caller, recipe)
    for each in replaced:
        if each.model.site_id == site_id:
            link_successor(session, caller, each, version, of_sites={site_id})
    _offer(session, version, [each for each in replaced if each.model.site_id != site_id])


def link_made(
    session: Session, caller: Caller, version: ModelVersionRecord, recipe: Recipe
) -> None:
    """Link a version whose very bytes the pool has made by a recipe with what that replaces.

    Raises
    ------
    RecipeRefusedError
        The recipe is not that of the replaced file without what was left out.
    """
    claim = recipe.successor_of
    if claim is None or claim.digest == version.digest:
        return
    hold_families(session)
    replaced = find_replaced(session, caller, recipe)
    old = _recipe_of(session, replaced)
    if old is None:
        return
    for each in replaced:
        if is_proven(session, old, recipe, claim, each):
            link_successor(session, caller, each, version)


def find_replaced(session: Session, caller: Caller, recipe: Recipe) -> Sequence[ModelVersionRecord]:
    """Return the versions that a recipe says it replaces, as far as it can be told that it does.

    None when the caller may see neither the replaced file nor its recipe: to others nothing is
    said of that, either.

    Raises
    ------
    RecipeRefusedError
        The recipe is not that of the replaced file without what was left out.
    """
    claim = recipe.successor_of
    if claim is None:
        return []
    replaced = repository.visible_versions_of(session, caller, claim.digest)
    old = _recipe_of(session, replaced)
    if old is None:
        return []
    return replaced if is_same_merge(session, old, recipe, claim) else []


def link_successor(
    session: Session,
    caller: Caller,
    version: ModelVersionRecord,
    successor: ModelVersionRecord,
    *,
    of_sites: Collection[int] | None = None,
) -> None:
    """Write that a version replaces another, and whatever that one replaced; again is no error.

    Parameters
    ----------
    of_sites : collection of int, optional
        Whose versions are concerned, among those that `version` replaced; None: everybody's.
    """
    replaced = {version.id} | repository.replaced_through(session, [version.id], of_sites)
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
        successor=name_for_site(version.model.site_id, successor).removeprefix("pool://"),
        successor_digest=successor.digest,
    )
    site_ids = {version.model.site_id} | repository.downloaders_of(session, version.id)
    tell_all(
        session,
        [
            News(
                site_id,
                REPLACED_EVENT,
                name_for_site(site_id, version),
                {"successor": name_for_site(site_id, successor), "digest": successor.digest},
            )
            for site_id in sorted(site_ids)
        ],
    )


def _recipe_of(session: Session, versions: Sequence[ModelVersionRecord]) -> Recipe | None:
    """Return the oldest recipe that one of these versions, all of one file, came with."""
    from aggregators.methods import parse_recipe

    document = repository.recipe_of(session, [version.id for version in versions])
    return None if document is None else parse_recipe(json.dumps(document))


def _offer(
    session: Session, successor: ModelVersionRecord, replaced: Sequence[ModelVersionRecord]
) -> None:
    """Tell other sites of what says that it replaces theirs, where they need and may see that."""
    if successor.state != AVAILABLE or successor.flags:
        return
    details = {
        "successor": address_of(successor),
        "digest": successor.digest,
        "by": successor.created_by,
    }
    # One event for each site, however many copies of the file it has.
    needing = {
        each.model.site_id: each
        for each in reversed(replaced)
        if (each.withdrawal is not None or each.flags)
        and "see" in rights_of_site(each.model.site_id, successor.model)
    }
    tell_all(
        session,
        [
            News(site_id, OFFERED_EVENT, address_of(each), details)
            for site_id, each in sorted(needing.items())
        ],
    )
