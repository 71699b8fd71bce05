"""Flags of a withdrawal, set on every version that contains the withdrawn file.

Recipes name their inputs by digest, and a file's whole ancestry may be known to the pool before or
after the file itself. So flags are set at two moments: a withdrawal flags all descendants of the
withdrawn file; a publication flags the descendants that its recipe newly connects to a withdrawn
file. The owners of flagged versions are notified.

The pool names the successors of a withdrawn or flagged version to every reader. A recipe may claim
that its result replaces another file. Only the site of the replaced version is trusted: its
publications with such a recipe are linked (`link_published`). A withdrawal may name any version in
place of the withdrawn one.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from sqlalchemy.orm import Session

from aggregators.methods import Recipe
from pool_server.activity.events import NewEvent, write_events
from pool_server.database.records import (
    ModelVersionRecord,
    SuccessorRecord,
    WithdrawalFlagRecord,
    WithdrawalRecord,
)
from pool_server.errors import ConflictError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.lineage import repository
from pool_server.registry.repository import lock_families
from pool_server.registry.withdrawal_status import name_for_site
from pool_server.wire.withdrawals import MOST_NAMED, AffectedSite

WITHDRAWN_EVENT = "version.withdrawn"
FLAGGED_EVENT = "version.flagged"


@dataclass
class _SitePart:
    """One site's share of a withdrawal."""

    name: str
    flagged: list[ModelVersionRecord] = field(default_factory=list)
    downloaded: list[ModelVersionRecord] = field(default_factory=list)
    has_withdrawn: bool = False


class Impact:
    """The impact of a withdrawal: versions to flag and sites to notify.

    With `own_only`, only versions of the withdrawing site are affected.
    """

    def __init__(self, session: Session, root: ModelVersionRecord, *, own_only: bool) -> None:
        self.root = root
        family = [
            version
            for version in repository.family_below(session, root.digest)
            if not own_only or version.model.site_id == root.model.site_id
        ]
        self.flagged = [version for version in family if version.id != root.id]
        by_id = {version.id: version for version in family}
        self._parts: dict[int, _SitePart] = {}
        self._part(root.model.site_id, root.model.site.name).has_withdrawn = True
        for version in self.flagged:
            self._part(version.model.site_id, version.model.site.name).flagged.append(version)
        for version_id, site_id, site in repository.downloads_of_family(session, root.digest):
            if version_id not in by_id:
                continue
            part = self._part(site_id, site)
            if by_id[version_id].digest == root.digest:
                part.has_withdrawn = True
            part.downloaded.append(by_id[version_id])

    def sites(self) -> list[AffectedSite]:
        """Return the sites that are notified, by name."""
        return sorted(
            (
                AffectedSite(
                    site=part.name, versions=len(part.flagged), downloaded=len(part.downloaded)
                )
                for part in self._parts.values()
            ),
            key=lambda affected: affected.site,
        )

    def events(self, withdrawal: WithdrawalRecord) -> list[NewEvent]:
        """Return the events for the owner, owners of flagged versions, and downloaders."""
        events = []
        for site_id, part in self._parts.items():
            subject = name_for_site(site_id, self.root)
            facts = describe_for_site(site_id, withdrawal, self.root)
            if part.has_withdrawn:
                details = facts | {"flagged_total": len(self.flagged)}
                events.append(NewEvent(site_id, WITHDRAWN_EVENT, subject, details))
            fetched = [version for version in part.downloaded if version.id != self.root.id]
            if part.flagged or fetched:
                details = facts | {
                    "versions": list_addresses(part.flagged),
                    "downloaded": list_addresses(fetched),
                }
                events.append(NewEvent(site_id, FLAGGED_EVENT, subject, details))
        return events

    def _part(self, site_id: int, name: str) -> _SitePart:
        return self._parts.setdefault(site_id, _SitePart(name))


def describe_for_site(
    site_id: int, withdrawal: WithdrawalRecord, source: ModelVersionRecord
) -> dict[str, object]:
    """Return the details of an event about the withdrawal of `source` that one site may know."""
    is_named = name_for_site(site_id, source) == source.address
    return {
        "digest": withdrawal.digest,
        "reason": withdrawal.reason,
        "effect": withdrawal.effect,
        # Written by the model's site, and mostly about it.
        "explanation": withdrawal.explanation if is_named else "",
        "by": withdrawal.created_by if is_named else "",
    }


def list_addresses(versions: Sequence[ModelVersionRecord]) -> list[str]:
    """Return the addresses of the first `MOST_NAMED` versions."""
    return [version.address for version in versions[:MOST_NAMED]]


