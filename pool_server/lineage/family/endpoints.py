"""The addresses of family trees."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic_core import to_json
from starlette.responses import Response

from pool_server.http.identity import SignedIn, needs
from pool_server.http.parameters import ModelName, Reference, SiteName
from pool_server.http.session import ReadingSession
from pool_server.lineage.family.service import Lineage, trace_digest, trace_lineage
from pool_server.registry.repository import bare_versions
from pool_server.registry.service import resolve_version
from pool_server.wire.models.models import LineageResponse
from pool_server.wire.names import Digest

router = APIRouter(tags=["lineage"], dependencies=[needs("models:read")])

WithRecipes = Annotated[
    bool,
    Query(description="Give the recipe of every node, not only the root's.", examples=[True]),
]


@router.get(
    "/models/{site}/{name}/versions/{reference}/lineage",
    summary="Show where a version comes from",
    response_model=LineageResponse,
)
def lineage(  # noqa: PLR0917 - FastAPI gives them by name
    caller: SignedIn,
    session: ReadingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    recipes: WithRecipes = False,
) -> Response:
    """Return all ancestors and descendants, and the recipe.

    Ancestors that the pool does not have appear by their digest alone. Nodes say whether they
    were withdrawn, or flagged because of what they hold.
    """
    version = resolve_version(session, caller, site, name, reference, versions=bare_versions)
    return _answer(
        trace_lineage(session, caller, version.digest, version_id=version.id, with_recipes=recipes)
    )


@router.get(
    "/lineage/{digest}",
    summary="Show where a file comes from",
    response_model=LineageResponse,
)
def lineage_of_digest(
    caller: SignedIn,
    session: ReadingSession,
    digest: Annotated[
        Digest, Path(description="SHA-256 of the file.", examples=["9f86d081884c7d65" * 4])
    ],
    recipes: WithRecipes = False,
) -> Response:
    """Return the family of a file by its digest: of one in the pool, or in a recipe only."""
    return _answer(trace_digest(session, caller, digest, with_recipes=recipes))


def _answer(lineage: Lineage) -> Response:
    return Response(to_json(lineage, inf_nan_mode="null"), media_type="application/json")
