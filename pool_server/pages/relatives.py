"""A model's lineage as nested lists: ancestors, and descendants."""

from collections import defaultdict
from dataclasses import dataclass

from pool_server.pages import words
from pool_server.wire import models

_MOST_ENTRIES = 60
_KEPT = "kept"


@dataclass
class Box:
    """One model, or the contributions of a round."""

    title: str
    caption: str
    css: str
    address: str = ""


@dataclass(frozen=True)
class Relative:
    """One entry of the family as a nested list."""

    box: Box
    by: str
    relatives: "list[Relative]"


def list_relatives(
    family: models.LineageResponse, here: str, *, descendants: bool
) -> list[Relative]:
    """Return the ancestors or the descendants of the version as nested lists, each once."""
    boxes, edges = _boxes(family, here)
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


def _boxes(
    family: models.LineageResponse, here: str
) -> tuple[dict[str, Box], list[models.LineageEdge]]:
    """Return boxes by digest, and the edges between them: all contributions to a round are one."""
    boxes = {node.digest: _box(node, here, family.root) for node in family.nodes}
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


def _box(node: models.LineageNode, here: str, root: str) -> Box:
    if node.digest == root:
        return Box(words.short(here), "this model", "root")
    if node.kind in models.ROUND_FILES:
        return Box(models.ROUND_FILES[node.kind], "kept by the pool", _KEPT)
    if not node.addresses:
        title = f"sha256:{node.digest[:12]}…"
        return Box(title, "not in this pool, or not for you", _KEPT)
    title, address = words.short(node.addresses[0]), words.page_of(node.addresses[0])
    if node.withdrawn:
        return Box(title, f"withdrawn: {node.withdrawn}", "withdrawn", address)
    if node.flagged:
        return Box(title, "holds a withdrawn model", "flagged", address)
    return Box(title, "", "", address)
