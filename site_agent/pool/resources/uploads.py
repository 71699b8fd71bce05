"""Uploads that are not complete."""

from __future__ import annotations

from collections.abc import Iterator

from pool_server.wire.transfers.open_uploads import OpenUpload, OpenUploadPage
from site_agent.pool.connection import PoolConnection

_PATH = "/api/v1/uploads"


class Uploads:
    """Uploads that are not complete."""

    def __init__(self, connection: PoolConnection) -> None:
        self._connection = connection

    def list(self, site: str = "") -> Iterator[OpenUpload]:
        """Yield the open uploads to the site, newest first; to all sites for admins of the pool."""
        return self._connection.pages(_PATH, OpenUploadPage, {"site": site} if site else None)

    def abort(self, upload_id: str) -> None:
        """Abort an upload; the parts that arrived are deleted.

        Raises
        ------
        NotFoundError
            The site has no upload with this identifier.
        """
        self._connection.send("DELETE", f"{_PATH}/{upload_id}")
