"""Routes of uploads, and the parts of files: where they go, and how the server writes them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Header, Path, Query, Request, Response

from pool_server.database.records import UploadRecord
from pool_server.http import audit, parameters
from pool_server.http.identity import Uploader, needs
from pool_server.http.session import Parts, ReadingSession, ServerParts
from pool_server.jobs.check_slots import Checks
from pool_server.people.sites import get_site
from pool_server.storage import PartWriter
from pool_server.storage.contract import PartPlan
from pool_server.transfers import receiving, repository
from pool_server.transfers.versions import announce_version, complete_version
from pool_server.wire import uploads
from pool_server.wire.names import DIGEST_PATTERN, Name

router = APIRouter(prefix="/uploads", tags=["uploads"], dependencies=[needs("models:write")])

SHA256_DIGITS = 64
# The network's small pieces are handed on in larger ones: each change of thread costs.
BATCH_BYTES = 256 * 1024

UploadId = Annotated[
    str, Path(pattern="^[0-9a-f]{32}$", description="Identifier from the announcement.")
]


@router.post("", status_code=201, summary="Announce a file")
def announce(
    caller: Uploader, parts: Parts, request: uploads.UploadRequest, response: Response
) -> uploads.UploadResponse:
    """Begin an upload; the answer lists the parts, and where to send each.

    Announcing the same file for the same model again gives the upload that is under way, so that
    an interrupted client goes on. When the pool has the file already, nothing need be sent: the
    state is `complete` at once.
    """
    upload, is_new = announce_version(parts, caller, request)
    if not is_new:
        response.status_code = 200
    return receiving.describe_upload(parts, upload)


@router.get("", summary="List uploads under way")
def list_uploads(
    caller: Uploader,
    session: ReadingSession,
    site: Annotated[
        Name | None,
        Query(description="Only to this site; for others than one's own ask as their admin."),
    ] = None,
) -> uploads.OpenUploadList:
    """Return the uploads to the caller's site, newest first; pool admins see all.

    The number under way is limited for each site; abandoned ones can be aborted.
    """
    if site is not None:
        caller.require_upload_to(site)
        get_site(session, site)
    elif not caller.is_admin:
        site = caller.site
    return uploads.OpenUploadList(
        items=[
            parameters.describe(
                uploads.OpenUpload,
                upload,
                upload_id=upload.id,
                site=upload.site.name,
                name=upload.model_name,
                created_by=created_by,
            )
            for upload, created_by in repository.list_open(session, site)
        ]
    )


@router.get("/{upload_id}", summary="Show the progress of an upload")
def show(caller: Uploader, parts: Parts, upload_id: UploadId) -> uploads.UploadResponse:
    """Return the state of an upload, and which parts have arrived."""
    with parts.database.read() as session:
        upload = receiving.get_upload(session, caller, upload_id)
    return receiving.describe_upload(parts, upload)


@router.post("/{upload_id}/parts", summary="Request the addresses of parts")
def address(
    caller: Uploader, parts: Parts, upload_id: UploadId, request: uploads.PartAddressesRequest
) -> uploads.PartAddressList:
    """Return the addresses of some parts: at this pool, or at its storage.

    Those of the storage are good for some minutes, and only for the part's size and checksum.
    They work for anyone: send no token along, and keep them secret.
    """
    upload = receiving.get_receiving_upload(parts, caller, upload_id)
    plan = PartPlan(upload.size_bytes, upload.part_bytes)
    find = _address_in_storage if parts.storage.takes_parts else _address_at_server
    return uploads.PartAddressList(
        items=[find(parts, upload, part, plan.size_of(part.number)) for part in request.parts]
    )


@router.put(
    "/{upload_id}/parts/{number}",
    status_code=204,
    summary="Send a part",
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "The bytes of the part, nothing else.",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    },
)
async def send_part(  # noqa: PLR0917 - FastAPI gives them by name
    request: Request,
    caller: Uploader,
    parts: Parts,
    upload_id: UploadId,
    number: Annotated[int, Path(ge=1, le=999_999, description="Counted from 1.")],
    x_part_sha256: Annotated[
        str | None,
        Header(
            pattern=DIGEST_PATTERN,
            description="SHA-256 of the part; a part damaged on the way is refused at once.",
        ),
    ] = None,
) -> None:
    """Store one part. Sending it again replaces it; parts may come in any order and at once.

    Where the pool's storage takes the parts, too, they come there faster by the addresses that
    `POST .../parts` returns.
    """
    writer = await anyio.to_thread.run_sync(receiving.open_part, parts, caller, upload_id, number)
    await receive_part(request.stream(), writer, x_part_sha256)


@router.post("/{upload_id}/complete", status_code=201, summary="Complete an upload")
async def complete(
    caller: Uploader, parts: Parts, checks: Checks, upload_id: UploadId
) -> uploads.UploadResponse:
    """Verify digest and format, then make the file a version.

    The answer comes when the version is there, or when it is refused; until then nothing of it
    can be seen. Asking again after a lost answer returns the same one.
    """

    def act() -> uploads.UploadResponse:
        upload = complete_version(parts, caller, upload_id)
        return receiving.describe_upload(parts, upload)

    return await receiving.check_in_turn(parts, checks, caller.site, upload_id, act)


@router.delete("/{upload_id}", status_code=204, summary="Abandon an upload")
def abort(caller: Uploader, parts: Parts, upload_id: UploadId) -> None:
    """Forget an upload and the parts that arrived. A version that it became stays."""
    with parts.database.write() as session:
        upload = receiving.get_upload(session, caller, upload_id, lock=True)
        if upload.state == repository.CHECKING:
            raise receiving.busy()
        if upload.state != repository.COMPLETE:
            subject = receiving.subject_of(upload)
            audit.record_act(session, caller, "upload.abort", subject, digest=upload.digest)
        session.delete(upload)
    receiving.discard_quietly(parts, upload)


def _address_in_storage(
    parts: ServerParts, upload: UploadRecord, part: uploads.OfferedPart, size_bytes: int
) -> uploads.PartAddressResponse:
    address = parts.storage.part_address(
        upload.storage_handle, part.number, size_bytes, part.checksum
    )
    return uploads.PartAddressResponse(
        number=part.number,
        url=address.url,
        headers=dict(address.headers),
        expires_at=address.expires_at,
    )


def _address_at_server(
    _parts: ServerParts, upload: UploadRecord, part: uploads.OfferedPart, size_bytes: int
) -> uploads.PartAddressResponse:
    headers = {"Content-Length": str(size_bytes)}
    if part.checksum is not None and len(part.checksum) == SHA256_DIGITS:
        headers["X-Part-SHA256"] = part.checksum
    return uploads.PartAddressResponse(
        number=part.number, url=f"/api/v1/uploads/{upload.id}/parts/{part.number}", headers=headers
    )


async def receive_part(
    pieces: AsyncIterator[bytes], writer: PartWriter, digest: str | None
) -> None:
    """Write all of `pieces` and make the part count.

    While a thread hashes and writes one batch, the next is received; memory stays at two
    batches. Failures leave no part behind, even if the client vanishes.
    """
    writing: asyncio.Task[None] | None = None
    try:
        async for batch in in_batches(pieces):
            if writing is not None:
                await asyncio.shield(writing)
            writing = asyncio.create_task(asyncio.to_thread(writer.write, batch))
        if writing is not None:
            await asyncio.shield(writing)
        writing = asyncio.create_task(asyncio.to_thread(writer.finish, digest))
        await asyncio.shield(writing)
    finally:
        # A thread cannot be stopped; its file is closed only after it has ended.
        if writing is not None and not writing.done():
            with suppress(Exception):
                await asyncio.shield(writing)
        await asyncio.to_thread(writer.discard)


async def in_batches(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join small pieces to batches of about `BATCH_BYTES`."""
    waiting: list[bytes] = []
    waiting_bytes = 0
    async for piece in pieces:
        waiting.append(piece)
        waiting_bytes += len(piece)
        if waiting_bytes >= BATCH_BYTES:
            yield b"".join(waiting)
            waiting, waiting_bytes = [], 0
    if waiting_bytes:
        yield b"".join(waiting)
