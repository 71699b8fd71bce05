"""Model cards and privacy receipts of versions.

A card that nobody wrote is made from what the pool knows (`pool_server.models.default_card`).
"""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from sqlalchemy import select
from sqlalchemy.orm import Session

from pool_server.database.records import ModelVersionRecord, RecipeRecord
from pool_server.errors import RefusedError
from pool_server.evaluations import read_evaluations
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, Uploader, needs
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.models.default_card import front_matter, make_card, receipt_section
from pool_server.registry import repository as registry
from pool_server.registry.access import viewing_site
from pool_server.registry.responses import describe_version
from pool_server.registry.service import VersionToChange, VersionToName, lock_to_correct
from pool_server.registry.withdrawal_status import subject_of
from pool_server.signatures.statements import add_statement, require_resigned
from pool_server.wire import cards
from pool_server.wire.models import ModelVersionResponse

router = APIRouter(prefix="/models/{site}/{name}/versions/{reference}", tags=["models"])

MOST_EVALUATIONS = 100


@router.get("/card", summary="Read the card of a version", dependencies=[needs("models:read")])
def show_card(
    caller: SignedIn, session: ReadingSession, version: VersionToName
) -> cards.CardResponse:
    """Return what people should know of a version: Markdown with YAML in front.

    Where nobody wrote one, the pool makes it of labels, metrics, terms, lineage and evaluations.
    The front matter has the layout of Hugging Face model cards.
    """
    return describe_card(session, caller, version)


@router.put("/card", summary="Write the card of a version", dependencies=[needs("models:write")])
def replace_card(
    caller: Uploader, session: WritingSession, version: VersionToChange, request: cards.CardRequest
) -> cards.CardResponse:
    """Replace the card. An empty one restores the card that the pool generates.

    A signed version needs a new statement, because its signature covers the card.
    """
    caller.require_upload_to(version.model.site.name)
    require_card(request.text)
    lock_to_correct(session, version, "card")
    if request.text != read_text(session, version):
        require_resigned(version, request.statement)
        version.card = request.text
        session.flush()
        session.expire(version)
        version = registry.get_version(session, version.id)
        if request.statement is not None:
            add_statement(caller, session, version, request.statement)
        record_act(
            session,
            caller,
            "card.write",
            subject_of(version),
            digest=version.digest,
            characters=len(request.text),
        )
        session.flush()
        session.expire(version)
        version = registry.get_version(session, version.id)
    return describe_card(session, caller, version)


@router.get(
    "/receipts", summary="Show privacy receipts of a version", dependencies=[needs("models:read")]
)
def show_receipts(version: VersionToName) -> cards.ReceiptPage:
    """Return what attacks by the model's own site have found in what it sent."""
    return cards.ReceiptPage(items=read_receipts(version))


@router.put("/receipts", summary="Keep a privacy receipt", dependencies=[needs("models:write")])
def write_receipt(
    caller: Uploader,
    session: WritingSession,
    version: VersionToChange,
    receipt: cards.PrivacyReceipt,
) -> cards.ReceiptPage:
    """Keep a receipt with a version, in place of the one of the same mode.

    The pool shows it as measured by the site itself.
    """
    caller.require_upload_to(version.model.site.name)
    if receipt.mode == "sub-model" and receipt.artifact_digest != version.digest:
        raise RefusedError(
            f"the receipt is of the file sha256:{receipt.artifact_digest}, "
            f"the version has sha256:{version.digest}",
            code="receipt_refused",
        )
    kept = {each.mode: each for each in read_receipts(version)} | {receipt.mode: receipt}
    version.receipts = {mode: each.model_dump(mode="json") for mode, each in kept.items()}
    subject = subject_of(version)
    record_act(session, caller, "receipt.write", subject, digest=version.digest, mode=receipt.mode)
    session.flush()
    return cards.ReceiptPage(items=read_receipts(version))


def describe_card(
    session: Session, caller: Caller, version: ModelVersionRecord
) -> cards.CardResponse:
    """Return a version's card: as it was written, or made of what the pool knows.

    A card that was written without front matter gets that of the record, so that other tools
    find what they look for in every card.
    """
    described = describe_version(session, version.id, viewing_site(caller))
    source = text = read_text(session, version)
    parents = _name_parents(session, caller, described)
    recipe = session.get(RecipeRecord, version.id)
    merge = None if recipe is None else _describe_merge(recipe.document, parents)
    evaluations = read_evaluations(session, caller, version, limit=MOST_EVALUATIONS).items
    if not text:
        text = make_card(described, parents, evaluations, merge)
    text += receipt_section(read_receipts(version))
    card = cards.read_card(text)
    if not card.front_matter:
        front = front_matter(described, parents, evaluations, merge)
        text = cards.write_card(front, f"\n{card.body.lstrip()}")
        card = cards.read_card(text)
    return cards.CardResponse(
        address=described.address,
        written=version.has_card,
        text=text,
        source=source,
        front_matter=dict(card.front_matter),
    )


def read_receipts(version: ModelVersionRecord) -> list[cards.PrivacyReceipt]:
    """Return the privacy receipts of a version, in the order of the modes."""
    kept = version.receipts or {}
    return [cards.PrivacyReceipt.model_validate(kept[mode]) for mode in cards.MODES if mode in kept]


def require_card(text: str) -> None:
    """Raise `RefusedError` unless the front matter of a card can be read, if it has any."""
    try:
        cards.read_card(text)
    except ValueError as error:
        raise RefusedError(str(error), code="card_refused") from error


def read_text(session: Session, version: ModelVersionRecord) -> str:
    """Return the card as it was written; empty where none was."""
    if not version.has_card:
        return ""
    text = session.scalar(
        select(ModelVersionRecord.card).where(ModelVersionRecord.id == version.id)
    )
    return text or ""


def _describe_merge(recipe: Mapping[str, Any], parents: Mapping[str, str]) -> dict[str, Any]:
    """Return method, options and weighted inputs of a merge, named as the caller may know them."""
    options = {key: value for key, value in recipe["options"].items() if value is not None}
    inputs = [
        {"model": parents[each["digest"]], "weight": each["weight"]}
        for each in recipe["inputs"]
        if each["digest"] in parents
    ]
    return {"method": recipe["method"]["name"], "options": options, "inputs": inputs}


def _name_parents(
    session: Session, caller: Caller, version: ModelVersionResponse
) -> dict[str, str]:
    """Return what to call each parent: an address that the caller may see, else the digest."""
    addresses = registry.visible_addresses(session, caller, version.parent_digests)
    return {digest: addresses.get(digest, f"sha256:{digest}") for digest in version.parent_digests}
