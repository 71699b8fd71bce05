"""Rounds in the database, and as their participants see them."""

from datetime import datetime
from functools import cache
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.orm import Session, joinedload, selectinload

from pool_server.database.records import (
    ModelRecord,
    ModelVersionRecord,
    RoundContributionRecord,
    RoundParticipantRecord,
    RoundRecord,
    SecureFileRecord,
    SecureSessionRecord,
    UploadRecord,
    now_utc,
)
from pool_server.http.parameters import describe
from pool_server.people.usage import UNDER_WAY
from pool_server.registry.access import DELETED
from pool_server.registry.withdrawal_status import address_of, standing_options, warning_of
from pool_server.wire import rounds
from pool_server.wire.names import ModelAddress

OPEN, FINISHED, CANCELLED = "open", "finished", "cancelled"
FEWEST_CONTRIBUTIONS = 2
"""The result of one contribution would show that contribution, whatever its site asks."""


@cache
def whole_rounds() -> sa.Select[RoundRecord]:
    """Select rounds with all that a response needs, in a fixed number of queries."""
    to_site = joinedload(ModelVersionRecord.model).joinedload(ModelRecord.site)
    return sa.select(RoundRecord).options(
        joinedload(RoundRecord.site),
        joinedload(RoundRecord.base_version).options(to_site, *standing_options()),
        joinedload(RoundRecord.result_version).options(to_site),
        selectinload(RoundRecord.participants).joinedload(RoundParticipantRecord.site),
        selectinload(RoundRecord.contributions).joinedload(RoundContributionRecord.site),
        joinedload(RoundRecord.predecessor),
        joinedload(RoundRecord.successor),
    )


def find_round(session: Session, key: str) -> RoundRecord | None:
    return session.scalar(whole_rounds().where(RoundRecord.key == key))


def get_round(session: Session, round_id: int) -> RoundRecord:
    """Return a round that is known to be there."""
    return session.scalars(whole_rounds().where(RoundRecord.id == round_id)).one()


def lock_round(session: Session, round_id: int) -> RoundRecord:
    """Return a round as it is now, and keep others from changing it until the transaction ends.

    SQLite lets one transaction write at a time anyway.
    """
    session.execute(sa.select(RoundRecord.id).where(RoundRecord.id == round_id).with_for_update())
    return session.scalars(
        whole_rounds().where(RoundRecord.id == round_id).execution_options(populate_existing=True)
    ).one()


def select_rounds(site_id: int | None, state: str | None) -> sa.Select[RoundRecord]:
    """Select the rounds that a site takes part in, in a state as clients see it; None: all."""
    query = whole_rounds()
    if site_id is not None:
        taken_part = sa.select(RoundParticipantRecord.round_id).where(
            RoundParticipantRecord.site_id == site_id
        )
        query = query.where(RoundRecord.id.in_(taken_part))
    return query if state is None else query.where(is_in_state(state, now_utc()))


def count_waiting(session: Session, site_id: int) -> int:
    """Return the number of open rounds that a site takes part in and has sent nothing to."""
    has_sent = sa.exists().where(
        RoundContributionRecord.round_id == RoundParticipantRecord.round_id,
        RoundContributionRecord.site_id == site_id,
    )
    waiting = (
        sa.select(sa.func.count())
        .select_from(RoundParticipantRecord)
        .join(RoundRecord, RoundRecord.id == RoundParticipantRecord.round_id)
        .where(RoundParticipantRecord.site_id == site_id, is_in_state(OPEN, now_utc()), ~has_sent)
    )
    return session.scalar(waiting) or 0


def is_in_state(state: str, now: datetime) -> sa.ColumnElement[bool]:
    """Match rounds in a state as `state_of` returns it."""
    if state in {FINISHED, CANCELLED}:
        return RoundRecord.state == state
    if state == OPEN:
        return sa.and_(RoundRecord.state == OPEN, RoundRecord.deadline > now)
    # As `has_enough`; that more than one other is needed makes FEWEST_CONTRIBUTIONS of it.
    asked = sa.func.max(RoundContributionRecord.least_others)
    is_enough = sa.func.coalesce(
        sa.select(sa.func.count() > asked)
        .where(RoundContributionRecord.round_id == RoundRecord.id)
        .scalar_subquery(),
        sa.false(),
    )
    return sa.and_(
        RoundRecord.state == OPEN,
        RoundRecord.deadline <= now,
        is_enough if state == "closed" else ~is_enough,
    )


def end_round(session: Session, round_id: int, state: str, by: str) -> bool:
    """Take an open round to its end; False when another process was first."""
    values: dict[str, Any] = {"state": state, "ended_at": now_utc(), "ended_by": by}
    if state == CANCELLED:
        # Of an attempt to finish the round that did not come to its end.
        values |= {"state_digest": None, "state_size_bytes": None}
    result = session.execute(
        sa.update(RoundRecord)
        .where(RoundRecord.id == round_id, RoundRecord.state == OPEN)
        .values(**values)
    )
    assert isinstance(result, sa.CursorResult)
    return bool(result.rowcount == 1)


