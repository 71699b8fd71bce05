"""Start rounds, list them, and call them off.

How a round works:

1. A site starts it (`start_round`): a base, a method, the sites, a deadline. They get an event.
2. Each site trains on its own data and sends a contribution (`rounds.contributing`), which is
   received as every file is and compared with the base in a limited child process.
3. Once all have contributed, or the deadline has passed, any of them has the pool combine what is
   there (`rounds.finishing`): a merge in the background, whose result is published with its
   lineage. If more rounds were asked for, the next one opens on the result.

How a secure round differs: the sites send encrypted shares to aggregation servers over the board
(`pool_server.secure`), which the pool can neither read nor check. Every site then announces the
same file to the round: the sum that the servers signed. The pool finds it among the files of the
board (`rounds.contributing`), so it is sent once and counts for each site.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from typing import Any

from sqlalchemy.orm import Session

from aggregators.methods.registry import METHODS, list_round_methods
from pool_server.activity.events import NewEvent, write_events
from pool_server.database.records import (
    ModelVersionRecord,
    RoundParticipantRecord,
    RoundRecord,
    SiteRecord,
    now_utc,
)
from pool_server.errors import (
    ConflictError,
    MissingError,
    NotAllowedError,
    RefusedError,
    RoundClosedError,
    RoundRefusedError,
)
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.http.parameters import write_cursor
from pool_server.people.sites import get_site
from pool_server.registry.access import DELETED, require_right, rights_of_site
from pool_server.registry.filters import ModelChoice
from pool_server.registry.repository import lock_state
from pool_server.registry.service import resolve_version
from pool_server.registry.withdrawal_status import refusal_of, successors_of
from pool_server.rounds import repository
from pool_server.rounds.methods import RoundMethod, find_round_method
from pool_server.rounds.repository import (
    address_of,
    base_warning,
    describe_round,
    has_enough,
    missing_sites,
    state_of,
)
from pool_server.wire.rounds import (
    RoundPage,
    RoundRequest,
    RoundResponse,
    RoundState,
    RoundTerms,
    SecureTerms,
)
from pool_server.wire.signatures.keys import Envelope

ASKED_EVENT = "round.asked"
LONGEST = timedelta(days=366)
FEWEST_SUMMED = 3


def get_round(session: Session, caller: Caller, key: str) -> RoundRecord:
    """Return a round that the caller's site takes part in, or any for an admin.

    Raises
    ------
    MissingError
        It does not exist, or belongs to other sites: both look the same.
    """
    found = repository.find_round(session, key)
    if found is None or not (caller.is_admin or takes_part(found, caller.site)):
        raise MissingError(
            f"the pool has no round {key} that site {caller.site!r} takes part in",
            code="round_not_found",
            hint="`poolctl rounds ls` lists your rounds.",
        )
    return found


def takes_part(found: RoundRecord, site: str) -> bool:
    return any(each.site.name == site for each in found.participants)


def list_rounds(
    session: Session, caller: Caller, *, state: str | None, before_id: int | None, limit: int
) -> RoundPage:
    """Return one page of the caller's rounds, newest first; an admin sees all."""
    found = repository.list_rounds(
        session,
        site_id=None if caller.is_admin else caller.site_id,
        state=state,
        before_id=before_id,
        limit=limit,
    )
    page = found[:limit]
    return RoundPage(
        items=[describe_round(each) for each in page],
        next_cursor=write_cursor(page[-1].id) if len(found) > len(page) else None,
    )


def start_round(session: Session, caller: Caller, request: RoundRequest) -> RoundResponse:
    """Start a round.

    Raises
    ------
    RoundRefusedError
        The method, mode, options, base or deadline is not possible, or a site may not use the base.
    """
    names = sorted(set(request.sites))
    _require_own_site_among(caller, names)
    method = find_round_method(request.method)
    if len(names) < repository.FEWEST_CONTRIBUTIONS:
        raise RoundRefusedError(
            f"a round needs at least {repository.FEWEST_CONTRIBUTIONS} sites: the result of one "
            "contribution would show it",
            hint=f"`{method.alone}` does the same with data sets on one machine.",
        )
    if len(names) <= request.least_others:
        raise RoundRefusedError(
            f"each contribution is to be combined with {request.least_others} others, and the "
            f"round has {len(names)} sites; expected {request.least_others + 1} or more"
        )
    base = _find_base(session, caller, request.base)
    if request.secure is not None:
        _require_summable(session, method, names, request.secure)
    options = method.check_options(request.mode, request.options)
    method.require_sites(len(names), options)
    method.require_base(base)
    rounds_total = method.rounds_to_hold(request.mode, request.rounds, base)
    options = method.cover_rounds(options, rounds_total)
    now = now_utc()
    if not now < request.deadline <= now + LONGEST:
        raise RoundRefusedError(
            f"the deadline {request.deadline:%Y-%m-%d %H:%M %Z} is not between now and "
            f"{LONGEST.days} days from now"
        )
    sites = [get_site(session, name) for name in names]
    _require_usable_by_all(base, sites)
    started = open_round(
        session,
        caller,
        base,
        sites,
        site_id=caller.site_id,
        token_id=caller.token_id,
        created_by=name_of(caller),
        method=request.method,
        method_version=method.aggregation.version,
        mode=request.mode,
        options=options,
        description=request.description,
        number=1,
        rounds_total=rounds_total,
        deadline=request.deadline,
        duration_s=int((request.deadline - now).total_seconds()) + 1,
        least_others=request.least_others,
        created_at=now,
        secure=None if request.secure is None else request.secure.model_dump(mode="json"),
    )
    return describe_round(started)


