"""The face boxes that a HOG-SVM detector can learn, worked out before dlib is asked.

dlib slides one window of a fixed size over an image pyramid with layers shrinking by 5/6, in steps
of whole HOG cells. A training box is usable when some position of the window covers it well
enough. dlib refuses the whole training set when one box is not usable, without saying which one
or why; here the same arithmetic (whole pixels, rounding towards zero included) is done for each
box. Boxes are (left, top, right, bottom), all four inside the box.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Corners = tuple[int, int, int, int]

CELL_SIZE_PX = 8
PADDING_CELLS = 1
# A window matches a box when their common area is more than this part of the smallest rectangle
# around both (dlib's match_eps).
MATCH_THRESHOLD = 0.5
# Two boxes that fall on the same window cannot both be found.
_SAME_WINDOW_MATCH = 0.9999999
_MOST_LEVELS = 200


def match_score(first: Corners, second: Corners) -> float:
    """Return the common area over that of the rectangle around both, as dlib measures it."""
    common = (
        max(first[0], second[0]),
        max(first[1], second[1]),
        min(first[2], second[2]),
        min(first[3], second[3]),
    )
    around = (
        min(first[0], second[0]),
        min(first[1], second[1]),
        max(first[2], second[2]),
        max(first[3], second[3]),
    )
    return _area(common) / _area(around)


def picked_window(boxes: Iterable[Corners], area_px: int) -> tuple[int, int]:
    """Return the window size that dlib picks: the boxes' mean shape, scaled to an area.

    `boxes`: the boxes that are trained on, at least one. `area_px`: dlib's
    ``detection_window_size``.

    Returns
    -------
    (width, height) : ints, pixels
    """
    sizes = [(right - left + 1, bottom - top + 1) for left, top, right, bottom in boxes]
    mean_width = sum(width for width, _ in sizes) / len(sizes)
    mean_height = sum(height for _, height in sizes) / len(sizes)
    scale = math.sqrt(area_px / (mean_width * mean_height))
    return max(1, int(mean_width * scale + 0.5)), max(1, int(mean_height * scale + 0.5))


def area_for_window(boxes: Sequence[Corners], window_px: tuple[int, int]) -> int | None:
    """Return the area at which dlib picks this window for these boxes; None if there is none."""
    window_area_px = window_px[0] * window_px[1]
    # Only areas near width x height can round to this width and height.
    reach = window_px[0] + window_px[1]
    for step in range(reach + 1):
        for area_px in (window_area_px + step, window_area_px - step):
            if area_px > 0 and picked_window(boxes, area_px) == window_px:
                return area_px
    return None


def with_window_shape(box: Corners, window_px: tuple[int, int]) -> Corners:
    """Return the box with the window's width-to-height ratio, centre and area kept."""
    left, top, right, bottom = box
    area = (right - left + 1) * (bottom - top + 1)
    scale = math.sqrt(area / (window_px[0] * window_px[1]))
    width = max(1, round(window_px[0] * scale))
    height = max(1, round(window_px[1] * scale))
    new_left = math.floor((left + right + 1 - width) / 2)
    new_top = math.floor((top + bottom + 1 - height) / 2)
    return new_left, new_top, new_left + width - 1, new_top + height - 1


def upsampled(box: Corners, times: int) -> Corners:
    """Where a box lies after dlib has doubled the image `times` times."""
    left, top, right, bottom = box
    for _ in range(times):
        left, right = (_rounded(2 * x + 2.5) for x in (left, right))
        top, bottom = (_rounded(2 * y + 1.5) for y in (top, bottom))
    return left, top, right, bottom


@dataclass(frozen=True)
class DetectionWindow:
    """The sliding window of a detector.

    `width_px` and `height_px`: its size before it is rounded to whole cells.
    """

    width_px: int
    height_px: int

    @property
    def filter_cells(self) -> tuple[int, int]:
        """Columns and rows of the HOG filter, padding included."""
        return _filter_cells(self.width_px), _filter_cells(self.height_px)

    def best_match(self, box: Corners) -> Corners:
        """Return the position of the window, over all layers, that dlib takes for this box."""
        columns, rows = self.filter_cells
        best_score, best_level = -1.0, 0
        best_centre = (0, 0)
        for level in range(_MOST_LEVELS):
            left, top, right, bottom = (
                _to_cell(_rounded(_down(value, level)), cells)
                for value, cells in zip(box, (columns, rows, columns, rows), strict=True)
            )
            centre = (_half(left + right + 1), _half(top + bottom + 1))
            window = self._window_at(centre, level)
            score = match_score(_moved(window, box[:2]), box)
            if score > best_score:
                best_score, best_level, best_centre = score, level, centre
            if _area((left, top, right, bottom)) <= 1:
                break
        return self._window_at(best_centre, best_level)

    def _window_at(self, centre: tuple[int, int], level: int) -> Corners:
        edges = []
        for middle, cells in zip(centre, self.filter_cells, strict=True):
            inner = cells - 2 * PADDING_CELLS
            first = middle - inner // 2
            last = first + inner - 1
            edges.append([_rounded(_up(_to_pixel(c, cells), level)) for c in (first, last)])
        (left, right), (top, bottom) = edges
        return left, top, right, bottom


