"""What sites take up, and who uses it: a few queries, however many sites there are."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Subquery, func, or_, select, true
from sqlalchemy.orm import Session

from pool_server.database.records import (
    ModelRecord,
    ModelVersionRecord,
    SiteRecord,
    TokenRecord,
    UserRecord,
    now_utc,
)
from pool_server.http.identity import Caller
from pool_server.people.sites.quotas import files_of_sites, files_under_way
from pool_server.wire.people.sites import SiteUsage, UsageResponse


def tell_usage(session: Session, caller: Caller) -> UsageResponse:
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
            ModelRecord.site_id,
            func.count(ModelVersionRecord.model_id.distinct()),
            func.count(),
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
            TokenRecord.site_id,
            func.count().filter(is_valid),
            func.max(TokenRecord.last_used_at),
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
