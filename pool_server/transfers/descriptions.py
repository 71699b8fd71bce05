"""What an uploader says of a file: judged when it is announced, kept until it is a version."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from pool_server.database.records import SiteRecord, UploadRecord
from pool_server.errors import RecipeRefusedError, RefusedError
from pool_server.http.identity import Caller
from pool_server.models.descriptions.service import require_labels
from pool_server.models.registry.terms import require_terms
from pool_server.settings import PoolSettings
from pool_server.wire.models.cards import read_card
from pool_server.wire.transfers.uploads import UploadRequest, VersionDescription

if TYPE_CHECKING:
    from aggregators.methods import Recipe


def require_description(session: Session, site: SiteRecord, request: UploadRequest) -> None:
    """Raise unless labels, card and terms are such as a version of the pool can have.

    Raises
    ------
    TermsForbidError
        The terms of the inputs forbid the merge that the file is said to be.
    """
    require_wording(request)
    require_terms(
        session,
        request.terms,
        {} if request.recipe is None else name_parents(request.recipe, request.digest),
        site=site,
        use=request.intended_use,
    )


def require_wording(request: VersionDescription) -> None:
    """Raise unless labels and card can be read, and say what they may."""
    require_labels(request.labels)
    try:
        read_card(request.card)
    except ValueError as error:
        raise RefusedError(str(error), code="card_refused") from error


def name_parents(recipe: dict[str, Any], digest: str) -> dict[str, str]:
    """Return the digests of a recipe's inputs with what the recipe calls each."""
    return {
        each["digest"]: each.get("address") or each.get("file_name") or each["digest"][:12]
        for each in recipe["inputs"]
        if each["digest"] != digest
    }


def take_description(upload: UploadRecord, request: UploadRequest) -> None:
    """Keep with an upload what its uploader says now."""
    upload.file_name = request.file_name
    upload.description = request.description
    upload.labels = dict(request.labels)
    upload.metrics = dict(request.metrics)
    upload.card = request.card
    upload.terms = [each.model_dump() for each in request.terms]
    upload.recipe = request.recipe
    signed = request.statement
    upload.statement = None if signed is None else signed.model_dump(mode="json")


def arrives_as_draft(settings: PoolSettings, caller: Caller, *, on_request: bool = False) -> bool:
    """Tell whether a version becomes a draft: on request, and in a curated pool.

    There only the curators of the pool publish at once.
    """
    return on_request or (settings.curated and not caller.has_role("curator"))


def read_recipe(document: dict[str, Any], digest: str) -> Recipe:
    """Read a recipe and make sure that it makes the file of that digest.

    Raises
    ------
    RecipeRefusedError
        It is none, is that of another file, or leaves its output open.
    """
    # Loads numpy; a pool that nobody uploads to does without.
    from aggregators.errors import RecipeError
    from aggregators.methods import parse_recipe

    try:
        recipe = parse_recipe(json.dumps(document))
    except RecipeError as error:
        raise RecipeRefusedError(
            str(error), hint="Send the recipe that `poolctl merge` wrote, as it is."
        ) from error
    found = recipe.output.digest if recipe.output is not None else None
    if found != digest:
        raise RecipeRefusedError(
            f"the recipe makes a file with SHA-256 {found or '(left open)'}, "
            f"uploaded is one with {digest}",
            hint="Send the recipe that was written with this very file, or none.",
            details={"found": found, "expected": digest},
        )
    return recipe
