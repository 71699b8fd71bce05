"""Rounds in the database, and as their participants see them."""

from datetime import datetime
from functools import cache
from typing import cast

import sqlalchemy as sa
from sqlalchemy.orm import Session, joinedload, selectinload

from pool_server.database.records import (
    OPEN_UPLOADS,
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
from pool_server.registry.access import DELETED
from pool_server.registry.withdrawal_status import standing_options, warning_of
from pool_server.wire import rounds
from pool_server.wire.names import ModelAddress

OPEN, FINISHED, CANCELLED = "open", "finished", "cancelled"
FEWEST_CONTRIBUTIONS = 2
"""With one contribution, the result would reveal it, regardless of its site's demand."""


@cache
def whole_rounds() -> sa.Select[RoundRecord]:
    """Select rounds with all attributes of a response, in a fixed number of queries."""
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


def get_round(session: Session, round_id: int) -> RoundRecord:
    """Return an existing round by its id."""
    return session.scalars(whole_rounds().where(RoundRecord.id == round_id)).one()


def lock_round(session: Session, round_id: int) -> RoundRecord:
    """Lock a round until the transaction ends, and return its current state.

    SQLite lets one transaction write at a time anyway.
    """
    session.execute(sa.select(RoundRecord.id).where(RoundRecord.id == round_id).with_for_update())
    return session.scalars(
        whole_rounds().where(RoundRecord.id == round_id).execution_options(populate_existing=True)
    ).one()


def select_rounds(site_id: int | None, state: str | None) -> sa.Select[RoundRecord]:
    """Select the rounds of a site in a state as clients see it; None selects all."""
    query = whole_rounds()
    if site_id is not None:
        taken_part = sa.select(RoundParticipantRecord.round_id).where(
            RoundParticipantRecord.site_id == site_id
        )
        query = query.where(RoundRecord.id.in_(taken_part))
    return query if state is None else query.where(is_in_state(state, now_utc()))


def count_waiting(session: Session, site_id: int) -> int:
    """Return the number of open rounds of a site to which it has not contributed."""
    return session.scalar(_waiting(), {"site": site_id, "now": now_utc()}) or 0


@cache
def _waiting() -> sa.Select[int]:
    """Select the number of rounds that wait for a site; every page asks for it."""
    site = sa.bindparam("site", type_=sa.Integer)
    has_sent = sa.exists().where(
        RoundContributionRecord.round_id == RoundParticipantRecord.round_id,
        RoundContributionRecord.site_id == site,
    )
    is_open = is_in_state(OPEN, sa.bindparam("now", type_=RoundRecord.deadline.type))
    return (
        sa.select(sa.func.count())
        .select_from(RoundParticipantRecord)
        .join(RoundRecord, RoundRecord.id == RoundParticipantRecord.round_id)
        .where(RoundParticipantRecord.site_id == site, is_open, ~has_sent)
    )


def is_in_state(state: str, now: datetime | sa.BindParameter[datetime]) -> sa.ColumnElement[bool]:
    """Match rounds in a state as `state_of` returns it."""
    if state in {FINISHED, CANCELLED}:
        return RoundRecord.state == state
    if state == OPEN:
        return sa.and_(RoundRecord.state == OPEN, RoundRecord.deadline > now)
    # As `has_enough`: a demand of at least one other site implies FEWEST_CONTRIBUTIONS.
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
    """End an open round; return False if another process was first."""
    values: dict[str, object] = {"state": state, "ended_at": now_utc(), "ended_by": by}
    if state == CANCELLED:
        # Left by an attempt to finish the round that was interrupted.
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
                        UploadRecord.digest == digest, UploadRecord.state.in_(OPEN_UPLOADS)
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
    """Record that a site came too late; only the first time is kept."""
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


def is_ready(round_: RoundRecord) -> bool:
    """Return whether the round can end: no site is awaited, and enough have contributed."""
    if round_.state != OPEN or not has_enough(round_):
        return False
    return not missing_sites(round_) or now_utc() >= round_.deadline


def has_enough(round_: RoundRecord) -> bool:
    """Return whether every contributing site's demand for other contributions is met."""
    return len(round_.contributions) >= fewest_sites(round_)


def fewest_sites(round_: RoundRecord) -> int:
    """Return the minimum number of contributions for a result."""
    return 1 + max(
        (round_.least_others, *(contribution.least_others for contribution in round_.contributions))
    )


def missing_sites(round_: RoundRecord) -> set[str]:
    return {participant.site.name for participant in round_.participants} - {
        contribution.site.name for contribution in round_.contributions
    }


def state_of(round_: RoundRecord) -> rounds.RoundState:
    """Return the state as clients see it, including an expired deadline."""
    if round_.state != OPEN:
        return cast("rounds.RoundState", round_.state)
    if now_utc() < round_.deadline:
        return "open"
    return "closed" if has_enough(round_) else "expired"


def describe_round(round_: RoundRecord) -> rounds.RoundResponse:
    result, base = round_.result_version, round_.base_version
    return describe(
        rounds.RoundResponse,
        round_,
        round_id=round_.key,
        state=state_of(round_),
        ready=is_ready(round_),
        fewest_sites=fewest_sites(round_),
        base=base.address,
        base_digest=base.digest,
        base_warning=base_warning(base),
        predecessor=None if round_.predecessor is None else round_.predecessor.key,
        successor=None if round_.successor is None else round_.successor.key,
        participants=_describe_participants(round_),
        result_address=str(result_address(round_)),
        result=None if result is None else result.address,
        result_digest=None if result is None else result.digest,
        state_digest=None if result is None else round_.state_digest,
    )


def _describe_participants(round_: RoundRecord) -> list[rounds.RoundParticipant]:
    contributions = {contribution.site_id: contribution for contribution in round_.contributions}
    is_open = state_of(round_) == "open"

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

    return sorted(map(describe_one, round_.participants), key=lambda participant: participant.site)


def result_address(round_: RoundRecord) -> ModelAddress:
    """Return the default address of the result, the same for all rounds of a series."""
    return ModelAddress(round_.site.name, round_.base_version.model.name)


def files_to_combine(round_: RoundRecord) -> list[RoundContributionRecord]:
    """Return the contributions to combine; for a secure round, the sum that all sites sent."""
    return round_.contributions if round_.secure is None else round_.contributions[:1]
