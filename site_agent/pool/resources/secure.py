"""The board of the secure sum in a pool: sessions, messages, files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from aggregators.whole_file import sync_folder
from pool_server.wire.names import DIGEST_PATTERN
from pool_server.wire.secure import (
    SecureFileRequest,
    SecurePostList,
    SecurePostRequest,
    SecurePostResponse,
    SecureSessionPage,
    SecureSessionRequest,
    SecureSessionResponse,
    SecureSessionSummary,
)
from site_agent.errors import DigestMismatchError, PoolRefusedRequestError
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request
from site_agent.pool.transfers.content_receiving import ContentReceiver, RemoteFile
from site_agent.pool.transfers.transfer import UploadPlace, hash_file, send_upload
from site_agent.runs.progress import Progress, no_progress

_PATH = "/api/v1/secure/sessions"


class SecureSessions:
    """Sessions of the secure sum; `site_agent.secure` does what labs and servers do."""

    def __init__(self, connection: PoolConnection) -> None:
        self._connection = connection

    def open(
        self,
        descriptor: str,
        sites: Sequence[str],
        ends_at: datetime,
        round_id: str | None = None,
    ) -> SecureSessionResponse:
        """Open a session, or return the one with this descriptor.

        Raises
        ------
        ConflictError
            It is there with other sites, or for another round.
        """
        request = build_request(
            SecureSessionRequest,
            descriptor=descriptor,
            sites=[*sites],
            ends_at=ends_at,
            round_id=round_id,
        )
        return self._connection.post(_PATH, SecureSessionResponse, request, repeatable=True)

    def list(self, round_id: str = "") -> Iterator[SecureSessionSummary]:
        """Yield the sessions that the site takes part in, newest first; of one round if given."""
        return self._connection.pages(
            _PATH, SecureSessionPage, {"round": round_id} if round_id else None
        )

    def get(self, session: str) -> SecureSessionResponse:
        """Return one session."""
        return self._connection.get(_path(session), SecureSessionResponse)

    def post(self, session: str, phase: str, sender: str, envelope: str) -> SecurePostResponse:
        """Post a message; the same one again is no error.

        Raises
        ------
        ConflictError
            The sender has posted something else in this phase.
        """
        request = build_request(SecurePostRequest, sender=sender, phase=phase, envelope=envelope)
        return self._connection.post(
            f"{_path(session)}/posts", SecurePostResponse, request, repeatable=True
        )

    def posts(self, session: str, after: int = 0) -> Iterator[SecurePostResponse]:
        """Yield the messages after a number, in the order of their arrival."""
        while True:
            page = self._connection.get(f"{_path(session)}/posts", SecurePostList, {"after": after})
            yield from page.items
            if not page.more or not page.items:
                return
            after = page.items[-1].number

    def send_file(
        self, session: str, sender: str, path: Path, progress: Progress = no_progress
    ) -> str:
        """Send a file, going on where an earlier call stopped; return its SHA-256."""
        request = build_request(
            SecureFileRequest,
            site=sender,
            size_bytes=path.stat().st_size,
            digest=hash_file(path, progress, share=0.1),
        )
        place = UploadPlace(
            f"{_path(session)}/files", f"{_path(session)}/files/uploads/{{upload_id}}/complete"
        )
        send_upload(self._connection, path, place, request, progress)
        return request.digest

    def receive_file(
        self, session: str, digest: str, target: Path, progress: Progress = no_progress
    ) -> None:
        """Write a file to `target`, whole or not at all; an interrupted download is resumed.

        Raises
        ------
        DigestMismatchError
            The bytes are not those asked for; nothing is kept.
        NotFoundError
        """
        url = f"{_path(session)}/files/{_require_digest(digest)}"
        asked = self._connection.send("HEAD", url)
        remote = RemoteFile(
            f"file {digest[:16]}", url, digest, int(asked.headers.get("Content-Length", "0"))
        )
        part = target.with_name(f"{target.name}.{digest[:16]}.part")
        with part.open("a+b") as file:
            receiver = ContentReceiver(self._connection, remote, file, progress)
            receiver.resume()
            receiver.receive()
            os.fsync(file.fileno())
        if receiver.digest != digest:
            part.unlink()
            raise DigestMismatchError(
                f"the pool gave a file with SHA-256 {receiver.digest}, expected {digest}; nothing "
                "was kept"
            )
        part.replace(target)
        sync_folder(target.parent)


def _path(session: str) -> str:
    return f"{_PATH}/{_require_digest(session)}"


def _require_digest(text: str) -> str:
    if not re.fullmatch(DIGEST_PATTERN, text):
        raise PoolRefusedRequestError(
            f"{text!r} is not a SHA-256", hint="poolctl secure status lists your sessions"
        )
    return text
