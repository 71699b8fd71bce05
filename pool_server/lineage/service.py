"""Family trees of models."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy.orm import Session

from pool_server.lineage import repository
from pool_server.lineage.repository import EdgeRow
from pool_server.records import ModelVersionRecord
from pool_server.wire.models import LineageEdge, LineageNode, LineageResponse
from pool_server.wire.names import ModelAddress


def trace_lineage(session: Session, version: ModelVersionRecord) -> LineageResponse:
    """Return all ancestors and descendants of a version, known to the pool or not."""
    root = version.digest
    above = repository.edges_above(session, root)
    below = repository.edges_below(session, root)
    depths = {
        **_distances(root, ((parent, child) for parent, child, *_ in below), sign=1),
        **_distances(root, ((child, parent) for parent, child, *_ in above), sign=-1),
        root: 0,
    }
    addresses: dict[str, list[str]] = defaultdict(list)
    kinds: dict[str, str] = {}
    for digest, site, name, number, kind in repository.places_of_family(session, root):
        addresses[digest].append(str(ModelAddress(site, name, str(number))))
        kinds[digest] = kind
    recipe = repository.find_recipe(session, version.id)
    return LineageResponse(
        root=root,
        nodes=_nodes(depths, addresses, kinds),
        edges=_edges([*above, *below]),
        recipe=None if recipe is None else recipe.document,
    )


def _nodes(
    depths: Mapping[str, int], addresses: Mapping[str, list[str]], kinds: Mapping[str, str]
) -> list[LineageNode]:
    return [
        LineageNode(
            digest=digest,
            addresses=addresses.get(digest, []),
            kind=kinds.get(digest),
            depth=depth,
        )
        for digest, depth in sorted(depths.items(), key=lambda item: (item[1], item[0]))
    ]


def _edges(rows: Sequence[EdgeRow]) -> list[LineageEdge]:
    return [
        LineageEdge(parent=parent, child=child, weight=weight, method=method)
        for parent, child, weight, method in dict.fromkeys(rows)
    ]


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
