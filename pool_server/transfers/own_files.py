"""Files that the server itself made, brought in by the same steps as those of clients."""

from __future__ import annotations

from pathlib import Path

from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.transfers.service import get_upload
from pool_server.wire.transfers.uploads import UploadResponse

CHUNK_BYTES = 1024 * 1024


def store_parts(parts: ServerParts, caller: Caller, upload: UploadResponse, file: Path) -> None:
    """Put the parts of an announced file that are still missing into the storage."""
    with parts.database.read() as session:
        handle = get_upload(session, caller, upload.upload_id).storage_handle
    with file.open("rb") as source:
        for part in upload.parts:
            if part.received:
                continue
            writer = parts.storage.open_part(handle, part.number, part.size_bytes)
            try:
                source.seek(part.offset)
                left = part.size_bytes
                while left > 0:
                    chunk = source.read(min(CHUNK_BYTES, left))
                    writer.write(chunk)
                    left -= len(chunk)
                writer.finish()
            finally:
                writer.discard()
