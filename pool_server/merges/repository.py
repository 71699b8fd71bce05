"""Merge jobs in the database."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from functools import cache

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased, joinedload

from pool_server.database.engine import change_rows, count_rows
from pool_server.database.records import (
    MergeJobRecord,
    ModelRecord,
    ModelVersionRecord,
    RoundRecord,
    now_utc,
)
from pool_server.registry.repository import whole_versions

QUEUED, RUNNING = "queued", "running"
FINISHED, FAILED, CANCELLED = "finished", "failed", "cancelled"
OPEN = (QUEUED, RUNNING)


@cache
def whole_jobs() -> sa.Select[MergeJobRecord]:
    """Select jobs with all attributes of a response."""
    made = joinedload(MergeJobRecord.version).joinedload(ModelVersionRecord.model)
    return sa.select(MergeJobRecord).options(
        joinedload(MergeJobRecord.site),
        joinedload(MergeJobRecord.round),
        made.joinedload(ModelRecord.site),
    )


def find_job(session: Session, key: str) -> MergeJobRecord | None:
    return session.scalar(whole_jobs().where(MergeJobRecord.key == key))


def count_open(session: Session, site_id: int) -> int:
    return count_rows(session, MergeJobRecord.site_id == site_id, MergeJobRecord.state.in_(OPEN))


def find_job_of_round(session: Session, round_: RoundRecord) -> MergeJobRecord | None:
    """Return the job that finishes a round, or has finished it."""
    has_finished = MergeJobRecord.version_id == round_.result_version_id
    return session.scalar(
        whole_jobs()
        .where(
            MergeJobRecord.round_id == round_.id,
            MergeJobRecord.state.in_(OPEN) if round_.result_version_id is None else has_finished,
        )
        .limit(1)
    )


def has_waiting(session: Session, *, of_rounds: bool) -> bool:
    """Return whether there is a job to take or to give up; called often, so it only reads."""
    return session.scalar(_waiting(of_rounds), {"now": now_utc()}) is not None


@cache
def _waiting(of_rounds: bool) -> sa.Select[int]:
    # To build it takes longer than to run it.
    is_waiting = sa.or_(MergeJobRecord.state == QUEUED, _died(sa.bindparam("now")))
    return sa.select(MergeJobRecord.id).where(is_waiting, _is_of_rounds(of_rounds)).limit(1)


def claim_next(
    session: Session,
    worker: str,
    claim_end: datetime,
    most_attempts: int,
    *,
    of_rounds: bool = False,
) -> MergeJobRecord | None:
    """Claim the oldest job that waits or has lost its process, or return None.

    Two processes that want the same job both try the update; the second finds nothing changed.
    A site with a running job waits behind the others, so that none occupies the pool alone.
    """
    now = now_utc()
    died = _died(now)
    running = aliased(MergeJobRecord)
    site_is_busy = sa.exists().where(
        running.site_id == MergeJobRecord.site_id, running.state == RUNNING
    )
    waiting = session.scalar(
        sa.select(MergeJobRecord.id)
        .where(
            sa.or_(MergeJobRecord.state == QUEUED, died),
            MergeJobRecord.attempts < most_attempts,
            _is_of_rounds(of_rounds),
        )
        .order_by(site_is_busy, MergeJobRecord.id)
        .limit(1)
    )
    if waiting is None:
        return None
    claimed = change_rows(
        session,
        sa.update(MergeJobRecord)
        .where(MergeJobRecord.id == waiting, sa.or_(MergeJobRecord.state == QUEUED, died))
        .values(
            state=RUNNING,
            claimed_by=worker,
            claim_expires_at=claim_end,
            attempts=MergeJobRecord.attempts + 1,
            started_at=sa.func.coalesce(MergeJobRecord.started_at, sa.literal(now, type_=_MOMENT)),
            progress=0.0,
            activity="",
        ),
    )
    if claimed != 1:
        return None
    return session.scalar(whole_jobs().where(MergeJobRecord.id == waiting))


_MOMENT = MergeJobRecord.__table__.c.started_at.type


def report(
    session: Session,
    job_id: int,
    worker: str,
    *,
    progress: float,
    activity: str,
    claim_end: datetime,
) -> bool:
    """Write how far a job is and keep the claim; False when it is no longer this worker's."""
    changed = change_rows(
        session,
        sa.update(MergeJobRecord)
        .where(*_is_held(job_id, worker), MergeJobRecord.cancel_requested.is_(False))
        .values(progress=progress, activity=activity, claim_expires_at=claim_end),
    )
    return changed == 1


