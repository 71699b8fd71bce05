"""How many bytes a site's files may take together.

A file counts once for a site, under however many names the site has it, and whether or not
another site has it, too. Uploads under way count from their announcement on.
"""

from __future__ import annotations

from sqlalchemy import Select, Subquery, func, select, union
from sqlalchemy.orm import Session

from pool_server.database.records import (
    ModelRecord,
    ModelVersionRecord,
    RoundContributionRecord,
    RoundRecord,
    SecureFileRecord,
    SiteRecord,
    UploadRecord,
)
from pool_server.errors import ConflictError

UNDER_WAY = ("receiving", "checking")


def files_of_sites() -> Subquery:
    """Return (site_id, digest, size_bytes) of every file that a site has in the pool, once."""
    published = (
        select(ModelRecord.site_id, ModelVersionRecord.digest, ModelVersionRecord.size_bytes)
        .join(ModelVersionRecord.model)
        .where(ModelVersionRecord.state != "deleted")
    )
    contributed = select(
        RoundContributionRecord.site_id,
        RoundContributionRecord.digest,
        RoundContributionRecord.size_bytes,
    )
    secure = select(SecureFileRecord.site_id, SecureFileRecord.digest, SecureFileRecord.size_bytes)
    states = (
        select(ModelRecord.site_id, RoundRecord.state_digest, RoundRecord.state_size_bytes)
        .join(RoundRecord.result_version)
        .join(ModelVersionRecord.model)
        .where(RoundRecord.state_digest.is_not(None))
    )
    return union(published, contributed, states, secure).subquery("files")


def files_under_way() -> Subquery:
    """Return (site_id, digest, size_bytes) of every file that is being uploaded, once."""
    return (
        select(UploadRecord.site_id, UploadRecord.digest, UploadRecord.size_bytes)
        .where(UploadRecord.state.in_(UNDER_WAY))
        .distinct()
        .subquery("under_way")
    )


def require_room(
    session: Session, site_id: int, digest: str, size_bytes: int, *, announced: bool
) -> None:
    """Raise unless a site may have one more file; within the transaction that writes it.

    Parameters
    ----------
    announced : bool
        True where the file is only announced: what else is under way then counts, too. Once it
        is here, whoever is first gets the room.
    """
    if session.scalar(select(SiteRecord.quota_bytes).where(SiteRecord.id == site_id)) is None:
        return
    # Of several files that arrive at once, each counts those before it.
    site = session.scalars(
        select(SiteRecord)
        .where(SiteRecord.id == site_id)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    ).one()
    if site.quota_bytes is None:
        return
    used = _sum(session, files_of_sites(), site_id, digest)
    coming = _sum(session, files_under_way(), site_id, digest) if announced else 0
    if used + coming + size_bytes > site.quota_bytes:
        on_the_way = f" and {coming:,} on their way" if coming else ""
        raise ConflictError(
            f"this file has {size_bytes:,} bytes; site {site.name!r} has {used:,}{on_the_way}, and "
            f"may have {site.quota_bytes:,}",
            code="quota_exceeded",
            hint="Delete versions that nobody needs, or ask the pool's admin for a larger quota.",
            details={
                "size_bytes": size_bytes,
                "used_bytes": used,
                "uploading_bytes": coming,
                "quota_bytes": site.quota_bytes,
            },
        )


def _sum(session: Session, files: Subquery, site_id: int, other_than: str) -> int:
    total: Select[int] = select(func.coalesce(func.sum(files.c.size_bytes), 0)).where(
        files.c.site_id == site_id, files.c.digest != other_than
    )
    return int(session.scalar(total) or 0)