def set_flags(
    session: Session,
    caller: Caller,
    withdrawal: WithdrawalRecord,
    source: ModelVersionRecord,
    versions: Sequence[ModelVersionRecord],
) -> None:
    """Flag versions because of the withdrawal of `source`, with an audit entry for each."""
    for version in versions:
        session.add(WithdrawalFlagRecord(version_id=version.id, withdrawal_id=withdrawal.id))
        record_act(
            session,
            caller,
            "version.flag",
            version.subject,
            withdrawn=name_for_site(version.model.site_id, source).removeprefix("pool://"),
            withdrawn_digest=withdrawal.digest,
            reason=withdrawal.reason,
        )
    session.flush()


def require_bytes_not_withdrawn(session: Session, *digests: str) -> None:
    """Raise if any of these files has been withdrawn."""
    refusal = repository.find_refusal(session, digests)
    if refusal is not None:
        raise ConflictError(
            f"the file with digest {refusal.digest} was withdrawn ({refusal.reason}) and cannot "
            "be uploaded again under any name",
            code="bytes_withdrawn",
            hint="Delete it; `poolctl models check FILES` lists your other files that contain it.",
        )


def require_good_standing(
    session: Session, digests: Collection[str], *, despite_withdrawal: bool
) -> None:
    """Raise if an input file was withdrawn or contains a withdrawn file.

    `despite_withdrawal` accepts such inputs; the result is flagged.
    """
    withdrawn_input = (
        None if despite_withdrawal else repository.find_withdrawn_input(session, digests)
    )
    if withdrawn_input is None:
        return
    digest, withdrawal = withdrawn_input
    problem = "was withdrawn"
    if digest != withdrawal.digest:
        problem = f"contains the file with digest {withdrawal.digest}, which was withdrawn"
    raise ConflictError(
        f"input {digest} {problem} ({withdrawal.reason})",
        code="inputs_withdrawn",
        hint="Merge without it: `poolctl merge --replay RECIPE --without "
        f"{withdrawal.digest[:12]}`; or add --despite-withdrawal, which flags the result.",
    )


def flag_published(session: Session, caller: Caller, version: ModelVersionRecord) -> None:
    """Flag a version being published, and its descendants, if it contains a withdrawn file.

    Descendants may have been published first: the recipe of this version may be the missing link
    between them and a withdrawn file. Call it after the version, its recipe and parents are
    written.
    """
    # Locked first: a withdrawal committed between the query and the flags would be missed.
    lock_families(session)
    require_bytes_not_withdrawn(session, version.digest)
    withdrawals = repository.withdrawals_above(session, version.digest)
    if not withdrawals:
        return
    known = repository.flagged_pairs(session, [withdrawal.id for withdrawal in withdrawals])
    family = repository.family_below(session, version.digest)
    events: list[NewEvent] = []
    for withdrawal in withdrawals:
        fresh = [
            descendant
            for descendant in family
            if descendant.id != withdrawal.version_id
            and (descendant.id, withdrawal.id) not in known
        ]
        set_flags(session, caller, withdrawal, withdrawal.version, fresh)
        owned: dict[int, list[ModelVersionRecord]] = defaultdict(list)
        for descendant in fresh:
            owned[descendant.model.site_id].append(descendant)
        events += [
            NewEvent(
                site_id,
                FLAGGED_EVENT,
                name_for_site(site_id, withdrawal.version),
                describe_for_site(site_id, withdrawal, withdrawal.version)
                | {"versions": list_addresses(versions), "downloaded": []},
            )
            for site_id, versions in owned.items()
        ]
    write_events(session, events)


REPLACED_EVENT = "version.replaced"


def link_published(
    session: Session, caller: Caller, version: ModelVersionRecord, recipe: Recipe
) -> None:
    """Link a version being published with the versions that its recipe claims to replace.

    Only versions of its own site are linked. Nothing is linked if the caller cannot see the
    replaced file.
    """
    claim = recipe.successor_of
    if claim is None or claim.digest == version.digest:
        return
    site_id = version.model.site_id
    for original in repository.visible_versions_of(session, caller, claim.digest):
        if original.model.site_id == site_id:
            # A successor of a refined model is made from its base, so it replaces the base, too.
            for older in [original, *repository.refined_from(session, original)]:
                link_successor(session, caller, older, version)


def link_successor(
    session: Session, caller: Caller, version: ModelVersionRecord, successor: ModelVersionRecord
) -> None:
    """Record that a version is replaced, as are the versions of its site that it had replaced.

    Repeating it changes nothing.
    """
    site_id = version.model.site_id
    replaced = {version.id} | repository.replaced_through(session, version.id, site_id)
    known = repository.successor_pairs(session, successor.id)
    actor = caller.name
    session.add_all(
        SuccessorRecord(version_id=version_id, successor_id=successor.id, created_by=actor)
        for version_id in sorted(replaced - known - {successor.id})
    )
    session.flush()
    if version.id in known:
        return
    record_act(
        session,
        caller,
        "version.replace",
        version.subject,
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
