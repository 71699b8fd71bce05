"""The look of every plot and of drawings over photographs: colours, sizes, saving.

Lines of a plot differ in dash and mark as well as in colour, so that a print in grey can be read.
Over photographs, `TRUE_RGB` marks annotations and known truth, `FOUND_RGB` a model's results, in
every picture.
"""

import hashlib
import io
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from aggregators.whole_file import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Float64 = NDArray[np.float64]
RGB = tuple[int, int, int]

TRUE_RGB: RGB = (255, 210, 0)
FOUND_RGB: RGB = (80, 255, 200)
INK_RGB: RGB = (235, 235, 235)
PAPER_RGB: RGB = (25, 25, 25)

# Okabe and Ito's colours, which people of all kinds of colour vision tell apart.
BLACK, BLUE, VERMILION, GREEN = "#000000", "#0072b2", "#d55e00", "#009e73"
COLOURS = (BLACK, BLUE, VERMILION, GREEN, "#cc79a7", "#56b4e9", "#e69f00")
# Darker than green and vermilion above: trials are numbered in them, in small type.
CS_COLOUR, US_COLOUR = "#3d6b1f", "#b34700"
SOFT, REFERENCE = "0.45", "0.5"
"""Greys of single observations behind their mean, and of levels to compare with."""
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKS = ("o", "s", "^", "D", "v", "X", "P", "*", "<", ">", "h")
HATCHES = ("", "////", "....", "xxxx")
HATCH_PARTIAL, HATCH_CLOSURE = "////", "xxxx"

TITLE_PT, PANEL_PT, LEGEND_PT, SMALL_PT = 10, 9, 8, 7
_DOTS_PER_INCH = 110
_LARGEST_IN = (60.0, 30.0)


def new_figure(width_in: float, height_in: float) -> "Figure":
    """Return an empty figure, at most 60 x 30 inches, that lays out its parts by itself."""
    figure = _bare_figure(min(width_in, _LARGEST_IN[0]), min(height_in, _LARGEST_IN[1]))
    figure.set_layout_engine("constrained")
    return figure


def new_figure_with_margins(width_in: float, height_in: float, **spacing: float) -> "Figure":
    """Return an empty figure with fixed margins: to compute them takes as long as to draw."""
    figure = _bare_figure(width_in, height_in)
    margins = {"left": 0.7 / width_in, "right": 1.0 - 0.2 / width_in}
    margins |= {"bottom": 0.5 / height_in, "top": 1.0 - 0.3 / height_in}
    figure.subplots_adjust(**{**margins, **spacing})
    return figure


def _bare_figure(width_in: float, height_in: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), dpi=_DOTS_PER_INCH)
    # Not pyplot, which keeps every figure and may look for a display.
    FigureCanvasAgg(figure)
    return figure


def line_style(number: int) -> dict[str, Any]:
    """Return how to draw the line of the model of this number, counted from 0."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKS[number % len(MARKS)],
        "linewidth": 1.4,
    }


def draw_grid(axes: "Axes", axis: Literal["both", "x", "y"] = "both") -> None:
    """Draw a faint grid behind everything else."""
    axes.grid(visible=True, axis=axis, color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)


def save_png(figure: "Figure", path: Path) -> None:
    """Write a figure as a PNG file, whole or not at all."""
    with whole_file(path) as file:
        figure.savefig(file, format="png")


def svg_text(figure: "Figure", title: str) -> str:
    """Return a figure as an SVG element in the colours of its page, with the same bytes each time.

    The title is read by screen readers. It also makes the element's identifiers unique in a page,
    so each figure of a page needs another title.
    """
    import matplotlib

    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "poolctl", "svg.fonttype": "none"}):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    prefix = "f" + hashlib.sha256(title.encode()).hexdigest()[:8]
    text = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{prefix}-", text[text.index("<svg") :])
    text = _HEX_COLOUR.sub(lambda match: f"var(--{_name_colour(match[0])}, {match[0]})", text)
    return text.replace("<svg", f'<svg class="plot" role="img" aria-label="{escape(title)}"', 1)


_HEX_COLOUR = re.compile(r"(?<=: )#[0-9a-f]{6}\b")
_PAGE_COLOURS = {
    BLUE: "one",
    VERMILION: "two",
    US_COLOUR: "two",
    GREEN: "three",
    CS_COLOUR: "three",
}


def _name_colour(colour: str) -> str:
    """Return the colour of a page for one of the figures: ink, paper or a shade between them."""
    if colour in _PAGE_COLOURS:
        return _PAGE_COLOURS[colour]
    lightness = int(colour[1:3], 16)
    shades = ((0x40, "ink"), (0xA0, "soft"), (0xF0, "faint"))
    return next((name for highest, name in shades if lightness < highest), "paper")


def thinned(times_s: Float64, values: Float64, most: int) -> tuple[Float64, Float64]:
    """Keep the lowest and the highest of each run of values, so that short dips stay visible."""
    block = len(values) // most
    if block < 3:
        return times_s, values
    whole = len(values) // block * block
    runs = values[:whole].reshape(-1, block)
    low = np.where(np.isfinite(runs), runs, np.inf).min(axis=1)
    high = np.where(np.isfinite(runs), runs, -np.inf).max(axis=1)
    pairs = np.stack([low, high], axis=1).ravel()
    return np.repeat(times_s[:whole:block], 2), np.where(np.isfinite(pairs), pairs, np.nan)
