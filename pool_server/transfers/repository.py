"""Uploads in the database."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import and_, delete, or_, select, true, update
from sqlalchemy.orm import Session, aliased, contains_eager

from pool_server.database.engine import change_rows, count_rows
from pool_server.database.records import OPEN_UPLOADS, SiteRecord, TokenRecord, UploadRecord

RECEIVING, CHECKING, COMPLETE, REFUSED, EXPIRED = (
    "receiving", "checking", "complete", "refused", "expired",
)  # fmt: skip


def find_upload(session: Session, upload_id: str, *, lock: bool = False) -> UploadRecord | None:
    """Return an upload; with `lock`, no other transaction changes it until this one ends.

    SQLite lets one transaction write at a time anyway.
    """
    query = (
        select(UploadRecord)
        .join(UploadRecord.site)
        .options(contains_eager(UploadRecord.site))
        .where(UploadRecord.id == upload_id)
    )
    if lock:
        query = query.with_for_update(of=UploadRecord).execution_options(populate_existing=True)
    return session.scalar(query)


def find_open(
    session: Session, site_id: int, model_name: str, digest: str, purpose: str = "version"
) -> UploadRecord | None:
    """Return the upload of this file to this place that is under way, and keep it as it is."""
    return session.scalar(
        select(UploadRecord)
        .join(UploadRecord.site)
        .options(contains_eager(UploadRecord.site))
        .where(
            UploadRecord.site_id == site_id,
            UploadRecord.purpose == purpose,
            UploadRecord.model_name == model_name,
            UploadRecord.digest == digest,
            UploadRecord.state.in_(OPEN_UPLOADS),
        )
        .with_for_update(of=UploadRecord)
    )


def list_open(session: Session, site: str | None) -> Sequence[tuple[UploadRecord, str]]:
    """Return uploads under way, to a `site` or to all, with their starters, newest first."""
    home = aliased(SiteRecord)
    rows = session.execute(
        select(UploadRecord, home.name + "/" + TokenRecord.name)
        .join(UploadRecord.site)
        .join(UploadRecord.token)
        .join(home, home.id == TokenRecord.site_id)
        .options(contains_eager(UploadRecord.site))
        .where(
            UploadRecord.state.in_(OPEN_UPLOADS),
            true() if site is None else SiteRecord.name == site,
        )
        .order_by(UploadRecord.created_at.desc(), UploadRecord.id.desc())
    )
    return [(upload, created_by) for upload, created_by in rows]


def count_open(session: Session, site: SiteRecord) -> int:
    return count_rows(
        session, UploadRecord.site_id == site.id, UploadRecord.state.in_(OPEN_UPLOADS)
    )


def claim(session: Session, upload_id: str, now: datetime, until: datetime) -> bool:
    """Take an upload for checking; False when another process has it."""
    changed = change_rows(
        session,
        update(UploadRecord)
        .where(
            UploadRecord.id == upload_id,
            or_(
                UploadRecord.state == RECEIVING,
                and_(UploadRecord.state == CHECKING, UploadRecord.claim_expires_at < now),
            ),
        )
        .values(state=CHECKING, claim_expires_at=until),
    )
    return changed == 1


def renew_claim(session: Session, upload_id: str, until: datetime) -> None:
    session.execute(
        update(UploadRecord)
        .where(UploadRecord.id == upload_id, UploadRecord.state == CHECKING)
        .values(claim_expires_at=until)
    )


def release(session: Session, upload_id: str) -> None:
    """Release a claimed upload, so that it can be completed again."""
    session.execute(
        update(UploadRecord)
        .where(UploadRecord.id == upload_id, UploadRecord.state == CHECKING)
        .values(state=RECEIVING, claim_expires_at=None)
    )


def release_all(session: Session) -> None:
    """Release the claims of a killed server; only while no other server is running."""
    session.execute(
        update(UploadRecord)
        .where(UploadRecord.state == CHECKING)
        .values(state=RECEIVING, claim_expires_at=None)
    )


def expire_stale(session: Session, now: datetime) -> Sequence[str]:
    """Mark uploads that received no part for too long; return their storage handles.

    Uploads that another process works on at this moment stay for the next time.
    """
    stale = session.scalars(
        select(UploadRecord)
        .where(
            UploadRecord.state.in_(OPEN_UPLOADS),
            UploadRecord.expires_at < now,
            or_(UploadRecord.claim_expires_at.is_(None), UploadRecord.claim_expires_at < now),
        )
        .with_for_update(skip_locked=True)
    ).all()
    for upload in stale:
        upload.state = EXPIRED
    return [upload.storage_handle for upload in stale]


def forget_closed(session: Session, before: datetime) -> None:
    session.execute(
        delete(UploadRecord).where(
            UploadRecord.state.not_in(OPEN_UPLOADS), UploadRecord.expires_at < before
        )
    )


def open_handles(session: Session) -> set[str]:
    return set(
        session.scalars(
            select(UploadRecord.storage_handle).where(UploadRecord.state.in_(OPEN_UPLOADS))
        ).all()
    )
