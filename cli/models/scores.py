"""``poolctl models evaluations``: models x sites."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.errors import UsageError
from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.models.records import KindOption, evaluation_table

if TYPE_CHECKING:
    from pool_server.wire.evaluations import EvaluationMatrix, MatrixCell

app = single()

_DEFAULT_SCORE = "mean_error"
_SCORE_OF_KIND = {"hog-svm": "average_precision", "ert": "mean_error"}


@command(
    app,
    "evaluations",
    examples=[
        "models evaluations --kind ert --score mean_error",
        "models evaluations --kind hog-svm --measured-by site-b",
        "models evaluations site-a/face-68@2",
    ],
)
def evaluations(
    invocation: Invocation,
    address: Annotated[
        str | None,
        typer.Argument(metavar="ADDRESS", help="Show all evaluations of this version."),
    ] = None,
    *,
    score: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The score. Default: mean_error or average_precision.",
            show_default=False,
        ),
    ] = "",
    kind: KindOption = None,
    site: Annotated[str, typer.Option(metavar="SITE", help="Models of this site only.")] = "",
    name: Annotated[str, typer.Option(metavar="NAME", help="Models of this name only.")] = "",
    measured_by: Annotated[
        str, typer.Option(metavar="SITE", help="Only evaluations by this site.")
    ] = "",
    protocol: Annotated[
        str, typer.Option(metavar="TEXT", help="Only evaluations by this protocol.")
    ] = "",
    history: Annotated[
        bool, typer.Option(help="With ADDRESS: include earlier evaluations.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="Maximum number of models.")
    ] = 50,
) -> Reply:
    """Compare models on the private data of the sites: one score, models by sites.

    Every site evaluates at home and sends the scores with 'poolctl evaluate ... --post'. The newest
    score for the same data and protocol is shown. Compare within a column only, because data sets
    differ.
    """
    if address is not None:
        if score or kind or site or name or measured_by or protocol:
            raise UsageError("ADDRESS shows all scores of one version; leave the other options out")
        return _of_one_version(invocation, address, history=history)
    if history:
        raise UsageError("--history goes with ADDRESS")
    from site_agent.pool.resources.evaluations import MatrixQuery

    query = MatrixQuery(
        score or _SCORE_OF_KIND.get(kind or "", _DEFAULT_SCORE),
        kind=kind or "",
        site=site,
        name=name,
        measured_by=measured_by,
        protocol=protocol,
    )
    with invocation.pool() as pool:
        matrix = pool.evaluations.matrix(query, most_models=limit)
    matrix = matrix.model_copy(update={"rows": matrix.rows[:limit]})
    if matrix.next_cursor:
        invocation.note(f"there are more than {limit} models; see them with --limit")
    return Reply(matrix, matrix_table(matrix), [row.address for row in matrix.rows])


def _of_one_version(invocation: Invocation, address: str, *, history: bool) -> Reply:
    with invocation.pool() as pool:
        found = list(pool.evaluations.list(address, history=history))
    table = evaluation_table(found, empty=f"nobody has measured {address}")
    return Reply({"items": found}, table, [str(each.evaluation_id) for each in found])


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
