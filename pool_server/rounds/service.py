"""The rules of rounds: starting them, contributing to them, finishing them.

How a round works:

1. A site starts it (`endpoints.start`): a base, a method, the sites, a deadline. They get an event.
2. Each site trains on its own data and sends a contribution (`rounds.contributing`), which is
   received as every file is and compared with the base in a limited child process.
3. Once all have contributed, or the deadline has passed, any of them has the pool combine the
   contributions (`rounds.finishing`): a merge in the background publishes the result with its
   lineage. If more rounds were requested, the next one opens on the result.

How a secure round differs: the sites send encrypted shares to aggregation servers over the board
(`pool_server.secure`), which the pool can neither read nor check. Every site then announces the
same file to the round: the sum that the servers signed. The pool finds it among the files of the
board (`rounds.contributing`), so it is sent once and counts for each site.
"""

import secrets

from sqlalchemy.orm import Session

from aggregators.methods.registry import METHODS, list_round_methods
from pool_server import errors
from pool_server.activity.events import NewEvent, write_events
from pool_server.database import records
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.people.sites import get_site
from pool_server.registry.access import DELETED, require_right, rights_of_site
from pool_server.registry.query import read_address
from pool_server.registry.repository import lock_state
from pool_server.registry.service import resolve_version
from pool_server.registry.withdrawal_status import refusal_of, successors_of
from pool_server.rounds import repository
from pool_server.rounds.methods import RoundMethod
from pool_server.rounds.repository import base_warning, missing_sites, state_of
from pool_server.wire.rounds import RoundState, SecureTerms

ASKED_EVENT = "round.asked"
FEWEST_SUMMED = 3


def get_round(session: Session, caller: Caller, key: str) -> records.RoundRecord:
    """Return a round in which the caller's site takes part, or any for an admin."""
    round_ = session.scalar(repository.whole_rounds().where(records.RoundRecord.key == key))
    if round_ is None or not (caller.is_admin or takes_part(round_, caller.site)):
        raise errors.MissingError(
            f"the pool has no round {key} that site {caller.site!r} takes part in",
            code="round_not_found",
            hint="`poolctl rounds ls` lists your rounds.",
        )
    return round_


def takes_part(round_: records.RoundRecord, site: str) -> bool:
    return any(participant.site.name == site for participant in round_.participants)


