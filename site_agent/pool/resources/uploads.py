"""What a site asks of its pool about uploads under way; `PoolClient` has all of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from pool_server.wire.transfers.open_uploads import OpenUpload, OpenUploadPage
from site_agent.pool.connection import PoolConnection

_PATH = "/api/v1/uploads"


class PoolUploads(ABC):
    """The part of `PoolClient` that is about uploads that are not complete."""

    @property
    @abstractmethod
    def _connection(self) -> PoolConnection: ...

    def open_uploads(self, site: str = "", *, page_size: int = 100) -> Iterator[OpenUpload]:
        """Yield what is on its way to one's own site, newest first; all for admins of the pool.

        Parameters
        ----------
        site : str
            Only what is on its way to this one.
        """
        parameters: dict[str, Any] = {"limit": page_size} | ({"site": site} if site else {})
        while True:
            page = self._connection.get(_PATH, OpenUploadPage, parameters)
            yield from page.items
            if not page.next_cursor:
                return
            parameters["cursor"] = page.next_cursor

    def abort_upload(self, upload_id: str) -> None:
        """End an upload; the parts that arrived are thrown away.

        Raises
        ------
        NotFoundError
            There is none of that identifier at one's own site.
        """
        self._connection.send("DELETE", f"{_PATH}/{upload_id}")
