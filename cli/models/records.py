"""Tables and words that show a version: state, receipts, evaluations, family."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from cli.frame.errors import UsageError
from cli.frame.options import Argument, Option, command, single
from cli.frame.output import Invocation, Reply, TableText
from pool_server.wire.cards import PrivacyReceipt, receipt_lines
from pool_server.wire.evaluations import (
    EvaluationMatrix,
    EvaluationResponse,
    MatrixCell,
    MatrixQuery,
    Score,
)
from pool_server.wire.models import ROUND_FILES, LineageNode, LineageResponse, ModelVersionResponse
from site_agent.pool.requests import build_request

KindOption = Annotated[
    Literal["hog-svm", "ert", "network"] | None,
    Option("Face detectors, landmark models or networks."),
]


def receipt_tables(receipts: list[PrivacyReceipt]) -> list[str | TableText]:
    """Return the verdict and a table of attacks for each receipt."""
    columns = ["attack", "found (95 %)", "chance", "control"]
    text: list[str | TableText] = []
    for receipt in receipts:
        sentences, rows = receipt_lines(receipt)
        text += ["\n".join(sentences), TableText(columns, rows)]
    return text


def state_words(version: ModelVersionResponse) -> str:
    """Return a version's state with the reason, the time and the person, if known."""
    text: str = version.state
    if version.state_reason:
        text += f": {version.state_reason}"
    if version.state_changed_at is not None:
        text += f" ({version.state_changed_at:%Y-%m-%d} by {version.state_changed_by})"
    return text


def score_words(score: Score) -> str:
    """Return a score with its interval."""
    if score.low is None or score.high is None:
        return f"{score.value:.4g}"
    return f"{score.value:.4g} [{score.low:.4g}, {score.high:.4g}]"


def evaluation_table(evaluations: Sequence[EvaluationResponse], empty: str = "") -> TableText:
    """Return a line for each score: site, data, protocol, measure and value."""
    rows = []
    for evaluation in evaluations:
        data = f"{evaluation.dataset} {evaluation.split}".strip()
        last = [data, f"{evaluation.created_at:%Y-%m-%d}", evaluation.protocol]
        for name, score in evaluation.scores.items():
            rows.append([evaluation.site, name, score_words(score), *last])
    columns = ("measured by", "score", "value", "data", "on", "protocol")
    return TableText(columns, rows, empty=empty)


# A model's ancestors and descendants, drawn as two trees of text.
_Branches = dict[str, list[tuple[str, str]]]
"""By digest: the digests of parents or heirs, each with how they were merged."""


def family_lines(lineage: LineageResponse) -> Iterator[str]:
    """Yield the lines of a family: the model, its inputs, and the models merged from it.

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
    digest: str, branches: _Branches, names: dict[str, str], indent: str, seen: set[str]
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
    """Return the name of a model, marked if it or an input was withdrawn."""
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


# ``poolctl models evaluations``: models x sites.
app = single()

_DEFAULT_SCORE = "mean_error"
_SCORE_OF_KIND = {"hog-svm": "average_precision", "ert": "mean_error"}


@command(
    app,
    "evaluations",
    "models evaluations --kind ert --metric mean_error",
    "models evaluations site-a/face-68@2",
)
def evaluations(
    invocation: Invocation,
    address: Annotated[
        str | None, Argument("Show all evaluations of this version.", "ADDRESS")
    ] = None,
    *,
    metric: Annotated[
        str, Option("The score. Default: mean_error or average_precision.", "NAME")
    ] = "",
    kind: KindOption = None,
    limit: Annotated[int, Option("Maximum number of models.", "N", min=1, max=200)] = 50,
) -> Reply:
    """Compare models on the private data of the sites: one score, models by sites.

    Every site evaluates at home and sends the scores with 'poolctl evaluate ... --post'. The newest
    score for the same data and protocol is shown. Compare within a column only, because data sets
    differ.
    """
    if address is not None:
        if metric or kind:
            raise UsageError("ADDRESS shows all scores of one version; leave the other options out")
        with invocation.pool() as pool:
            listed = list(pool.evaluations.list(address))
        table = evaluation_table(listed, empty=f"nobody has measured {address}")
        return Reply(
            {"items": listed}, table, [str(evaluation.evaluation_id) for evaluation in listed]
        )
    query = build_request(
        MatrixQuery,
        score=metric or _SCORE_OF_KIND.get(kind or "", _DEFAULT_SCORE),
        kind=kind,
        limit=limit,
    )
    with invocation.pool() as pool:
        matrix = pool.evaluations.matrix(query)
    if matrix.next_cursor:
        invocation.note(f"there are more than {limit} models; see more with --limit, up to 200")
    return Reply(matrix, matrix_table(matrix), [row.address for row in matrix.rows])


def matrix_table(matrix: EvaluationMatrix) -> TableText:
    """Return the matrix as a table: a model a row, a data set of a site a column."""
    columns = list(dict.fromkeys(_column(cell) for row in matrix.rows for cell in row.cells))
    columns.sort()
    rows = []
    for row in matrix.rows:
        cells: dict[tuple[str, str, str], str] = defaultdict(str)
        for cell in row.cells:
            cells[_column(cell)] = _value(cell)
        rows.append([row.address, *(cells[column] for column in columns)])
    return TableText(
        ["model", *(" ".join(part for part in column if part) for column in columns)],
        rows,
        title=matrix.score,
        empty=f"nobody has posted {matrix.score} of such models",
    )


def _column(cell: MatrixCell) -> tuple[str, str, str]:
    return cell.site, f"{cell.dataset} {cell.split}".strip(), cell.protocol


def _value(cell: MatrixCell) -> str:
    if cell.low is None or cell.high is None:
        return f"{cell.value:.4f}"
    return f"{cell.value:.4f} [{cell.low:.4f}, {cell.high:.4f}]"