def open_round(
    session: Session,
    caller: Caller,
    base: records.ModelVersionRecord,
    sites: list[records.SiteRecord],
    **fields: object,
) -> records.RoundRecord:
    """Create a round with its participants; `fields` name its starter."""
    started = records.RoundRecord(
        key=secrets.token_hex(8),
        base_version_id=base.id,
        state=repository.OPEN,
        participants=[records.RoundParticipantRecord(site_id=site.id) for site in sites],
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
    details = {"base": base.address, "by": starter, "until": started.deadline.isoformat()}
    write_events(
        session,
        [
            NewEvent(site.id, ASKED_EVENT, started.key, details)
            for site in sites
            if site.id != caller.site_id
        ],
    )
    return repository.lock_round(session, started.id)


def require_starter(caller: Caller, round_: records.RoundRecord, act: str) -> None:
    """Raise `NotAllowedError` unless the caller's site started the round, or it is an admin."""
    caller.require_upload_to(caller.site)
    if not caller.is_admin and caller.site_id != round_.site_id:
        raise errors.NotAllowedError(
            f"round {round_.key} was started by {round_.site.name!r}; only they or an admin can "
            f"{act}"
        )


def require_open(round_: records.RoundRecord) -> None:
    """Raise `RoundClosedError` if it is too late to contribute."""
    state = state_of(round_)
    if state == "open":
        return
    reasons: dict[RoundState, str] = {
        "closed": f"its deadline {round_.deadline:%Y-%m-%d %H:%M} UTC has passed",
        "expired": f"its deadline {round_.deadline:%Y-%m-%d %H:%M} UTC has passed",
        "finished": "it is finished",
        "cancelled": "it was cancelled",
    }
    following = f"`poolctl rounds ls {round_.successor.key}`" if round_.successor else ""
    raise errors.RoundClosedError(
        f"round {round_.key} no longer accepts contributions: {reasons[state]}",
        hint=f"The next round is {following}." if following else "",
    )


def require_finishable(round_: records.RoundRecord) -> None:
    """Raise unless the present contributions may be combined now."""
    state = state_of(round_)
    if state == "cancelled":
        raise errors.RoundClosedError(f"round {round_.key} was cancelled")
    if state == "expired":
        raise errors.RoundClosedError(
            f"round {round_.key} expired: {len(round_.contributions)} sites contributed before its "
            f"end, expected at least {describe_floor(round_)}"
        )
    waiting = sorted(missing_sites(round_))
    if state == "open" and waiting:
        raise errors.ConflictError(
            f"round {round_.key} awaits {', '.join(waiting)} until "
            f"{round_.deadline:%Y-%m-%d %H:%M} UTC",
            code="round_open",
            hint=f"Its starter may finish it without them: `poolctl rounds finish {round_.key} "
            f"--early`",
        )


def describe_floor(round_: records.RoundRecord) -> str:
    """Return the minimum number of contributions of a round, with the reason for it."""
    needed = repository.fewest_sites(round_)
    if needed == repository.FEWEST_CONTRIBUTIONS:
        return f"{needed}: the result of one would reveal it"
    demanding = [
        contribution.site.name
        for contribution in round_.contributions
        if contribution.least_others == needed - 1
    ]
    verb = "demands" if len(demanding) == 1 else "demand"
    return f"{needed}, as {', '.join(demanding)} {verb} those of {needed - 1} other sites"


def require_usable_base(round_: records.RoundRecord, *, despite_withdrawal: bool) -> None:
    """Raise `ConflictError` if the base was withdrawn or contains a withdrawn file.

    `despite_withdrawal` accepts such a base if its file may still be downloaded.
    """
    warning = base_warning(round_.base_version)
    is_refused = refusal_of(round_.base_version) is not None
    if not warning or (despite_withdrawal and not is_refused):
        return
    hints = [f"`poolctl rounds cancel {round_.key}` ends the round."]
    if successors := successors_of(round_.base_version):
        hints.insert(0, f"Start a round on {successors[0]}, its successor.")
    if not is_refused:
        hints.append("--despite-withdrawal continues the round and flags its result.")
    raise errors.ConflictError(
        f"the base {round_.base_version.address} of round {round_.key} is {warning}",
        code="base_withdrawn",
        hint=" ".join(hints),
    )


def require_own_site_among(caller: Caller, names: list[str]) -> None:
    caller.require_upload_to(caller.site)
    if not caller.is_admin and caller.site not in names:
        raise errors.NotAllowedError(
            f"site {caller.site!r} is not among the sites of the round ({', '.join(names)})",
            hint="Add your own site; only admins start rounds for others.",
        )


def require_summable(
    session: Session, method: RoundMethod, names: list[str], secure: SecureTerms
) -> None:
    """Raise `RoundRefusedError` unless a secure round can be held with these sites."""
    if reason := method.aggregation.reason_not_summable:
        summable = [name for name in list_round_methods() if not METHODS[name].reason_not_summable]
        raise errors.RoundRefusedError(
            f"{method.name} {reason}", hint=f"Secure rounds can be held with {', '.join(summable)}."
        )
    if len(names) < FEWEST_SUMMED:
        raise errors.RoundRefusedError(
            f"a secure round needs at least {FEWEST_SUMMED} sites, found {len(names)}: of two, "
            "each could subtract its own contribution"
        )
    for server in secure.servers:
        get_site(session, server)
    if both := sorted({*names} & {*secure.servers}):
        raise errors.RoundRefusedError(
            f"{', '.join(both)}: a lab cannot also be an aggregation server"
        )


def find_base(session: Session, caller: Caller, text: str) -> records.ModelVersionRecord:
    """Return the base of a new round, which the caller must have the right to merge."""
    address = read_address(text)
    base = resolve_version(session, caller, address.site, address.name, address.reference)
    require_right(caller, base.model, "merge")
    # Deletions check for unfinished rounds: they wait for this lock, or came first.
    lock_state(session, base)
    if base.state == DELETED:
        raise errors.RoundRefusedError(f"the base {base.address} was deleted just now")
    if warning := base_warning(base):
        raise errors.RoundRefusedError(
            f"the base {base.address} is {warning}",
            hint="`poolctl models info` names its successor, if it has one.",
        )
    return base


def require_usable_by_all(
    base: records.ModelVersionRecord, sites: list[records.SiteRecord]
) -> None:
    """Raise `RoundRefusedError` unless each site may download the base and merge it."""
    needed = {"download", "merge"}
    without = [site.name for site in sites if not needed <= rights_of_site(site.id, base.model)]
    if without:
        model = f"{base.model.site.name}/{base.model.name}"
        raise errors.RoundRefusedError(
            f"{', '.join(without)} may not download and merge the base {model}",
            hint=f"{base.model.site.name} grants both with `poolctl models share {model}`.",
        )
