"""The scores of a model's versions as curves, one for each data set that measured several."""

from collections.abc import Sequence
from dataclasses import dataclass

from pool_server.pages import words
from pool_server.pages.matrix import Matrix
from pool_server.wire.names import ModelAddress

WIDTH, HEIGHT = 560, 170
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 12, 28
MOST_CURVES = 4
GRID_LINES = 3


@dataclass(frozen=True)
class Point:
    """One score in the drawing; `text` names version and value."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Curve:
    """The scores on one data set, from the oldest version to the newest."""

    title: str
    points: Sequence[Point]

    @property
    def path(self) -> str:
        return " ".join(f"{point.x:.1f},{point.y:.1f}" for point in self.points)


@dataclass(frozen=True)
class Drawing:
    """Curves of one score, with the marks of their axes."""

    curves: Sequence[Curve]
    versions: Sequence[Point]
    levels: Sequence[Point]


def draw_scores(matrix: Matrix) -> Drawing | None:
    """Return the curves of a model's versions, None where no data set measured two of them."""
    numbers = [int(ModelAddress.parse(line.address).reference) for line in matrix.lines]
    order = sorted(range(len(numbers)), key=numbers.__getitem__)
    values = [
        {place: cell.value for place in order if (cell := matrix.lines[place].cells[column])}
        for column in range(len(matrix.columns))
    ]
    shown = [pair for pair in zip(matrix.columns, values, strict=True) if len(pair[1]) > 1]
    shown = shown[:MOST_CURVES]
    if not shown:
        return None
    used = [place for place in order if any(place in scores for _, scores in shown)]
    step = (WIDTH - LEFT - RIGHT) / (len(used) - 1)
    x_of = {place: LEFT + step * number for number, place in enumerate(used)}
    lowest = min(min(scores.values()) for _, scores in shown)
    highest = max(max(scores.values()) for _, scores in shown)
    span = (highest - lowest) or 1.0

    def height(value: float) -> float:
        return HEIGHT - BOTTOM - (value - lowest) / span * (HEIGHT - BOTTOM - TOP)

    curves = [
        Curve(
            f"{column.dataset} of {column.site}",
            [
                Point(x_of[place], height(value), f"@{numbers[place]}: {words.number(value)}")
                for place, value in scores.items()
            ],
        )
        for column, scores in shown
    ]
    marks = [lowest + span * number / (GRID_LINES - 1) for number in range(GRID_LINES)]
    return Drawing(
        curves,
        [Point(x_of[place], HEIGHT - BOTTOM, f"@{numbers[place]}") for place in used],
        [Point(LEFT, height(value), words.number(value)) for value in marks],
    )
