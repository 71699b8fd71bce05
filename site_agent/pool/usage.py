"""Uses of a site's models by other sites."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient

_EXPORTED = "versions.exported"
_KINDS = ("version.downloaded", "version.merged", "version.handed-on", _EXPORTED)


@dataclass(frozen=True)
class ModelUse:
    """One use of a version by another site."""

    version: str
    use: str
    """``downloaded``, ``merged``, ``handed-on`` or ``exported``."""
    by: str
    result: str
    """The result's address or digest, or ``""``."""
    at: datetime


def list_uses(pool: PoolClient, address: str) -> list[ModelUse]:
    """Return the uses of a model or version of one's own site, newest first."""
    where = pool.address(address)
    prefix = f"pool://{where.site}/{where.name}@"
    pool.models.sharing(where)  # refuses an unknown model
    version = pool.version(where).address if where.reference else ""
    site = "" if pool.whoami().site == where.site else where.site
    uses = [
        ModelUse(
            version=used,
            use=event.kind.partition(".")[2],
            by=event.subject if event.kind == _EXPORTED else event.details["by"],
            result=event.details.get("into") or event.details.get("as") or "",
            at=event.at,
        )
        for kind in _KINDS
        for event in pool.events.list(kind=kind, site=site)
        for used in event.details.get("addresses", [event.subject])
        if used == version or (not version and used.startswith(prefix))
    ]
    return sorted(uses, key=lambda use: use.at, reverse=True)
