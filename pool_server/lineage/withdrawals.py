"""Withdrawals: taking a version and everything made from it back from all sites.

The actors are the site that owns the version (or a curator of the pool), the pool, the sites with
models made from it, and the sites that downloaded it or one of those.

1. `preview_withdrawal` shows the owner the versions to be flagged and the sites to be notified.
2. `withdraw` locks all families (`pool_server.registry.repository.lock_families`), so that nothing
   can be published or fetched between looking and writing. It records reason and effect here,
   follows the file through all recipes (`flags.Impact`), flags every version below it
   (`flags.set_flags`), and writes an event for each site concerned: one transaction.
3. From then on downloads are refused or come with a warning
   (`pool_server.registry.withdrawal_status`); uploads of the same bytes are refused, and a later
   publication is flagged if its recipe leads to the withdrawn file (`flags.flag_published`).
4. Sites ask `check_files` about their own copies: `poolctl models check`, and the agent at every
   pass.
5. A site makes the model again without the withdrawn input (`poolctl merge --replay --without`).
   Publishing the result links it as the successor (`flags.link_published`), unless that is a model
   of another site.
"""

from collections import defaultdict

from fastapi import APIRouter
from sqlalchemy import select
from sqlalchemy.orm import Session

from pool_server.activity.events import write_events
from pool_server.database.records import ModelVersionRecord, WithdrawalRecord
from pool_server.errors import ConflictError, NotAllowedError, RefusedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, Uploader, needs
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.lineage import repository
from pool_server.lineage.flags import Impact, link_successor, set_flags
from pool_server.registry import access, query, service, withdrawal_status
from pool_server.registry import repository as registry
from pool_server.wire import withdrawals as wire

router = APIRouter(tags=["withdrawals"])

_STRICTNESS: dict[str, int] = {"warn": 0, "refuse": 1}


@router.get(
    "/models/{site}/{name}/versions/{reference}/withdrawal-preview",
    summary="Preview a withdrawal",
    dependencies=[needs("withdrawals")],
)
def preview_withdrawal(
    caller: Uploader, session: ReadingSession, version: service.VersionToName
) -> wire.WithdrawalImpact:
    """Return the versions to be flagged and the sites to be notified; change nothing.

    For users with the right to withdraw the version. Sites are named even if the caller cannot see
    their models, because the caller must know which sites have the withdrawn file.
    """
    _require_withdrawable(session, caller, version)
    impact = Impact(session, version, own_only=_is_own_only(session, caller, version))
    return _describe(session, caller, impact)


@router.post(
    "/models/{site}/{name}/versions/{reference}/withdraw",
    summary="Withdraw a version",
    dependencies=[needs("withdrawals")],
)
def withdraw(
    caller: Uploader,
    session: WritingSession,
    version: service.VersionToChange,
    request: wire.WithdrawalRequest,
) -> wire.WithdrawalImpact:
    """Withdraw a version of your own site or, as a curator or admin of the pool, of any site.

    If several sites have published the file, only the first of them can withdraw it everywhere. If
    another site made the same merge itself from models in which the first owns nothing, the
    withdrawal affects only the versions of its own site.

    It cannot be undone. Everything merged from the version is flagged, through any number of
    merges; owners, and sites that have downloaded any of it, are notified by an event. Downloads of
    the withdrawn bytes are refused or carry a warning, depending on the reason; those of a version
    in quarantine are always refused. A draft must be deleted instead.
    """
    _require_withdrawable(session, caller, version)
    # Families before state, as in publishing: a different order could deadlock.
    registry.lock_families(session)
    registry.lock_state(session, version)
    effect = choose_effect(request, version.state)
    of_version = WithdrawalRecord.version_id == version.id
    withdrawal = session.scalar(select(WithdrawalRecord).where(of_version))
    own_only = _is_own_only(session, caller, version)
    impact = Impact(session, version, own_only=own_only)
    if withdrawal is None:
        withdrawal = _record_withdrawal(session, caller, version, request, effect)
        withdrawal.own_only = own_only
        set_flags(session, caller, withdrawal, version, impact.flagged)
    else:
        _tighten(withdrawal, caller, request, effect, version.address)
    version.state_reason = request.explanation or request.reason
    if request.successor is not None:
        successor = _find_successor(session, caller, version, request.successor)
        if successor.id in {affected.id for affected in impact.flagged}:
            raise _unfit(successor, version, "it was made from the withdrawn file")
        link_successor(session, caller, version, successor)
    record_act(
        session,
        caller,
        "version.withdraw",
        version.subject,
        digest=version.digest,
        reason=request.reason,
        effect=effect,
        explanation=request.explanation,
        flagged=[affected.subject for affected in impact.flagged[: wire.MOST_NAMED]],
        flagged_total=len(impact.flagged),
    )
    write_events(session, impact.events(withdrawal))
    session.flush()
    session.expire(version)
    current = registry.get_version(session, version.id)
    described = _describe(session, caller, impact)
    described.withdrawal = withdrawal_status.describe_withdrawal(withdrawal, current)
    return described


