"""Lineage: the family tree of a model, walked by one recursive query in both directions.

The walk follows all recipes. Callers are shown only the recipes of models that they may see, and
the files reachable through those alone.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Annotated, Any, NamedTuple

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query
from pydantic_core import to_json
from sqlalchemy.orm import Session
from starlette.responses import Response

from pool_server.database.records import (
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    RecipeRecord,
    RoundContributionRecord,
    RoundRecord,
    SiteRecord,
    WithdrawalFlagRecord,
    WithdrawalRecord,
)
from pool_server.errors import MissingError
from pool_server.http.identity import Caller, SignedIn, needs
from pool_server.http.session import ReadingSession
from pool_server.registry.access import curates_pool, readable, readable_by
from pool_server.registry.repository import among, ancestors_of, descendants_of, visible_addresses
from pool_server.registry.service import VersionToName
from pool_server.wire.merges import list_named_digests, strip_names
from pool_server.wire.models import CONTRIBUTION, OPTIMISER_STATE, SECURE_SUM, LineageResponse
from pool_server.wire.names import Digest, ModelAddress

router = APIRouter(tags=["lineage"], dependencies=[needs("models:read")])

WithRecipes = Annotated[
    bool, Query(description="Return the recipe of every node, not only the root's.")
]

_NODE = {"kind": None, "withdrawn": None, "flagged": False, "recipe": None}
"""The fields of a `LineageNode` for a file known to the pool by its digest alone."""


@router.get(
    "/models/{site}/{name}/versions/{reference}/lineage",
    summary="Show where a version comes from",
    response_model=LineageResponse,
)
def read_lineage(
    caller: SignedIn, session: ReadingSession, version: VersionToName, recipes: WithRecipes = False
) -> Response:
    """Return all ancestors and descendants, and the recipe.

    Ancestors missing from the pool appear by their digest alone. Nodes say whether they were
    withdrawn, or flagged because they contain a withdrawn file.
    """
    return _respond(
        trace_lineage(session, caller, version.digest, version_id=version.id, with_recipes=recipes)
    )


@router.get(
    "/lineage/{digest}", summary="Show where a file comes from", response_model=LineageResponse
)
def read_lineage_of_digest(
    caller: SignedIn,
    session: ReadingSession,
    digest: Annotated[Digest, Path(description="SHA-256 of the file.")],
    recipes: WithRecipes = False,
) -> Response:
    """Return the family of a file in the pool, or named by a recipe in it."""
    if not knows(session, caller, digest):
        raise MissingError(
            f"the pool knows neither a model with digest {digest} nor one made from it",
            code="version_not_found",
            hint="The recipe file next to a merged file names its inputs.",
        )
    return _respond(trace_lineage(session, caller, digest, with_recipes=recipes))


def _respond(lineage: "Lineage") -> Response:
    return Response(to_json(lineage, inf_nan_mode="null"), media_type="application/json")


Lineage = dict[str, Any]


def trace_lineage(
    session: Session, caller: Caller, root: str, *, version_id: int = 0, with_recipes: bool = False
) -> Lineage:
    """Return the ancestors and descendants of a file along recipes that the caller may see.

    The result has the fields of a `LineageResponse`; building thousands of objects would take as
    long as the query. `with_recipes` returns the recipe of every node, not only of the root.
    Several sites may have published the root's file, each with its own signed recipe: the returned
    recipe is that of `version_id`, or else the oldest.
    """
    # Every step in both directions; those that only hidden versions state are dropped below.
    rows = session.connection().execute(_steps_statement(), {"digest": root}).all()
    above = [Step(*row[1:]) for row in rows if row.is_above]
    below = [Step(*row[1:]) for row in rows if not row.is_above]
    family = list(dict.fromkeys([root, *_ends(above), *_ends(below)]))
    shown = places_of(session, caller, family)
    shown_ids = {place.version_id for place in shown}
    above = [step for step in above if step.version_id in shown_ids]
    below = [step for step in below if step.version_id in shown_ids]
    # Files reached only through recipes that the caller cannot see are omitted.
    depths = {
        **_distances(root, ((step.parent, step.child) for step in below), sign=1),
        **_distances(root, ((step.child, step.parent) for step in above), sign=-1),
        root: 0,
    }
    nodes: dict[str, dict[str, Any]] = {
        digest: {**_NODE, "digest": digest, "depth": depth, "addresses": []}
        for digest, depth in sorted(depths.items(), key=lambda item: (item[1], item[0]))
    }
    placed = set()
    for place in shown:
        node = nodes.get(place.digest)
        if node is not None:
            placed.add(place.digest)
            node["addresses"].append(str(ModelAddress(place.site, place.name, str(place.number))))
            node["kind"] = place.kind
            node["withdrawn"] = node["withdrawn"] or place.withdrawn
            node["flagged"] = node["flagged"] or bool(place.flagged)
    if unplaced := [digest for digest in nodes if digest not in placed]:
        for digest, kind in find_round_files(session, unplaced).items():
            nodes[digest]["kind"] = kind
    recipes = recipes_of(session, caller, list(depths) if with_recipes else [root], version_id)
    foreign = [document for _, document, knows_inputs in recipes if not knows_inputs]
    named = {digest for document in foreign for digest in list_named_digests(document)} - placed
    if named:
        placed.update(visible_addresses(session, caller, named))
    for digest, document, knows_inputs in recipes:
        shown_recipe = document if knows_inputs else strip_names(document, placed)
        nodes[digest]["recipe"] = shown_recipe
    recipe = nodes[root]["recipe"]
    if not with_recipes:
        nodes[root]["recipe"] = None
    edges = [
        {"parent": parent, "child": child, "weight": weight, "method": method}
        for parent, child, weight, method in dict.fromkeys(step[:4] for step in [*above, *below])
        if parent in depths and child in depths
    ]
    return {"root": root, "nodes": list(nodes.values()), "edges": edges, "recipe": recipe}


def _ends(steps: "Iterable[Step]") -> Iterator[str]:
    for step in steps:
        yield step.parent
        yield step.child


def _distances(root: str, steps: Iterable[tuple[str, str]], sign: int) -> dict[str, int]:
    """Return the minimum number of steps from `root` to each reachable digest, times `sign`."""
    following: dict[str, list[str]] = defaultdict(list)
    for start, end in steps:
        following[start].append(end)
    distances = {root: 0}
    waiting = deque([root])
    while waiting:
        digest = waiting.popleft()
        for other in following[digest]:
            if other not in distances:
                distances[other] = distances[digest] + sign
                waiting.append(other)
    return distances


class Step(NamedTuple):
    """A step from a parent to a child, stated by the recipe of one version."""

    parent: str
    child: str
    weight: float
    method: str
    version_id: int


class Place(NamedTuple):
    """A version of a file of a family."""

    version_id: int
    digest: str
    site: str
    name: str
    number: int
    kind: str
    withdrawn: str | None
    """The reason of its withdrawal."""
    flagged: bool


RecipeRow = tuple[str, dict[str, Any], bool]


def places_of(session: Session, caller: Caller, digests: Sequence[str]) -> list[Place]:
    """Return every version of these files that the caller may see."""
    values = {"digests": digests, "caller_site": caller.site_id}
    rows = session.connection().execute(_places(curates=curates_pool(caller)), values).all()
    return list(map(Place._make, rows))


def find_round_files(session: Session, digests: Sequence[str]) -> dict[str, str]:
    """Return the kinds of those files that are kept by rounds of any site."""
    columns = {
        CONTRIBUTION: RoundContributionRecord.digest,
        OPTIMISER_STATE: RoundRecord.state_digest,
    }
    kinds = {
        digest: kind
        for kind, column in columns.items()
        for digest in session.scalars(
            sa.select(column).where(among(column, "digests")), {"digests": digests}
        )
        if digest is not None
    }
    digest = RoundContributionRecord.digest
    sums = session.scalars(
        sa.select(digest)
        .join(RoundRecord, RoundRecord.id == RoundContributionRecord.round_id)
        .where(RoundRecord.secure.is_not(None), among(digest, "digests")),
        {"digests": digests},
    )
    return kinds | dict.fromkeys(sums, SECURE_SUM)


def recipes_of(
    session: Session, caller: Caller, digests: Sequence[str], version_id: int
) -> list[RecipeRow]:
    """Return the recipes of all versions of these files that the caller may see, newest first.

    The recipe of `version_id` comes last. Rows are (digest, recipe, whether the caller may know the
    names of its inputs).
    """
    knows_inputs = sa.true() if curates_pool(caller) else ModelRecord.site_id == caller.site_id
    rows = session.execute(
        sa.select(ModelVersionRecord.digest, RecipeRecord.document, knows_inputs)
        .join(RecipeRecord, RecipeRecord.version_id == ModelVersionRecord.id)
        .join(ModelVersionRecord.model)
        .where(among(ModelVersionRecord.digest, "digests"), readable_by(caller))
        .order_by(ModelVersionRecord.id == version_id, ModelVersionRecord.id.desc()),
        {"digests": digests},
    )
    return [(digest, document, knows_inputs) for digest, document, knows_inputs in rows]


def knows(session: Session, caller: Caller, digest: str) -> bool:
    """Return whether the caller may see a version with this digest, or a recipe that names it."""
    version = (
        sa.select(ModelVersionRecord.id)
        .join(ModelVersionRecord.model)
        .where(ModelVersionRecord.digest == digest, readable_by(caller))
    )
    edge = (
        sa.select(ParentRecord.version_id)
        .join(ModelVersionRecord, ModelVersionRecord.id == ParentRecord.version_id)
        .join(ModelVersionRecord.model)
        .where(readable_by(caller), ParentRecord.parent_digest == digest, ParentRecord.followed)
    )
    return bool(session.scalar(sa.select(sa.or_(version.exists(), edge.exists()))))


# Building one of these statements takes as long as finding a large family, so each is cached.


@cache
def _steps_statement() -> Any:
    root = sa.bindparam("digest", type_=sa.String)
    steps = sa.select(
        ParentRecord.parent_digest,
        ParentRecord.child_digest,
        ParentRecord.weight,
        ParentRecord.method,
        ParentRecord.version_id,
    )
    above, below = ancestors_of(root), descendants_of(root)
    return sa.union_all(
        steps.with_only_columns(sa.literal(1).label("is_above"), *steps.selected_columns).join(
            above, sa.and_(ParentRecord.child_digest == above.c.digest, ParentRecord.followed)
        ),
        steps.with_only_columns(sa.literal(0).label("is_above"), *steps.selected_columns).join(
            below, sa.and_(ParentRecord.parent_digest == below.c.digest, ParentRecord.followed)
        ),
    )


@cache
def _places(*, curates: bool) -> Any:
    return (
        sa.select(
            ModelVersionRecord.id,
            ModelVersionRecord.digest,
            SiteRecord.name,
            ModelRecord.name,
            ModelVersionRecord.number,
            ModelVersionRecord.kind,
            WithdrawalRecord.reason,
            sa.exists().where(WithdrawalFlagRecord.version_id == ModelVersionRecord.id),
        )
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .outerjoin(WithdrawalRecord, WithdrawalRecord.version_id == ModelVersionRecord.id)
        .where(
            among(ModelVersionRecord.digest, "digests"),
            readable(sa.bindparam("caller_site", type_=sa.Integer), curates=curates),
        )
        .order_by(ModelVersionRecord.id)
    )