def open_round(
    session: Session,
    caller: Caller,
    base: ModelVersionRecord,
    sites: list[SiteRecord],
    **fields: Any,
) -> RoundRecord:
    """Write a new round with its participants; `fields` name who started it."""
    started = RoundRecord(
        key=secrets.token_hex(8),
        base_version_id=base.id,
        state=repository.OPEN,
        participants=[RoundParticipantRecord(site_id=site.id) for site in sites],
        **fields,
    )
    session.add(started)
    session.flush()
    record_act(
        session,
        caller,
        "round.start",
        started.key,
        base_digest=base.digest,
        method=started.method,
        sites=[site.name for site in sites],
        number=started.number,
    )
    session.flush()
    starter = started.created_by.partition("/")[0]
    details = {"base": address_of(base), "by": starter, "until": started.deadline.isoformat()}
    write_events(
        session,
        [
            NewEvent(site.id, ASKED_EVENT, started.key, details)
            for site in sites
            if site.id != caller.site_id
        ],
    )
    return repository.lock_round(session, started.id)


def keep_terms(session: Session, caller: Caller, key: str, terms: Envelope) -> RoundResponse:
    """Keep the terms of a new round that its starter has signed; the sites check the signature.

    Raises
    ------
    RefusedError
        They are not those of the round.
    """
    found = repository.lock_round(session, get_round(session, caller, key).id)
    require_starter(caller, found, "sign its terms")
    require_contributions_taken(found)
    expected = RoundTerms.of(describe_round(found))
    try:
        signed = RoundTerms.from_envelope(terms)
    except ValueError as error:
        raise RefusedError(str(error), code="terms_refused") from error
    if found.number > 1 or terms.body() != expected.to_bytes():
        raise RefusedError(f"signed were not the terms of round {key}", code="terms_refused")
    found.terms = terms.model_dump(mode="json")
    record_act(session, caller, "round.sign", key, digest=signed.digest)
    session.flush()
    return describe_round(found)


def close_round(session: Session, caller: Caller, key: str) -> RoundResponse:
    """Move a round's deadline to this moment: who has not contributed is left out."""
    found = repository.lock_round(session, get_round(session, caller, key).id)
    require_starter(caller, found, "close it early")
    if state_of(found) == "open":
        if not has_enough(found):
            raise ConflictError(
                f"round {key} has {len(found.contributions)} contributions, expected at least "
                f"{describe_floor(found)}",
                code="round_open",
                hint=f"Wait for another, or end it: `poolctl rounds cancel {key}`",
            )
        found.deadline = now_utc()
        record_act(session, caller, "round.close", key, missing=sorted(missing_sites(found)))
        session.flush()
    return describe_round(found)


def cancel_round(session: Session, caller: Caller, key: str) -> RoundResponse:
    """Call a round off; its contributions are kept. Again is no error.

    Raises
    ------
    RoundClosedError
        It is finished.
    """
    found = get_round(session, caller, key)
    require_starter(caller, found, "cancel it")
    if repository.end_round(session, found.id, repository.CANCELLED, name_of(caller)):
        record_act(session, caller, "round.cancel", key)
    found = repository.lock_round(session, found.id)
    if found.state == repository.FINISHED:
        raise RoundClosedError(f"round {key} is finished and cannot be cancelled")
    return describe_round(found)


def require_starter(caller: Caller, found: RoundRecord, act: str) -> None:
    """Raise `NotAllowedError` unless the caller's site started the round, or it is an admin."""
    caller.require_upload_to(caller.site)
    if not caller.is_admin and caller.site_id != found.site_id:
        raise NotAllowedError(
            f"round {found.key} was started by {found.site.name!r}; only they or an admin can {act}"
        )


def require_contributions_taken(found: RoundRecord) -> None:
    """Raise `RoundClosedError` when it is too late to contribute."""
    state = state_of(found)
    if state == "open":
        return
    reasons: dict[RoundState, str] = {
        "closed": f"its deadline {found.deadline:%Y-%m-%d %H:%M} UTC has passed",
        "expired": f"its deadline {found.deadline:%Y-%m-%d %H:%M} UTC has passed",
        "finished": "it is finished",
        "cancelled": "it was cancelled",
    }
    following = f"`poolctl rounds info {found.successor.key}`" if found.successor else ""
    raise RoundClosedError(
        f"round {found.key} takes no contributions any more: {reasons[state]}",
        hint=f"The next round is {following}." if following else "",
        details={"state": state},
    )


