"""Telling clients where the parts of an upload go."""

from __future__ import annotations

from pool_server.database.records import UploadRecord
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.transfers.plan import PartPlan
from pool_server.transfers.service import get_receiving_upload
from pool_server.wire.transfers.parts import (
    OfferedPart,
    PartAddressesRequest,
    PartAddressList,
    PartAddressResponse,
)

SHA256_DIGITS = 64


def address_parts(
    parts: ServerParts, caller: Caller, upload_id: str, request: PartAddressesRequest
) -> PartAddressList:
    """Return where some parts of an upload go."""
    upload = get_receiving_upload(parts, caller, upload_id)
    plan = PartPlan(upload.size_bytes, upload.part_bytes)
    find = _address_in_storage if parts.storage.takes_parts else _address_at_server
    return PartAddressList(
        items=[find(parts, upload, part, plan.size_of(part.number)) for part in request.parts]
    )


def _address_in_storage(
    parts: ServerParts, upload: UploadRecord, part: OfferedPart, size_bytes: int
) -> PartAddressResponse:
    address = parts.storage.part_address(
        upload.storage_handle, part.number, size_bytes, part.checksum
    )
    return PartAddressResponse(
        number=part.number,
        url=address.url,
        headers=dict(address.headers),
        expires_at=address.expires_at,
    )


def _address_at_server(
    _parts: ServerParts, upload: UploadRecord, part: OfferedPart, size_bytes: int
) -> PartAddressResponse:
    headers = {"Content-Length": str(size_bytes)}
    if part.checksum is not None and len(part.checksum) == SHA256_DIGITS:
        headers["X-Part-SHA256"] = part.checksum
    return PartAddressResponse(
        number=part.number, url=f"/api/v1/uploads/{upload.id}/parts/{part.number}", headers=headers
    )
