"""A model's ancestors and descendants, drawn as two trees of text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pool_server.wire.models.models import LineageNode, LineageResponse


@dataclass(frozen=True)
class _Branch:
    """One step from a model to a parent or an heir."""

    digest: str
    remark: str


def family_lines(lineage: LineageResponse) -> Iterator[str]:
    """Yield the lines of a family: the model, what it was merged from, what was merged from it.

    A model that occurs a second time is not followed again: families can share ancestors so
    often that a full tree would never end.
    """
    names = {node.digest: _marked_name(node) for node in lineage.nodes}
    parents: dict[str, list[_Branch]] = {}
    heirs: dict[str, list[_Branch]] = {}
    for edge in lineage.edges:
        remark = f"{edge.method}, weight {edge.weight:g}"
        parents.setdefault(edge.child, []).append(_Branch(edge.parent, remark))
        heirs.setdefault(edge.parent, []).append(_Branch(edge.child, remark))
    yield names.get(lineage.root, _name(lineage.root, []))
    for title, branches in (("merged from", parents), ("merged into", heirs)):
        if branches.get(lineage.root):
            yield f"{title}:"
            yield from _tree(lineage.root, branches, names, "  ", {lineage.root})
        else:
            yield f"{title}: nothing that the pool knows"


def _tree(
    digest: str,
    branches: dict[str, list[_Branch]],
    names: dict[str, str],
    indent: str,
    seen: set[str],
) -> Iterator[str]:
    """Yield the lines below one model, with a stack of our own: families can be deep."""
    stack = [(branch, indent) for branch in reversed(branches.get(digest, []))]
    while stack:
        branch, depth = stack.pop()
        again = branch.digest in seen and branches.get(branch.digest)
        name = names.get(branch.digest, _name(branch.digest, []))
        yield f"{depth}- {name}  ({branch.remark}{', see above' if again else ''})"
        if branch.digest not in seen:
            seen.add(branch.digest)
            children = branches.get(branch.digest, [])
            stack.extend((child, depth + "  ") for child in reversed(children))


def _marked_name(node: LineageNode) -> str:
    """Return what to call a model, and whether it was withdrawn or holds something that was."""
    name = _name(node.digest, node.addresses)
    if node.withdrawn is not None:
        return f"{name} [withdrawn: {node.withdrawn}]"
    return f"{name} [flagged]" if node.flagged else name


def _name(digest: str, addresses: list[str]) -> str:
    if addresses:
        return " = ".join(addresses)
    return f"sha256:{digest[:12]}... (not in the pool)"
