"""A model's ancestors and descendants, drawn as two trees of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pool_server.wire.models import ROUND_FILES

if TYPE_CHECKING:
    from pool_server.wire.models import LineageNode, LineageResponse

_Branches = dict[str, list[tuple[str, str]]]
"""By digest: the digests of parents or heirs, each with how they were merged."""


def family_lines(lineage: LineageResponse) -> Iterator[str]:
    """Yield the lines of a family: the model, what it was merged from, what was merged from it.

    A model that occurs a second time is not followed again: families can share ancestors so
    often that a full tree would never end.
    """
    names = {node.digest: _marked_name(node) for node in lineage.nodes}
    parents: _Branches = {}
    heirs: _Branches = {}
    for edge in lineage.edges:
        remark = f"{edge.method}, weight {edge.weight:g}"
        parents.setdefault(edge.child, []).append((edge.parent, remark))
        heirs.setdefault(edge.parent, []).append((edge.child, remark))
    yield names.get(lineage.root, _name(lineage.root, []))
    for title, branches in (("merged from", parents), ("merged into", heirs)):
        if branches.get(lineage.root):
            yield f"{title}:"
            yield from _tree(lineage.root, branches, names, "  ", {lineage.root})
        else:
            yield f"{title}: nothing that the pool knows"


def _tree(
    digest: str,
    branches: _Branches,
    names: dict[str, str],
    indent: str,
    seen: set[str],
) -> Iterator[str]:
    """Yield the lines below one model, with a stack of our own: families can be deep."""
    stack = [(branch, indent) for branch in reversed(branches.get(digest, []))]
    while stack:
        (other, remark), depth = stack.pop()
        children = branches.get(other, [])
        name = names.get(other, _name(other, []))
        yield f"{depth}- {name}  ({remark}{', see above' if other in seen and children else ''})"
        if other not in seen:
            seen.add(other)
            stack.extend((child, depth + "  ") for child in reversed(children))


def _marked_name(node: LineageNode) -> str:
    """Return what to call a model, and whether it was withdrawn or holds something that was."""
    name = _name(node.digest, node.addresses)
    if what := ROUND_FILES.get(node.kind or ""):
        return f"sha256:{node.digest[:12]}... ({what}, which the pool keeps)"
    if node.withdrawn is not None:
        return f"{name} [withdrawn: {node.withdrawn}]"
    return f"{name} [flagged]" if node.flagged else name


def _name(digest: str, addresses: list[str]) -> str:
    if addresses:
        return " = ".join(addresses)
    return f"sha256:{digest[:12]}... (not in the pool)"
