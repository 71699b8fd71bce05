"""The address of the vocabulary."""

from __future__ import annotations

from fastapi import APIRouter

from pool_server.http.identity import SignedIn, needs
from pool_server.http.session import ReadingSession
from pool_server.registry.repository import list_label_keys
from pool_server.wire.models.labels import VOCABULARY, VocabularyResponse

router = APIRouter(tags=["models"], dependencies=[needs()])


@router.get("/vocabulary", summary="Tell which labels and terms there are")
def vocabulary(caller: SignedIn, session: ReadingSession) -> VocabularyResponse:
    """Return the labels that mean the same at every site, and the terms of use.

    A label of the core vocabulary must have a value that it can have; any other key is free.
    Terms are the codes of the Data Use Ontology of GA4GH.
    """
    return VOCABULARY.model_copy(update={"keys_in_use": list_label_keys(session, caller)})
