"""Which state a round is in, and what may be done with it then."""

from __future__ import annotations

from typing import cast

from pool_server.database.records import ModelVersionRecord, RoundRecord, now_utc
from pool_server.errors import ConflictError, RoundClosedError
from pool_server.models.registry.standing import (
    address_of,
    refusal_of,
    successors_of,
    warning_of,
)
from pool_server.rounds import repository
from pool_server.wire.rounds import RoundState


def state_of(found: RoundRecord) -> RoundState:
    """Return the state as clients see it, in which the deadline counts."""
    if found.state != repository.OPEN:
        return cast("RoundState", found.state)
    if now_utc() < found.deadline:
        return "open"
    return "closed" if has_enough(found) else "expired"


def has_enough(found: RoundRecord) -> bool:
    return len(found.contributions) >= repository.FEWEST_CONTRIBUTIONS


def is_ready(found: RoundRecord) -> bool:
    """Tell whether nobody is waited for any more, and enough sites have contributed."""
    if found.state != repository.OPEN or not has_enough(found):
        return False
    return not missing_sites(found) or now_utc() >= found.deadline


def missing_sites(found: RoundRecord) -> set[str]:
    return {each.site.name for each in found.participants} - {
        each.site.name for each in found.contributions
    }


def base_warning(base: ModelVersionRecord) -> str:
    """Return how a base stands, such as ``flagged (data-error)``; empty in good standing."""
    standing, _, reasons = warning_of(base).partition("; reason=")
    return f"{standing} ({reasons})" if standing else ""


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
            f"end, expected at least {repository.FEWEST_CONTRIBUTIONS}"
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


def require_usable_base(found: RoundRecord, *, despite_withdrawal: bool) -> None:
    """Raise `ConflictError` if the base was withdrawn, or holds something that was.

    Parameters
    ----------
    despite_withdrawal : bool
        The caller goes on nevertheless, unless nobody gets the base any more.
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
