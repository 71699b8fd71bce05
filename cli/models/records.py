"""Tables and words that show a version: state, receipts, evaluations, family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.frame.output import TableText
from pool_server.wire.models import ROUND_FILES

if TYPE_CHECKING:
    from pool_server.wire.cards import PrivacyReceipt
    from pool_server.wire.evaluations import EvaluationResponse, Score
    from pool_server.wire.models import LineageNode, LineageResponse, ModelVersionResponse


KindOption = Annotated[
    Literal["hog-svm", "ert", "network"] | None,
    typer.Option(help="Face detectors, landmark models or networks."),
]


def receipt_tables(receipts: list[PrivacyReceipt]) -> list[TableText]:
    """Return a table of attacks for each receipt."""
    from pool_server.wire.cards import receipt_lines

    columns = ["attack", "measure", "found", "chance", "control"]
    return [
        TableText(
            columns, rows, title=f"privacy receipt, measured by the site itself: {title}",
            shortened="measure",
        )
        for title, rows in receipt_lines(receipts)
    ]  # fmt: skip


def state_words(version: ModelVersionResponse) -> str:
    """Return a version's state with why, when and by whom, where that is known."""
    words: str = version.state
    if version.state_reason:
        words += f": {version.state_reason}"
    if version.state_changed_at is not None:
        words += f" ({version.state_changed_at:%Y-%m-%d} by {version.state_changed_by})"
    return words


def score_words(score: Score) -> str:
    """Return a score with its interval."""
    if score.low is None or score.high is None:
        return f"{score.value:.4g}"
    return f"{score.value:.4g} [{score.low:.4g}, {score.high:.4g}]"


def evaluation_table(evaluations: Sequence[EvaluationResponse], empty: str = "") -> TableText:
    """Return who measured what, on which data, how: a line for each score."""
    rows = []
    for each in evaluations:
        first = [each.site, f"{each.dataset} {each.split}".strip(), each.protocol]
        for name, score in each.scores.items():
            rows.append([*first, name, score_words(score), f"{each.created_at:%Y-%m-%d}"])
    columns = ("measured by", "data", "protocol", "score", "value", "on")
    return TableText(columns, rows, empty=empty, shortened="protocol")


# A model's ancestors and descendants, drawn as two trees of text.
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
