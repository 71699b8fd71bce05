"""Figures of matplotlib as PNG files and as SVG inside a page."""

from __future__ import annotations

import hashlib
import io
import re
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from site_agent.eyeblink.records import Float64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LINE, SOFT = "#0b5394", "0.45"
CS_COLOUR, US_COLOUR = "#3d6b1f", "#b34700"
HATCH_PARTIAL, HATCH_CLOSURE = "////", "xxxx"


def new_figure(width_in: float, height_in: float, **spacing: float) -> Figure:
    """Return an empty figure with fixed margins: to compute them takes as long as to draw."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), dpi=110)
    margins = {"left": 0.7 / width_in, "right": 1.0 - 0.2 / width_in}
    margins |= {"bottom": 0.5 / height_in, "top": 1.0 - 0.3 / height_in}
    figure.subplots_adjust(**{**margins, **spacing})
    return figure


def svg_text(figure: Figure, title: str) -> str:
    """Return a figure as an SVG element with the same bytes each time.

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
    return text.replace("<svg", f'<svg class="plot" role="img" aria-label="{escape(title)}"', 1)


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