def require_finishable(found: RoundRecord) -> None:
    """Raise unless the contributions that are there may be combined now.

    Raises
    ------
    RoundClosedError
        It was cancelled, or too few sites contributed.
    ConflictError
        Sites are still waited for; names them.
    """
    state = state_of(found)
    if state == "cancelled":
        raise RoundClosedError(f"round {found.key} was cancelled")
    if state == "expired":
        raise RoundClosedError(
            f"round {found.key} expired: {len(found.contributions)} sites contributed before its "
            f"end, expected at least {describe_floor(found)}"
        )
    waiting = sorted(missing_sites(found))
    if state == "open" and waiting:
        raise ConflictError(
            f"round {found.key} waits for {', '.join(waiting)} until "
            f"{found.deadline:%Y-%m-%d %H:%M} UTC",
            code="round_open",
            hint=f"Its starter may go on without them: `poolctl rounds finish {found.key} --early`",
            details={"waiting": waiting},
        )


def describe_floor(found: RoundRecord) -> str:
    """Return how many contributions a round needs, and who asks for so many."""
    needed = repository.fewest_sites(found)
    if needed == repository.FEWEST_CONTRIBUTIONS:
        return f"{needed}: the result of one would show it"
    asking = [each.site.name for each in found.contributions if each.least_others == needed - 1]
    verb = "asks" if len(asking) == 1 else "ask"
    return f"{needed}, as {', '.join(asking)} {verb} for those of {needed - 1} other sites"


def require_usable_base(found: RoundRecord, *, despite_withdrawal: bool) -> None:
    """Raise `ConflictError` if the base was withdrawn, or holds something that was.

    Parameters
    ----------
    despite_withdrawal : bool
        The caller goes on nevertheless, unless the base is not given out any more.
    """
    warning = base_warning(found.base_version)
    is_refused = refusal_of(found.base_version) is not None
    if not warning or (despite_withdrawal and not is_refused):
        return
    hints = [f"`poolctl rounds cancel {found.key}` ends the round."]
    if successors := successors_of(found.base_version):
        hints.insert(0, f"Start a round on {successors[0]}, which replaces it.")
    if not is_refused:
        hints.append("With --despite-withdrawal the round goes on, and its result is flagged.")
    raise ConflictError(
        f"the base {address_of(found.base_version)} of round {found.key} is {warning}",
        code="base_withdrawn",
        hint=" ".join(hints),
    )


def name_of(caller: Caller) -> str:
    return f"{caller.site}/{caller.token_name}"


def _require_own_site_among(caller: Caller, names: list[str]) -> None:
    caller.require_upload_to(caller.site)
    if not caller.is_admin and caller.site not in names:
        raise NotAllowedError(
            f"site {caller.site!r} is not among the sites of the round ({', '.join(names)})",
            hint="Add your own site; only admins start rounds for others.",
        )


def _require_summable(
    session: Session, method: RoundMethod, names: list[str], secure: SecureTerms
) -> None:
    """Raise `RoundRefusedError` unless a secure round can be held with these sites."""
    if reason := method.aggregation.not_summable:
        summable = [name for name in list_round_methods() if not METHODS[name].not_summable]
        raise RoundRefusedError(
            f"{method.name} {reason}", hint=f"Secure rounds can be held with {', '.join(summable)}."
        )
    if len(names) < FEWEST_SUMMED:
        raise RoundRefusedError(
            f"a secure round needs at least {FEWEST_SUMMED} sites, found {len(names)}: of two, "
            "each could subtract its own part"
        )
    for server in secure.servers:
        get_site(session, server)
    if both := sorted({*names} & {*secure.servers}):
        raise RoundRefusedError(f"{', '.join(both)}: a lab cannot also be an aggregation server")


def _find_base(session: Session, caller: Caller, text: str) -> ModelVersionRecord:
    """Return the base of a new round, which the caller must have the right to merge."""
    address = ModelChoice.parse(text).address
    if address is None:
        raise RoundRefusedError(
            f"the base {text!r} is not an address", hint="Write it as SITE/NAME@VERSION."
        )
    base = resolve_version(session, caller, address.site, address.name, address.reference)
    require_right(caller, base.model, "merge")
    # A deletion looks for rounds that go on: it waits for this one, or was first.
    lock_state(session, base)
    if base.state == DELETED:
        raise RoundRefusedError(f"the base {address_of(base)} was deleted just now")
    if warning := base_warning(base):
        raise RoundRefusedError(
            f"the base {address_of(base)} is {warning}",
            hint="`poolctl models info` names what replaces it, if anything does.",
        )
    return base


def _require_usable_by_all(base: ModelVersionRecord, sites: list[SiteRecord]) -> None:
    """Raise `RoundRefusedError` unless each site may download the base and merge it."""
    needed = {"download", "merge"}
    without = [site.name for site in sites if not needed <= rights_of_site(site.id, base.model)]
    if without:
        model = f"{base.model.site.name}/{base.model.name}"
        raise RoundRefusedError(
            f"{', '.join(without)} may not download and merge the base {model}",
            hint=f"{base.model.site.name} grants both with `poolctl models share {model}`.",
            details={"sites": without},
        )