@dataclass(frozen=True)
class UnreachableBox:
    """A box that no position of the window covers well enough."""

    index: int
    """Its place in the list of boxes of its image."""
    reason: str


def unreachable_boxes(
    boxes: Sequence[Corners], window: DetectionWindow, upsample: int = 0
) -> list[UnreachableBox]:
    """Find the boxes of one image that dlib would refuse.

    `boxes`: all boxes of the image that are trained on, pixels of the image as it is. `upsample`:
    how many times the image is doubled before training.
    """
    unreachable = []
    reachable: list[tuple[int, Corners]] = []
    for index, box in enumerate(boxes):
        scaled = upsampled(box, upsample)
        position = window.best_match(scaled)
        score = match_score(position, scaled)
        if score > MATCH_THRESHOLD:
            reachable.append((index, position))
        else:
            unreachable.append(UnreachableBox(index, _reason(box, window, upsample, score)))
    for place, (index, position) in enumerate(reachable):
        for other, other_position in reachable[place + 1 :]:
            if match_score(position, other_position) > _SAME_WINDOW_MATCH:
                reason = f"falls on the same window position as box {other + 1} of its image"
                unreachable.append(UnreachableBox(index, reason))
                break
    return sorted(unreachable, key=lambda box: box.index)


def _reason(box: Corners, window: DetectionWindow, upsample: int, score: float) -> str:
    width, height = box[2] - box[0] + 1, box[3] - box[1] + 1
    shape = width / height * window.height_px / window.width_px
    size = f"{width} x {height} px"
    against = f"the {window.width_px} x {window.height_px} px window covers it to {score:.2f}"
    limit = f"more than {MATCH_THRESHOLD} is needed"
    if not 0.6 < shape < 1 / 0.6:
        other = "wider" if shape > 1 else "narrower"
        return f"is {other} than the window ({size}): {against}, {limit}"
    doubled = "" if not upsample else f" even with images doubled {upsample} time(s)"
    return f"is too small ({size}){doubled}: {against}, {limit}"


def _area(box: Corners) -> int:
    return max(0, box[2] - box[0] + 1) * max(0, box[3] - box[1] + 1)


def _moved(box: Corners, corner: tuple[int, int]) -> Corners:
    return (*corner, corner[0] + box[2] - box[0], corner[1] + box[3] - box[1])


def _rounded(value: float) -> int:
    # Halves go away from zero, as in C; Python's round() moves them to the even neighbour.
    return math.floor(value + 0.5) if value >= 0 else -math.floor(0.5 - value)


def _half(value: int) -> int:
    # Rounds down for negative numbers too; dlib subtracts 1 before it divides them.
    return int((value - 1 if value < 0 else value) / 2)


def _down(value: float, levels: int) -> float:
    for _ in range(levels):
        value = (value - 0.3) * (5.0 / 6.0)
    return value


def _up(value: float, levels: int) -> float:
    for _ in range(levels):
        value = value * (6.0 / 5.0) + 0.3
    return value


def _to_cell(pixel: int, filter_cells: int) -> int:
    # One pixel and one cell of border; the division rounds towards zero, as in C.
    return int((pixel - 1) / CELL_SIZE_PX) - 1 + (filter_cells - 1) // 2


def _to_pixel(cell: int, filter_cells: int) -> int:
    pixel = (cell + 1 - (filter_cells - 1) // 2) * CELL_SIZE_PX + 1
    return pixel + (CELL_SIZE_PX // 2 if pixel >= 0 else -(CELL_SIZE_PX // 2))


def _filter_cells(window_px: int) -> int:
    first = -(window_px // 2)
    last = first + window_px - 1
    return _to_cell(last, 1) - _to_cell(first, 1) + 1 + 2 * PADDING_CELLS
