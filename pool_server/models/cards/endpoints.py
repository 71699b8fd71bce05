"""Addresses of cards."""

from __future__ import annotations

from fastapi import APIRouter

from pool_server.http.identity import SignedIn, Uploader, needs
from pool_server.http.parameters import ModelName, Reference, SiteName
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.models.cards import service
from pool_server.registry.service import resolve_version
from pool_server.wire.models.cards import CardRequest, CardResponse
from pool_server.wire.models.receipts import PrivacyReceipt, ReceiptPage

router = APIRouter(prefix="/models/{site}/{name}/versions/{reference}", tags=["models"])


@router.get("/card", summary="Read the card of a version", dependencies=[needs("models:read")])
def show_card(
    caller: SignedIn,
    session: ReadingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
) -> CardResponse:
    """Return what people should know of a version: Markdown with YAML in front.

    Where nobody wrote one, the pool makes it of labels, metrics, terms, lineage and evaluations.
    The front matter has the layout of Hugging Face model cards.
    """
    return service.show_card(
        session, caller, resolve_version(session, caller, site, name, reference)
    )


@router.put("/card", summary="Write the card of a version", dependencies=[needs("models:write")])
def write_card(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    request: CardRequest,
) -> CardResponse:
    """Replace the card. An empty one restores the card that the pool generates."""
    version = resolve_version(session, caller, site, name, reference)
    service.write_card_of(session, caller, version, request)
    session.expire(version)
    version = resolve_version(session, caller, site, name, str(version.number))
    return service.show_card(session, caller, version)


@router.get(
    "/receipts", summary="Show privacy receipts of a version", dependencies=[needs("models:read")]
)
def show_receipts(
    caller: SignedIn,
    session: ReadingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
) -> ReceiptPage:
    """Return what attacks by the model's own site have found in what it sent."""
    version = resolve_version(session, caller, site, name, reference)
    return ReceiptPage(items=service.read_receipts(session, version))


@router.put("/receipts", summary="Keep a privacy receipt", dependencies=[needs("models:write")])
def write_receipt(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    receipt: PrivacyReceipt,
) -> ReceiptPage:
    """Keep a receipt with a version, in place of the one of the same mode.

    The pool shows it as measured by the site itself.
    """
    version = resolve_version(session, caller, site, name, reference)
    service.write_receipt(session, caller, version, receipt)
    return ReceiptPage(items=service.read_receipts(session, version))