@router.post(
    "/withdrawals/check",
    summary="Ask whether files were withdrawn",
    dependencies=[needs("models:read")],
)
def check_files(
    caller: SignedIn, session: ReadingSession, request: wire.CheckRequest
) -> wire.CheckResponse:
    """Return which of these files were withdrawn or contain a withdrawn file.

    Meant for copies that were downloaded before, so every user gets an answer; users without access
    to a model get its withdrawal without names, explanation and successors. Files in good standing
    and files unknown to the pool are omitted.
    """
    digests = list(dict.fromkeys(request.digests))
    withdrawals: dict[str, list[wire.Withdrawal]] = defaultdict(list)
    flags: dict[str, dict[str, wire.WithdrawalFlag]] = defaultdict(dict)
    successors: dict[str, list[str]] = defaultdict(list)
    for record, is_named in repository.withdrawals_of(session, caller, digests):
        described = withdrawal_status.describe_withdrawal(record, record.version)
        others = withdrawals[record.digest]
        if is_named:
            others.append(described)
            successors[record.digest] += withdrawal_status.successors_of(record.version)
        elif not others:
            others.append(withdrawal_status.hide_name(described))
    for version, is_named in repository.flagged_versions(session, caller, digests):
        for flag in withdrawal_status.flags_of(version, access.viewing_site(caller)):
            # The same bytes under another name count as withdrawn, not as holding it.
            if flag.digest != version.digest or not withdrawals[version.digest]:
                shown = flag if is_named else withdrawal_status.hide_flag_name(flag)
                flags[version.digest].setdefault(flag.digest, shown)
        if is_named:
            successors[version.digest] += withdrawal_status.successors_of(version)
    return wire.CheckResponse(
        items=[
            wire.CheckedFile(
                digest=digest,
                withdrawals=withdrawals[digest],
                flags=list(flags[digest].values()),
                successors=list(dict.fromkeys(successors[digest])),
            )
            for digest in digests
            if withdrawals[digest] or flags[digest]
        ]
    )


def _require_withdrawable(session: Session, caller: Caller, version: ModelVersionRecord) -> None:
    """Raise unless the caller may withdraw a version."""
    caller.require_role("contributor", version.model.site.name)
    _require_first(session, caller, version)


def choose_effect(request: wire.WithdrawalRequest, state: str) -> wire.WithdrawalEffect:
    """Return the effect of the reason; a version in quarantine is never given out.

    The right to withdraw does not include the right to release, so no withdrawal makes quarantined
    bytes available.
    """
    return "refuse" if state == access.QUARANTINED else wire.EFFECT_OF_REASON[request.reason]


