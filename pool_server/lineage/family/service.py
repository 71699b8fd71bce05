"""Family trees of models."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy.orm import Session

from pool_server.errors import MissingError
from pool_server.http.identity import Caller
from pool_server.lineage.family import repository
from pool_server.lineage.family.repository import Step
from pool_server.registry.repository import visible_addresses
from pool_server.wire.models.recipes import named_digests, without_names
from pool_server.wire.names import ModelAddress

Lineage = dict[str, Any]

_NODE = {"kind": None, "withdrawn": None, "flagged": False, "recipe": None}
"""The fields of a `LineageNode` of which the pool knows nothing but the digest."""


def trace_lineage(
    session: Session,
    caller: Caller,
    root: str,
    *,
    version_id: int = 0,
    with_recipes: bool = False,
) -> Lineage:
    """Return the ancestors and descendants of a file along recipes that the caller may see.

    The result has the fields of a `LineageResponse`: making thousands of objects would take as
    long as finding them. `with_recipes` gives the recipe of every node, not only of the root.
    Several sites may have published the file of the root, each with a recipe that it signed: the
    recipe is that of `version_id`, and the oldest where no version was asked for.
    """
    above, below = repository.steps_around(session, root)
    family = list(dict.fromkeys([root, *_ends(above), *_ends(below)]))
    shown = repository.places_of(session, caller, family)
    telling = {each.version_id for each in shown}
    above = [each for each in above if each.version_id in telling]
    below = [each for each in below if each.version_id in telling]
    # What is reached only through a recipe that is not for the caller stays unsaid.
    depths = {
        **_distances(root, ((each.parent, each.child) for each in below), sign=1),
        **_distances(root, ((each.child, each.parent) for each in above), sign=-1),
        root: 0,
    }
    nodes: dict[str, dict[str, Any]] = {
        digest: {**_NODE, "digest": digest, "depth": depth, "addresses": []}
        for digest, depth in sorted(depths.items(), key=lambda item: (item[1], item[0]))
    }
    placed = set()
    for each in shown:
        node = nodes.get(each.digest)
        if node is not None:
            placed.add(each.digest)
            node["addresses"].append(str(ModelAddress(each.site, each.name, str(each.number))))
            node["kind"] = each.kind
            node["withdrawn"] = node["withdrawn"] or each.withdrawn
            node["flagged"] = node["flagged"] or bool(each.flagged)
    if unplaced := [digest for digest in nodes if digest not in placed]:
        for digest, kind in repository.round_files_among(session, unplaced).items():
            nodes[digest]["kind"] = kind
    recipes = (
        repository.recipes_of_all(session, caller, list(depths), version_id)
        if with_recipes
        else repository.recipes_of(session, caller, root, version_id)
    )
    foreign = [document for _, document, knows_inputs in recipes if not knows_inputs]
    named = {digest for document in foreign for digest in named_digests(document)} - placed
    placed.update(visible_addresses(session, caller, named))
    for digest, document, knows_inputs in recipes:
        told = document if knows_inputs else without_names(document, placed)
        nodes[digest]["recipe"] = told
    recipe = nodes[root]["recipe"]
    if not with_recipes:
        nodes[root]["recipe"] = None
    edges = [
        {"parent": parent, "child": child, "weight": weight, "method": method}
        for parent, child, weight, method in dict.fromkeys(each[:4] for each in [*above, *below])
        if parent in depths and child in depths
    ]
    return {"root": root, "nodes": list(nodes.values()), "edges": edges, "recipe": recipe}


def trace_digest(
    session: Session, caller: Caller, digest: str, *, with_recipes: bool = False
) -> Lineage:
    """Return the lineage of a file, which need not be in the pool itself."""
    if not repository.knows(session, caller, digest):
        raise MissingError(
            f"the pool knows neither a model with digest {digest} nor one that was made from it",
            code="version_not_found",
            hint="The recipe beside a merged file names what it was made from.",
        )
    return trace_lineage(session, caller, digest, with_recipes=with_recipes)


def _ends(steps: Iterable[Step]) -> Iterator[str]:
    for each in steps:
        yield each.parent
        yield each.child


def _distances(root: str, steps: Iterable[tuple[str, str]], sign: int) -> dict[str, int]:
    """Return the fewest steps from `root` to each digest that can be reached, times `sign`."""
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
