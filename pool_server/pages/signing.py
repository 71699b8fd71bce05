"""Unsigned versions of sites with a registered key, which other sites refuse to download."""

from collections.abc import Iterable

from pool_server.pages import showing
from pool_server.pages.pool_api import PoolApi
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.signatures import KeyList, KeyResponse


async def has_key(api: PoolApi, site: str) -> bool:
    """Return whether a site has a valid key: other sites then refuse its unsigned versions."""
    return any(key.revoked_as is None for key in await _own_keys(api, site))


async def find_unsigned(api: PoolApi, versions: Iterable[ModelVersionResponse]) -> set[str]:
    """Return the addresses of versions that other sites refuse until their site signs them."""
    candidates = [
        version
        for version in versions
        if version.signed_by is None and version.state in {"draft", "available"}
    ]
    keys = {site: await _own_keys(api, site) for site in {version.site for version in candidates}}
    return {
        version.address
        for version in candidates
        if any(key.revoked_as is None for key in keys[version.site])
        # Downloads of versions older than the first key only warn.
        and (
            version.state == "draft"
            or version.created_at >= min(key.created_at for key in keys[version.site])
        )
    }


async def _own_keys(api: PoolApi, site: str) -> list[KeyResponse]:
    """Return the keys that a site itself has registered."""
    keys = await showing.asking(api.get(KeyList, f"/sites/{site}/keys"))
    return [key for key in keys.items if key.origin is None] if keys else []
