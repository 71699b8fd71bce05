"""Sessions of the secure sum in the database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Select, delete, func, select, update
from sqlalchemy.orm import Session, joinedload, selectinload

from pool_server.database.records import (
    RoundRecord,
    SecureFileRecord,
    SecureParticipantRecord,
    SecurePostRecord,
    SecureSessionRecord,
    UploadRecord,
)


def whole_sessions() -> Select[SecureSessionRecord]:
    """Select sessions with all that a response needs."""
    return select(SecureSessionRecord).options(
        joinedload(SecureSessionRecord.round),
        selectinload(SecureSessionRecord.participants).joinedload(SecureParticipantRecord.site),
    )


def find_session(session: Session, key: str) -> SecureSessionRecord | None:
    return session.scalar(whole_sessions().where(SecureSessionRecord.key == key))


def lock_session(session: Session, session_id: int) -> None:
    """Keep others from adding to a session until the transaction ends.

    So messages become visible in the order of their numbers, and whoever asks for those after
    the last one that they know misses none.
    """
    session.execute(
        select(SecureSessionRecord.id).where(SecureSessionRecord.id == session_id).with_for_update()
    )


def find_sessions(
    session: Session,
    *,
    site_id: int | None,
    round_key: str | None,
    before_id: int | None,
    limit: int,
) -> Sequence[SecureSessionRecord]:
    """Return sessions newest first, one more than `limit` where there are more."""
    query = whole_sessions()
    if site_id is not None:
        taken_part = select(SecureParticipantRecord.session_id).where(
            SecureParticipantRecord.site_id == site_id
        )
        query = query.where(SecureSessionRecord.id.in_(taken_part))
    if round_key is not None:
        rounds = select(RoundRecord.id).where(RoundRecord.key == round_key)
        query = query.where(SecureSessionRecord.round_id.in_(rounds))
    if before_id is not None:
        query = query.where(SecureSessionRecord.id < before_id)
    return session.scalars(query.order_by(SecureSessionRecord.id.desc()).limit(limit + 1)).all()


def count_unended(session: Session, site_id: int, now: datetime) -> int:
    """Count the sessions that a site opened and that are not over."""
    query = select(func.count()).where(
        SecureSessionRecord.site_id == site_id, SecureSessionRecord.ends_at > now
    )
    return session.scalar(query) or 0


def find_post(
    session: Session, session_id: int, phase: str, site_id: int
) -> SecurePostRecord | None:
    return session.scalar(
        select(SecurePostRecord)
        .options(joinedload(SecurePostRecord.site))
        .where(
            SecurePostRecord.session_id == session_id,
            SecurePostRecord.phase == phase,
            SecurePostRecord.site_id == site_id,
        )
    )


def count_posts(session: Session, session_id: int, site_id: int) -> int:
    query = select(func.count()).where(
        SecurePostRecord.session_id == session_id, SecurePostRecord.site_id == site_id
    )
    return session.scalar(query) or 0


def find_posts(
    session: Session, session_id: int, after_id: int, limit: int
) -> Sequence[SecurePostRecord]:
    """Return messages in the order of their arrival."""
    return session.scalars(
        select(SecurePostRecord)
        .options(joinedload(SecurePostRecord.site))
        .where(SecurePostRecord.session_id == session_id, SecurePostRecord.id > after_id)
        .order_by(SecurePostRecord.id)
        .limit(limit)
    ).all()


def find_file(session: Session, session_id: int, digest: str) -> SecureFileRecord | None:
    """Return a file of a session, whoever sent it."""
    return session.scalars(
        select(SecureFileRecord)
        .where(SecureFileRecord.session_id == session_id, SecureFileRecord.digest == digest)
        .limit(1)
    ).first()


def count_files(session: Session, session_id: int, site_id: int) -> int:
    query = select(func.count()).where(
        SecureFileRecord.session_id == session_id, SecureFileRecord.site_id == site_id
    )
    return session.scalar(query) or 0


def delete_ended(session: Session, before: datetime) -> set[str]:
    """Delete the sessions that ended before a moment; return the digests of their files."""
    ended = list(
        session.scalars(select(SecureSessionRecord.id).where(SecureSessionRecord.ends_at < before))
    )
    of_files = SecureFileRecord.session_id.in_(ended)
    digests = set(session.scalars(select(SecureFileRecord.digest).where(of_files)))
    session.execute(
        update(UploadRecord)
        .where(UploadRecord.secure_session_id.in_(ended))
        .values(secure_session_id=None)
    )
    session.execute(delete(SecureFileRecord).where(of_files))
    session.execute(delete(SecurePostRecord).where(SecurePostRecord.session_id.in_(ended)))
    participants = SecureParticipantRecord.session_id.in_(ended)
    session.execute(delete(SecureParticipantRecord).where(participants))
    session.execute(delete(SecureSessionRecord).where(SecureSessionRecord.id.in_(ended)))
    return digests