def is_needed(session: Session, digest: str) -> bool:
    """Return whether a version, a round, a secure session or an upload uses a file."""
    return bool(
        session.scalar(
            sa.select(
                sa.or_(
                    sa.exists().where(
                        ModelVersionRecord.digest == digest, ModelVersionRecord.state != DELETED
                    ),
                    sa.exists().where(RoundContributionRecord.digest == digest),
                    sa.exists().where(SecureFileRecord.digest == digest),
                    sa.exists().where(RoundRecord.state_digest == digest),
                    sa.exists().where(
                        UploadRecord.digest == digest, UploadRecord.state.in_(UNDER_WAY)
                    ),
                )
            )
        )
    )


def size_of_session_file(session: Session, round_id: int, digest: str) -> int | None:
    """Return the size of a file of the secure sessions of a round, or None."""
    return session.scalar(
        sa.select(SecureFileRecord.size_bytes)
        .join(SecureSessionRecord, SecureSessionRecord.id == SecureFileRecord.session_id)
        .where(SecureSessionRecord.round_id == round_id, SecureFileRecord.digest == digest)
        .limit(1)
    )


def mark_late(session: Session, round_id: int, site_id: int) -> None:
    """Note that a site came too late; the first time counts."""
    session.execute(
        sa.update(RoundParticipantRecord)
        .where(
            RoundParticipantRecord.round_id == round_id,
            RoundParticipantRecord.site_id == site_id,
            RoundParticipantRecord.late_at.is_(None),
        )
        .values(late_at=now_utc())
    )


def base_warning(base: ModelVersionRecord) -> str:
    """Return a warning about a base, such as ``flagged (data-error)``; empty in good standing."""
    standing, reasons = warning_of(base)
    return f"{standing} ({reasons})" if standing else ""


def is_ready(found: RoundRecord) -> bool:
    """Return whether the round can end: no site is awaited, and enough have contributed."""
    if found.state != OPEN or not has_enough(found):
        return False
    return not missing_sites(found) or now_utc() >= found.deadline


def has_enough(found: RoundRecord) -> bool:
    """Return whether no contributing site asks for more others than have contributed."""
    return len(found.contributions) >= fewest_sites(found)


def fewest_sites(found: RoundRecord) -> int:
    """Return the number of contributions below which a round has no result."""
    return 1 + max((found.least_others, *(each.least_others for each in found.contributions)))


def missing_sites(found: RoundRecord) -> set[str]:
    return {each.site.name for each in found.participants} - {
        each.site.name for each in found.contributions
    }


def state_of(found: RoundRecord) -> rounds.RoundState:
    """Return the state as clients see it, in which the deadline counts."""
    if found.state != OPEN:
        return cast("rounds.RoundState", found.state)
    if now_utc() < found.deadline:
        return "open"
    return "closed" if has_enough(found) else "expired"


def describe_round(found: RoundRecord) -> rounds.RoundResponse:
    result, base = found.result_version, found.base_version
    return describe(
        rounds.RoundResponse,
        found,
        round_id=found.key,
        state=state_of(found),
        ready=is_ready(found),
        fewest_sites=fewest_sites(found),
        base=address_of(base),
        base_digest=base.digest,
        base_size_bytes=base.size_bytes,
        base_warning=base_warning(base),
        predecessor=None if found.predecessor is None else found.predecessor.key,
        successor=None if found.successor is None else found.successor.key,
        participants=_describe_participants(found),
        result_address=str(result_address(found)),
        result=None if result is None else address_of(result),
        result_digest=None if result is None else result.digest,
        state_digest=None if result is None else found.state_digest,
    )


def _describe_participants(found: RoundRecord) -> list[rounds.RoundParticipant]:
    contributions = {each.site_id: each for each in found.contributions}
    is_open = state_of(found) == "open"

    def describe_one(participant: RoundParticipantRecord) -> rounds.RoundParticipant:
        contribution = contributions.get(participant.site_id)
        state: rounds.ParticipantState
        if contribution is not None:
            state = "contributed"
        elif is_open:
            state = "waiting"
        else:
            state = "missing" if participant.late_at is None else "late"
        return rounds.RoundParticipant(
            site=participant.site.name,
            state=state,
            contribution=None
            if contribution is None
            else describe(rounds.RoundContribution, contribution),
        )

    return sorted(map(describe_one, found.participants), key=lambda each: each.site)


def result_address(found: RoundRecord) -> ModelAddress:
    """Return where the result goes by default: one address for all rounds of a series."""
    return ModelAddress(found.site.name, found.base_version.model.name)


def files_to_combine(found: RoundRecord) -> list[RoundContributionRecord]:
    """Return the contributions to combine; of a secure round, the sum that all sites sent."""
    return found.contributions if found.secure is None else found.contributions[:1]
