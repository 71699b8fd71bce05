"""The evaluation matrix: models down, data sets across, shaded within each column.

Scores on different faces do not compare, so cells are compared within one column only. All
sites' measurements on one data set with one protocol share a column.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pool_server.wire.evaluations import (
    SCORES,
    EvaluationResponse,
    MatrixCell,
    MatrixRow,
    ScoreMeaning,
)

SHADES = 6
ColumnKey = tuple[str, str]


@dataclass(frozen=True)
class Column:
    """One data set, measured in one way."""

    key: ColumnKey
    dataset: str
    site: str
    images: int | None
    protocol: str


@dataclass(frozen=True)
class Cell:
    """One score; `shade` is 0 (far from the best) to 6 (best), or None where nothing compares."""

    value: float
    low: float | None
    high: float | None
    shade: int | None = None
    is_best: bool = False
    is_near: bool = False
    is_own: bool = False

    @property
    def css(self) -> str:
        shade = "" if self.shade is None else f"q{self.shade}"
        return f"{shade} best" if self.is_best else shade


@dataclass(frozen=True)
class Line:
    """One model, with a cell or None for each column."""

    address: str
    cells: list[Cell | None]
    is_here: bool = False


@dataclass(frozen=True)
class Matrix:
    """The scores of several models by one measure."""

    score: str
    columns: list[Column]
    lines: list[Line]

    @property
    def meaning(self) -> ScoreMeaning | None:
        return SCORES.get(self.score)

    @property
    def title(self) -> str:
        meaning = self.meaning
        return self.score if meaning is None else f"{meaning.label}, {meaning.direction}"


def row_of(
    address: str, digest: str, kind: str, evaluations: Iterable[EvaluationResponse], score: str
) -> MatrixRow:
    """Return the evaluations of one version as a row of a matrix."""
    cells = [
        MatrixCell(
            **evaluation.model_dump(
                include={
                    "site", "dataset", "dataset_digest", "split", "protocol", "images",
                    "created_at",
                }
            ),
            **evaluation.scores[score].model_dump(),
        )
        for evaluation in evaluations
        if score in evaluation.scores
    ]  # fmt: skip
    return MatrixRow(address=address, digest=digest, kind=kind, cells=cells)


def build_matrix(
    score: str, rows: Sequence[MatrixRow], here: str = "", *, keep_empty: bool = False
) -> Matrix:
    """Return rows as the page shows them.

    `here`: Address of the version that the page is about; only data sets that it was measured on
    are shown where it was measured at all. `keep_empty`: Keep models without any score, so that
    lines and models go together.
    """
    own_cells = next((row.cells for row in rows if row.address == here), [])
    columns: dict[ColumnKey, Column] = {}
    for cell in own_cells or [cell for row in rows for cell in row.cells]:
        key = (cell.dataset_digest, cell.protocol)
        columns.setdefault(key, Column(key, cell.dataset, cell.site, cell.images, cell.protocol))
    cells_by_row = [
        {(cell.dataset_digest, cell.protocol): (row, cell) for cell in row.cells} for row in rows
    ]
    shaded = {key: _shade(score, [by_key.get(key) for by_key in cells_by_row]) for key in columns}
    lines = [
        Line(row.address, [shaded[key][number] for key in columns], row.address == here)
        for number, row in enumerate(rows)
    ]
    shown = [line for line in lines if keep_empty or any(line.cells)]
    return Matrix(score, list(columns.values()), shown)


def _shade(score: str, cells: Sequence[tuple[MatrixRow, MatrixCell] | None]) -> list[Cell | None]:
    meaning = SCORES.get(score)
    present = [pair[1] for pair in cells if pair is not None]
    if meaning is None or len(present) < 2:
        return [None if pair is None else _cell(*pair) for pair in cells]
    sign = -1.0 if meaning.smaller_is_better else 1.0
    best = max(present, key=lambda cell: sign * cell.value)
    far = min(sign * cell.value for cell in present)
    span = sign * best.value - far

    def shade(row: MatrixRow, cell: MatrixCell) -> Cell:
        is_best = cell.value == best.value
        return replace(
            _cell(row, cell),
            shade=round(SHADES * ((sign * cell.value - far) / span if span else 1.0)),
            is_best=is_best,
            is_near=not is_best and _overlap(cell, best),
        )

    return [None if pair is None else shade(*pair) for pair in cells]


def _cell(row: MatrixRow, cell: MatrixCell) -> Cell:
    own_site = row.address.removeprefix("pool://").partition("/")[0]
    return Cell(cell.value, cell.low, cell.high, is_own=cell.site == own_site)


def _overlap(one: MatrixCell, two: MatrixCell) -> bool:
    if one.low is None or one.high is None or two.low is None or two.high is None:
        return False
    return one.low <= two.high and two.low <= one.high
