"""The address of the vocabulary."""

from __future__ import annotations

from fastapi import APIRouter

from pool_server.http.identity import SignedIn
from pool_server.http.scopes import needs
from pool_server.wire.models.labels import VOCABULARY, VocabularyResponse

router = APIRouter(tags=["models"], dependencies=[needs()])


@router.get("/vocabulary", summary="Tell which labels and terms there are")
def vocabulary(_caller: SignedIn) -> VocabularyResponse:
    """Return the labels that mean the same at every site, and the terms of use.

    A label of the core vocabulary must have a value that it can have; any other key is free.
    Terms are the codes of the Data Use Ontology of GA4GH.
    """
    return VOCABULARY
