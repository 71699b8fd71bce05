"""The drawing of a model's lineage: ancestors left, descendants right, one box a model."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log2

from pool_server.pages import words
from pool_server.wire import models

BOX_WIDTH, BOX_HEIGHT = 226, 54
COLUMN_STEP, ROW_STEP, MARGIN_X, MARGIN_Y = 310, 72, 8, 12
MOST_BOXES, MOST_IN_COLUMN = 60, 8
_KEPT = "kept"


@dataclass
class Box:
    """One model, or the contributions of a round; `x` and `y` are those of its upper left."""

    node: models.LineageNode
    title: str
    caption: str
    css: str
    address: str = ""
    x: int = 0
    y: int = 0
    order: float = 0.0
    parents: list[str] = field(default_factory=list)
    children: list[str] = field(default_factory=list)

    @property
    def middle(self) -> int:
        return self.y + BOX_HEIGHT // 2


@dataclass(frozen=True)
class Wire:
    """One edge, as the path of a curve."""

    path: str
    width: float
    weight: str
    x: int
    y: int


@dataclass(frozen=True)
class Drawing:
    """A family tree, laid out; `boxes` go from the oldest ancestor to the youngest heir."""

    boxes: list[Box]
    wires: list[Wire]
    width: int
    height: int
    left_out: int


@dataclass(frozen=True)
class Relative:
    """One entry of the family as a nested list."""

    box: Box
    by: str
    relatives: "list[Relative]"


def draw_family(family: models.LineageResponse, here: str) -> Drawing:
    """Lay a family out in columns by depth.

    `here`: Address of the version that the page is about.
    """
    boxes, edges = _boxes(family, here)
    total = len(boxes)
    columns = _columns(boxes, crowded=total > MOST_BOXES)
    shown = {box.node.digest for column in columns.values() for box in column}
    first = min(columns)
    height = max(len(column) for column in columns.values()) * ROW_STEP
    for depth, column in sorted(columns.items()):
        top = MARGIN_Y + (height - len(column) * ROW_STEP) // 2
        for number, box in enumerate(column):
            box.x = MARGIN_X + (depth - first) * COLUMN_STEP
            box.y = top + number * ROW_STEP
    wires = [
        _wire(boxes[edge.parent], boxes[edge.child], edge)
        for edge in edges
        if edge.parent in shown and edge.child in shown
    ]
    width = MARGIN_X * 2 + (max(columns) - first) * COLUMN_STEP + BOX_WIDTH
    drawn = [box for _, column in sorted(columns.items()) for box in column]
    return Drawing(drawn, wires, width, height + MARGIN_Y, total - len(drawn))


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
            if other not in seen and other in boxes and len(seen) <= MOST_BOXES:
                seen.add(other)
                by = f"by {edge.method}, weight {edge.weight:g}"
                relatives.append(Relative(boxes[other], by, walk(other)))
        return relatives

    return walk(family.root)


def _boxes(
    family: models.LineageResponse, here: str
) -> tuple[dict[str, Box], list[models.LineageEdge]]:
    """Return boxes by digest, and the edges between them: all contributions to a round are one."""
    made_by = {edge.child: f"by {edge.method}" for edge in family.edges}
    boxes = {
        node.digest: _box(node, made_by.get(node.digest, "trained"), here, family.root)
        for node in family.nodes
    }
    contributions: dict[str, list[str]] = defaultdict(list)
    edges = []
    for edge in family.edges:
        if edge.parent in boxes and boxes[edge.parent].node.kind == models.CONTRIBUTION:
            contributions[edge.child].append(edge.parent)
            if len(contributions[edge.child]) > 1:
                continue
        edges.append(edge)
    for first, *others in contributions.values():
        boxes[first].title = words.count(1 + len(others), "contribution")
        for digest in others:
            boxes.pop(digest, None)
    for edge in edges:
        if edge.parent in boxes and edge.child in boxes:
            boxes[edge.parent].children.append(edge.child)
            boxes[edge.child].parents.append(edge.parent)
    return boxes, edges


def _box(node: models.LineageNode, made: str, here: str, root: str) -> Box:
    if node.digest == root:
        return Box(node, words.short(here), "this model", "root")
    if node.kind in models.ROUND_FILES:
        return Box(node, models.ROUND_FILES[node.kind], "kept by the pool", _KEPT)
    if not node.addresses:
        title = f"sha256:{node.digest[:12]}…"
        return Box(node, title, "not in this pool, or not for you", _KEPT)
    title, address = words.short(node.addresses[0]), words.page_of(node.addresses[0])
    if node.withdrawn:
        return Box(node, title, f"withdrawn: {node.withdrawn}", "withdrawn", address)
    if node.flagged:
        return Box(node, title, "holds a withdrawn model", "flagged", address)
    return Box(node, title, made, "", address)


def _columns(boxes: Mapping[str, Box], *, crowded: bool) -> dict[int, list[Box]]:
    """Return the boxes of each depth, each by the mean place of its neighbours nearer the root."""
    columns: dict[int, list[Box]] = defaultdict(list)
    for box in boxes.values():
        columns[box.node.depth].append(box)
    for depth in sorted(columns, key=abs):
        for box in columns[depth]:
            nearer = box.children if depth < 0 else box.parents
            box.order = _mean(boxes[digest].order for digest in nearer if digest in boxes)
        column = columns[depth]
        if crowded and len(column) > MOST_IN_COLUMN:
            column.sort(key=lambda box: box.css not in {"withdrawn", "flagged", "root"})
            del column[MOST_IN_COLUMN:]
        column.sort(key=lambda box: (box.order, box.title))
        for number, box in enumerate(column):
            box.order = number - (len(column) - 1) / 2
    return dict(columns)


def _mean(places: Iterable[float]) -> float:
    known = list(places)
    return sum(known) / len(known) if known else 0.0


def _wire(parent: Box, child: Box, edge: models.LineageEdge) -> Wire:
    start, end = parent.x + BOX_WIDTH, child.x
    middle = (start + end) // 2
    path = (
        f"M{start} {parent.middle}C{middle} {parent.middle} {middle} {child.middle} "
        f"{end} {child.middle}"
    )
    width = round(2 + max(-1.0, min(3.0, log2(max(edge.weight, 0.01)))), 1)
    return Wire(path, width, f"{edge.weight:g}", middle, (parent.middle + child.middle) // 2 + 4)