def renew_claim(session: Session, job_id: int, worker: str, claim_end: datetime) -> None:
    """Put off the end of a claim, if the worker still holds it."""
    session.execute(
        sa.update(MergeJobRecord)
        .where(*_is_held(job_id, worker))
        .values(claim_expires_at=claim_end)
    )


def end_job(
    session: Session,
    job_id: int,
    worker: str,
    state: str,
    *,
    version_id: int | None = None,
    refusal: dict[str, object] | None = None,
) -> bool:
    """Take a job that this worker holds to its end; False when it holds it no longer."""
    held = sa.update(MergeJobRecord).where(*_is_held(job_id, worker))
    return change_rows(session, held.values(_ended(state, version_id, refusal))) == 1


def record_result(session: Session, job_id: int, version_id: int) -> None:
    """End a job in the transaction that publishes its result, even if its claim has run out."""
    job = sa.update(MergeJobRecord).where(MergeJobRecord.id == job_id)
    session.execute(job.values(_ended(FINISHED, version_id)))


def _ended(
    state: str, version_id: int | None, refusal: dict[str, object] | None = None
) -> dict[str, object]:
    return {
        "state": state,
        "ended_at": now_utc(),
        "claim_expires_at": None,
        "progress": 1.0 if state == FINISHED else MergeJobRecord.progress,
        "activity": "",
        "version_id": version_id,
        "refusal": refusal,
    }


def give_back(session: Session, job_id: int, worker: str) -> None:
    """Let another process take the job: this one stops."""
    session.execute(
        sa.update(MergeJobRecord)
        .where(*_is_held(job_id, worker))
        .values(
            state=QUEUED, claimed_by="", claim_expires_at=None, attempts=MergeJobRecord.attempts - 1
        )
    )


def postpone(session: Session, job_id: int, worker: str) -> None:
    """Leave the job until its claim runs out; nobody tries it earlier."""
    session.execute(
        sa.update(MergeJobRecord)
        .where(*_is_held(job_id, worker))
        .values(attempts=MergeJobRecord.attempts - 1, activity="waiting for the storage")
    )


def give_back_all(session: Session) -> None:
    """Let jobs of a killed server be taken at once; only while no other server is running."""
    session.execute(
        sa.update(MergeJobRecord)
        .where(MergeJobRecord.state == RUNNING)
        .values(claim_expires_at=now_utc())
    )


def request_cancel(session: Session, job_id: int) -> bool:
    """Cancel a waiting job at once, ask for the end of a running one; False when it is over.

    Both in one statement: a job may be taken, or given back, at the same moment.
    """
    waits = MergeJobRecord.state == QUEUED
    changed = change_rows(
        session,
        sa.update(MergeJobRecord)
        .where(MergeJobRecord.id == job_id, MergeJobRecord.state.in_(OPEN))
        .values(
            state=sa.case((waits, CANCELLED), else_=MergeJobRecord.state),
            ended_at=sa.case((waits, sa.literal(now_utc(), type_=_MOMENT)), else_=None),
            cancel_requested=sa.not_(waits),
        )
        .execution_options(synchronize_session=False),
    )
    return changed == 1


def fail_abandoned(session: Session, most_attempts: int, refusal: dict[str, object]) -> int:
    """End jobs that took every process down that tried them; return how many."""
    return change_rows(
        session,
        sa.update(MergeJobRecord)
        .where(
            MergeJobRecord.state == RUNNING,
            MergeJobRecord.claim_expires_at < now_utc(),
            MergeJobRecord.attempts >= most_attempts,
        )
        .values(state=FAILED, ended_at=now_utc(), claim_expires_at=None, refusal=refusal),
    )


def versions_of_digests(
    session: Session, digests: Sequence[str], visible: sa.ColumnElement[bool]
) -> dict[str, list[ModelVersionRecord]]:
    """Return the versions that have one of these digests and may be seen, oldest first."""
    groups = defaultdict(list)
    versions = session.scalars(
        whole_versions()
        .where(ModelVersionRecord.digest.in_(digests), visible)
        .order_by(ModelVersionRecord.id)
    )
    for version in versions:
        groups[version.digest].append(version)
    return groups


def _is_of_rounds(of_rounds: bool) -> sa.ColumnElement[bool]:
    return MergeJobRecord.round_id.is_not(None) if of_rounds else MergeJobRecord.round_id.is_(None)


def _died(now: datetime | sa.BindParameter[datetime]) -> sa.ColumnElement[bool]:
    return sa.and_(MergeJobRecord.state == RUNNING, MergeJobRecord.claim_expires_at < now)


def _is_held(job_id: int, worker: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        MergeJobRecord.id == job_id,
        MergeJobRecord.state == RUNNING,
        MergeJobRecord.claimed_by == worker,
    )
