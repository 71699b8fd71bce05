"""Successors of versions, and who may name them.

The pool names the successors of a version that was withdrawn or flagged to everybody who asks for
it. A recipe may say that its result replaces another file. Only the site of the replaced version is
believed: what it publishes with such a recipe is linked (`link_published`), and it, or a curator
of the pool, may name any version (`service.name_successor`). When another site publishes such a
recipe, the site of the replaced version is notified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from pool_server.activity.events import NewEvent, write_events
from pool_server.database.records import ModelVersionRecord, SuccessorRecord
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.lineage import repository
from pool_server.registry.access import AVAILABLE, rights_of_site
from pool_server.registry.withdrawal_status import address_of, name_for_site, subject_of

if TYPE_CHECKING:
    from aggregators.methods import Recipe

REPLACED_EVENT = "version.replaced"
OFFERED_EVENT = "version.successor-offered"


def link_published(
    session: Session, caller: Caller, version: ModelVersionRecord, recipe: Recipe
) -> None:
    """Link a version that is being published with those that its recipe says it replaces.

    Only versions of its own site are linked; other sites are notified.
    Nothing is linked when the caller cannot see the replaced file.
    """
    claim = recipe.successor_of
    if claim is None or claim.digest == version.digest:
        return
    site_id = version.model.site_id
    replaced = repository.visible_versions_of(session, caller, claim.digest)
    for each in replaced:
        if each.model.site_id == site_id:
            # Of a refined model the base is made again, so that is replaced, too.
            for older in [each, *repository.refined_from(session, each)]:
                link_successor(session, caller, older, version)
    _offer(session, version, [each for each in replaced if each.model.site_id != site_id])


def link_successor(
    session: Session, caller: Caller, version: ModelVersionRecord, successor: ModelVersionRecord
) -> None:
    """Record that a version is replaced, and with it what that replaced at the same site.

    Doing it again changes nothing.
    """
    site_id = version.model.site_id
    replaced = {version.id} | repository.replaced_through(session, version.id, site_id)
    known = repository.successor_pairs(session, successor.id)
    actor = caller.name
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
    site_ids = {site_id} | repository.downloaders_of(session, version.id)
    write_events(
        session,
        [
            NewEvent(
                site_id,
                REPLACED_EVENT,
                name_for_site(site_id, version),
                {"successor": name_for_site(site_id, successor), "digest": successor.digest},
            )
            for site_id in sorted(site_ids)
        ],
    )


def _offer(
    session: Session, successor: ModelVersionRecord, replaced: Sequence[ModelVersionRecord]
) -> None:
    """Notify other sites of a version that claims to replace theirs, if they need and see it."""
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
    write_events(
        session,
        [
            NewEvent(site_id, OFFERED_EVENT, address_of(each), details)
            for site_id, each in sorted(needing.items())
        ],
    )