def _require_first(session: Session, caller: Caller, version: ModelVersionRecord) -> None:
    """Raise unless the version's site published its bytes first.

    A withdrawal affects every copy of the bytes. Otherwise a site could copy another site's file
    and, by withdrawing its copy, revoke the file and everything made from it. Copies that the site
    cannot see do not count.
    """
    site_id = version.model.site_id
    first = registry.find_original(session, site_id, version.digest) or version
    if first.model.site_id == version.model.site_id or caller.has_role("curator"):
        return
    address = version.address
    raise NotAllowedError(
        f"the file of {address} was first published by another site, and a withdrawal would "
        "affect its version, too",
        hint="Ask that site, or a curator of the pool, to withdraw it; you can delete your own "
        f"copy: `poolctl models rm {address.removeprefix('pool://')}`.",
    )


def _is_own_only(session: Session, caller: Caller, version: ModelVersionRecord) -> bool:
    """Return whether a withdrawal by the caller affects only the version's own site."""
    return not caller.has_role("curator") and repository.is_made_elsewhere(session, version)


def _record_withdrawal(
    session: Session,
    caller: Caller,
    version: ModelVersionRecord,
    request: wire.WithdrawalRequest,
    effect: wire.WithdrawalEffect,
) -> WithdrawalRecord:
    actor = caller.name
    access.move(version, access.WITHDRAW, actor)
    withdrawal = WithdrawalRecord(
        version_id=version.id,
        digest=version.digest,
        reason=request.reason,
        explanation=request.explanation,
        effect=effect,
        created_by=actor,
        token_id=caller.token_id,
    )
    session.add(withdrawal)
    session.flush()
    return withdrawal


def _tighten(
    withdrawal: WithdrawalRecord,
    caller: Caller,
    request: wire.WithdrawalRequest,
    effect: wire.WithdrawalEffect,
    address: str,
) -> None:
    if _STRICTNESS[effect] <= _STRICTNESS[withdrawal.effect]:
        raise ConflictError(
            f"{address} was withdrawn at {withdrawal.created_at:%Y-%m-%d %H:%M} UTC "
            f"({withdrawal.reason}, {withdrawal.effect}); that cannot be undone or softened",
            code="already_withdrawn",
        )
    withdrawal.reason, withdrawal.effect = request.reason, effect
    withdrawal.explanation = request.explanation
    withdrawal.created_by = caller.name
    withdrawal.token_id = caller.token_id


def _find_successor(
    session: Session, caller: Caller, version: ModelVersionRecord, address: str
) -> ModelVersionRecord:
    place = query.read_address(address)
    successor = service.resolve_version(session, caller, place.site, place.name, place.reference)
    if successor.id == version.id:
        raise _unfit(successor, version, "it is that version itself")
    if successor.state != access.AVAILABLE:
        raise _unfit(successor, version, f"it is {successor.state}, expected available")
    if successor.flags:
        withdrawn = successor.flags[0].withdrawal.digest
        raise _unfit(successor, version, f"it contains the withdrawn file with digest {withdrawn}")
    if successor.kind != version.kind:
        raise _unfit(successor, version, f"it is of kind {successor.kind}, not {version.kind}")
    if successor.id in repository.successor_pairs(session, version.id):
        raise _unfit(successor, version, "it was itself replaced by that version")
    return successor


def _unfit(
    successor: ModelVersionRecord, version: ModelVersionRecord, problem: str
) -> RefusedError:
    new, old = successor.address, version.address
    return RefusedError(
        f"{new} cannot replace {old}: {problem}",
        code="withdrawal_refused",
        hint="Name a version that contains no withdrawn file, or none.",
    )


def _describe(session: Session, caller: Caller, impact: Impact) -> wire.WithdrawalImpact:
    root = impact.root
    visible = repository.visible_ids(session, caller, root.digest)
    affected = [
        wire.AffectedVersion(
            address=version.address,
            digest=version.digest,
            site=version.model.site.name,
            same_bytes=version.digest == root.digest,
            successors=withdrawal_status.successors_of(version),
        )
        for version in impact.flagged
        if version.id in visible
    ]
    return wire.WithdrawalImpact(
        address=root.address,
        digest=root.digest,
        withdrawn=root.state == access.WITHDRAWN,
        versions=affected[: wire.MOST_NAMED],
        versions_total=len(impact.flagged),
        sites=impact.sites(),
    )
