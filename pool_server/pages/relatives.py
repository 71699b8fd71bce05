"""A model's lineage as nested lists: ancestors, and descendants."""

from collections import defaultdict
from dataclasses import dataclass

from pool_server.pages import words
from pool_server.wire import models

_MOST_ENTRIES = 60


@dataclass
class Box:
    """One model, or the contributions of a round."""

    title: str
    address: str = ""
    badge: str = ""
    is_withdrawn: bool = False


@dataclass(frozen=True)
class Relative:
    """One entry of the family as a nested list."""

    box: Box
    by: str
    relatives: "list[Relative]"


def list_relatives(family: models.LineageResponse, *, descendants: bool) -> list[Relative]:
    """Return the ancestors or the descendants of the version as nested lists, each once."""
    boxes, edges = _boxes(family)
    steps: dict[str, list[tuple[str, models.LineageEdge]]] = defaultdict(list)
    for edge in edges:
        start, end = (edge.parent, edge.child) if descendants else (edge.child, edge.parent)
        steps[start].append((end, edge))
    seen = {family.root}

    def walk(digest: str) -> list[Relative]:
        relatives = []
        for other, edge in steps[digest]:
            if other not in seen and other in boxes and len(seen) <= _MOST_ENTRIES:
                seen.add(other)
                by = f"by {edge.method}, weight {edge.weight:g}"
                relatives.append(Relative(boxes[other], by, walk(other)))
        return relatives

    return walk(family.root)


def _boxes(family: models.LineageResponse) -> tuple[dict[str, Box], list[models.LineageEdge]]:
    """Return boxes by digest, and the edges between them: all contributions to a round are one."""
    boxes = {node.digest: _box(node) for node in family.nodes}
    kinds = {node.digest: node.kind for node in family.nodes}
    contributions: dict[str, list[str]] = defaultdict(list)
    edges = []
    for edge in family.edges:
        if edge.parent in boxes and kinds[edge.parent] == models.CONTRIBUTION:
            contributions[edge.child].append(edge.parent)
            if len(contributions[edge.child]) > 1:
                continue
        edges.append(edge)
    for first, *others in contributions.values():
        boxes[first].title = words.count(1 + len(others), "contribution")
        for digest in others:
            boxes.pop(digest, None)
    return boxes, edges


def _box(node: models.LineageNode) -> Box:
    if node.kind in models.ROUND_FILES:
        return Box(models.ROUND_FILES[node.kind])
    if not node.addresses:
        return Box(f"sha256:{node.digest[:12]}…")
    title, address = words.short(node.addresses[0]), words.page_of(node.addresses[0])
    if node.withdrawn:
        return Box(title, address, f"withdrawn: {node.withdrawn}", is_withdrawn=True)
    return Box(title, address, "holds a withdrawn model" if node.flagged else "")
