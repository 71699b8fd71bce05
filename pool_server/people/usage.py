"""Usage and quotas of sites.

A file counts once for a site, regardless of the number of names it has there and of other sites
that have it. Messages and descriptors of secure sessions count as well. Uploads count from their
announcement on. Usage takes a constant number of queries.
"""

from typing import Any

from sqlalchemy import ColumnElement, Select, String, Subquery, cast, func, or_, select, true, union
from sqlalchemy.orm import Session

from pool_server.database.records import (
    ModelRecord,
    ModelVersionRecord,
    RoundContributionRecord,
    RoundRecord,
    SecureFileRecord,
    SecurePostRecord,
    SecureSessionRecord,
    SiteRecord,
    TokenRecord,
    UploadRecord,
    UserRecord,
    now_utc,
)
from pool_server.errors import ConflictError
from pool_server.http.identity import Caller
from pool_server.wire.people import SiteUsage, UsageResponse

UNDER_WAY = ("receiving", "checking")


def describe_usage(session: Session, caller: Caller) -> UsageResponse:
    """Return the usage of the caller's site, or of every site to an admin of the pool."""
    site_id = None if caller.is_admin else caller.site_id
    sites = session.scalars(
        select(SiteRecord).where(_is(SiteRecord.id, site_id)).order_by(SiteRecord.name)
    ).all()
    versions = _count_versions(session, site_id)
    tokens = _count_tokens(session, site_id)
    users = _count_users(session, site_id)
    stored = _sum_sizes(session, files_of_sites(), site_id)
    coming = _sum_sizes(session, files_under_way(), site_id)

    def describe(site: SiteRecord) -> SiteUsage:
        model_count, version_count = versions.get(site.id, (0, 0))
        token_count, last_used_at = tokens.get(site.id, (0, None))
        return SiteUsage(
            site=site.name,
            suspended=site.suspended_at is not None,
            models=model_count,
            versions=version_count,
            size_bytes=stored.get(site.id, 0),
            uploading_bytes=coming.get(site.id, 0),
            quota_bytes=site.quota_bytes,
            users=users.get(site.id, 0),
            tokens=token_count,
            last_used_at=last_used_at,
        )

    return UsageResponse(items=[describe(site) for site in sites])


def _is(column: Any, site_id: int | None) -> ColumnElement[bool]:
    condition: ColumnElement[bool] = true() if site_id is None else column == site_id
    return condition


def _count_versions(session: Session, site_id: int | None) -> dict[int, tuple[int, int]]:
    """Return the numbers of models and of versions, by site."""
    rows = session.execute(
        select(
            ModelRecord.site_id, func.count(ModelVersionRecord.model_id.distinct()), func.count()
        )
        .join(ModelVersionRecord.model)
        .where(_is(ModelRecord.site_id, site_id), ModelVersionRecord.state != "deleted")
        .group_by(ModelRecord.site_id)
    )
    return {site: (models, versions) for site, models, versions in rows}


def _count_tokens(session: Session, site_id: int | None) -> dict[int, tuple[int, Any]]:
    """Return the number of valid tokens and when one was last used, by site."""
    is_valid = TokenRecord.revoked_at.is_(None) & or_(
        TokenRecord.expires_at.is_(None), TokenRecord.expires_at > now_utc()
    )
    rows = session.execute(
        select(
            TokenRecord.site_id, func.count().filter(is_valid), func.max(TokenRecord.last_used_at)
        )
        .where(_is(TokenRecord.site_id, site_id))
        .group_by(TokenRecord.site_id)
    )
    return {site: (count, last_used_at) for site, count, last_used_at in rows}


def _count_users(session: Session, site_id: int | None) -> dict[int, int]:
    rows = session.execute(
        select(UserRecord.site_id, func.count())
        .where(_is(UserRecord.site_id, site_id), UserRecord.disabled_at.is_(None))
        .group_by(UserRecord.site_id)
    )
    return {site: int(count) for site, count in rows}


def _sum_sizes(session: Session, files: Subquery, site_id: int | None) -> dict[int, int]:
    rows = session.execute(
        select(files.c.site_id, func.sum(files.c.size_bytes))
        .where(_is(files.c.site_id, site_id))
        .group_by(files.c.site_id)
    )
    return {site: int(size_bytes) for site, size_bytes in rows}


def files_of_sites() -> Subquery:
    """Return (site_id, digest, size_bytes) of each file of a site in the pool, once."""
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
    # A session's key is its descriptor's digest; a message's number replaces the digest.
    number = cast(SecurePostRecord.id, String)
    posts = select(SecurePostRecord.site_id, number, func.length(SecurePostRecord.envelope))
    described = func.length(SecureSessionRecord.descriptor)
    sessions = select(SecureSessionRecord.site_id, SecureSessionRecord.key, described)
    return union(published, contributed, states, secure, posts, sessions).subquery("files")


def files_under_way() -> Subquery:
    """Return (site_id, digest, size_bytes) of every file that is being uploaded, once."""
    return (
        select(UploadRecord.site_id, UploadRecord.digest, UploadRecord.size_bytes)
        .where(UploadRecord.state.in_(UNDER_WAY))
        .distinct()
        .subquery("under_way")
    )


def require_room(
    session: Session,
    site_id: int,
    digest: str,
    size_bytes: int,
    *,
    announced: bool,
    noun: str = "file",
) -> None:
    """Raise unless a site's quota has room for one more file; call it in the writing transaction.

    For an announced file, uploads under way count, too. For a received file they do not: the first
    upload to complete gets the room.
    """
    if session.scalar(select(SiteRecord.quota_bytes).where(SiteRecord.id == site_id)) is None:
        return
    # Locked, so that of several files arriving at once each counts those before it.
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
            f"this {noun} has {size_bytes:,} bytes; site {site.name!r} has {used:,}{on_the_way}, "
            f"and may have {site.quota_bytes:,}",
            code="quota_exceeded",
            hint="Delete versions that are no longer needed, or ask the pool's admin for a larger "
            "quota.",
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
