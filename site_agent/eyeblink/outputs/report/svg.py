"""Plots as SVG text, drawn in the page's own colours so that they follow light, dark and print.

Nothing is told by colour alone: lines differ in their dashes, areas in their hatching, marks in
their shape, and each has its name beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

import numpy as np

from site_agent.eyeblink.records import Float64

Range = tuple[float, float]
Mark = Literal["disc", "ring", "triangle", "triangle-open", "cross", "square"]

WIDE = 900.0
"""Pictures from this width scroll on a telephone rather than shrink."""

HATCHES = """<svg width="0" height="0" aria-hidden="true" style="position:absolute"><defs>
<pattern id="h1" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<line x1="0" y1="0" x2="0" y2="6" class="hatch"/></pattern>
<pattern id="h2" width="6" height="6" patternUnits="userSpaceOnUse">
<path d="M0,0L6,6M6,0L0,6" class="hatch"/></pattern>
<pattern id="h3" width="4" height="4" patternUnits="userSpaceOnUse">
<line x1="0" y1="2" x2="4" y2="2" class="hatch"/></pattern>
</defs></svg>"""
"""Once a page: what areas are filled with."""


@dataclass
class Plot:
    """One pair of axes; everything is given in the data's units.

    Attributes
    ----------
    title : str
        What the plot shows, for screen readers and on hovering.
    x_range, y_range : (float, float)
    width, height : float
        Of the picture, in its own units; the page scales it.
    """

    title: str
    x_range: Range
    y_range: Range
    width: float = 480.0
    height: float = 240.0
    left: float = 48.0
    right: float = 16.0
    top: float = 18.0
    bottom: float = 36.0
    _parts: list[str] = field(default_factory=list)

    def x(self, value: float) -> float:
        low, high = self.x_range
        return self.left + (value - low) / (high - low) * (self.width - self.left - self.right)

    def y(self, value: float) -> float:
        low, high = self.y_range
        span = self.height - self.top - self.bottom
        return self.height - self.bottom - (value - low) / (high - low) * span

    def axes(self, x_label: str, y_label: str, *, x_ticks: int = 8, y_ticks: int = 5) -> None:
        """Draw the frame, the grid, numbers and labels."""
        base, top = self.height - self.bottom, self.top
        right = self.width - self.right
        for value in nice_ticks(self.x_range, x_ticks):
            place = self.x(value)
            self._add(f'<path class="grid" d="M{place:.1f},{top:.1f}V{base:.1f}"/>')
            self.text_at(place, base + 13, number_text(value), "tick", anchor="middle")
        for value in nice_ticks(self.y_range, y_ticks):
            place = self.y(value)
            self._add(f'<path class="grid" d="M{self.left:.1f},{place:.1f}H{right:.1f}"/>')
            self.text_at(self.left - 5, place + 4, number_text(value), "tick", anchor="end")
        self._add(f'<path class="axis" d="M{self.left:.1f},{top:.1f}V{base:.1f}H{right:.1f}"/>')
        if x_label:
            middle = (self.left + self.width - self.right) / 2
            self.text_at(middle, self.height - 5, x_label, "label", anchor="middle")
        if y_label:
            middle = (top + base) / 2
            self._add(
                f'<text class="label" text-anchor="middle" '
                f'transform="translate(12,{middle:.1f}) rotate(-90)">{escape(y_label)}</text>'
            )

    def line(self, x: Float64, y: Float64, kind: str) -> None:
        """Draw a line of class `kind`; NaN breaks it."""
        pieces = []
        for piece in _known_pieces(y):
            points = [
                f"{self.x(float(across)):.1f},{self.y(float(up)):.1f}"
                for across, up in zip(x[piece], y[piece], strict=True)
            ]
            pieces.append("M" + "L".join(points) + ("h.1" if len(points) == 1 else ""))
        if pieces:
            self._add(f'<path class="{kind}" d="{"".join(pieces)}"/>')

    def band(self, x: Float64, low: Float64, high: Float64, kind: str) -> None:
        """Fill between two lines."""
        for piece in _known_pieces(low + high):
            there = zip(x[piece], high[piece], strict=True)
            back = zip(x[piece][::-1], low[piece][::-1], strict=True)
            points = [
                f"{self.x(float(across)):.1f},{self.y(float(up)):.1f}"
                for across, up in (*there, *back)
            ]
            self._add(f'<path class="{kind}" d="M{"L".join(points)}Z"/>')

    def area(self, x_range: Range, kind: str, y_range: Range | None = None, tip: str = "") -> None:
        """Fill a rectangle, the full height unless `y_range` is given."""
        left, right = (
            min(max(self.x(value), self.left), self.width - self.right) for value in x_range
        )
        low, high = y_range or self.y_range
        top, base = self.y(high), self.y(low)
        about = f"<title>{escape(tip)}</title>" if tip else ""
        self._add(
            f'<rect class="{kind}" x="{left:.1f}" y="{top:.1f}" '
            f'width="{max(right - left, 0.5):.1f}" height="{max(base - top, 0.0):.1f}">'
            f"{about}</rect>"
        )

    def rule(self, x: float, kind: str, name: str = "", row: int = 0) -> None:
        """Draw a vertical line at `x`, with its name above."""
        place = self.x(x)
        self._add(
            f'<path class="{kind}" d="M{place:.1f},{self.top:.1f}'
            f'V{self.height - self.bottom:.1f}"/>'
        )
        if name:
            self.text_at(place, self.top - 4 - 10 * row, name, "note", anchor="middle")

    def level(self, y: float, kind: str, name: str = "") -> None:
        """Draw a horizontal line at `y`, with its name at the right end."""
        place, right = self.y(y), self.width - self.right
        self._add(f'<path class="{kind}" d="M{self.left:.1f},{place:.1f}H{right:.1f}"/>')
        if name:
            self.text_at(right - 2, place - 3, name, "note", anchor="end")

    def marks(self, x: Sequence[float], y: Sequence[float], shape: Mark, size: float = 3.0) -> None:
        """Draw a mark at every point."""
        for across, up in zip(x, y, strict=True):
            if math.isfinite(across) and math.isfinite(up):
                self._add(_mark(self.x(across), self.y(up), shape, size))

    def text(
        self, x: float, y: float, text: str, kind: str = "note", anchor: str = "middle"
    ) -> None:
        self.text_at(self.x(x), self.y(y), text, kind, anchor=anchor)

    def text_at(
        self, left: float, base: float, text: str, kind: str, *, anchor: str = "start"
    ) -> None:
        """Write text at a place in the picture's own units."""
        self._add(
            f'<text class="{kind}" x="{left:.1f}" y="{base:.1f}" '
            f'text-anchor="{anchor}">{escape(text)}</text>'
        )

    def mark_at(self, left: float, base: float, shape: Mark, size: float = 4.0) -> None:
        self._add(_mark(left, base, shape, size))

    def svg(self) -> str:
        """Return the finished picture."""
        kind = "plot wide" if self.width >= WIDE else "plot"
        return (
            f'<svg class="{kind}" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'style="max-width:{1.3 * self.width:.0f}px" '
            f'aria-label="{escape(self.title)}"><title>{escape(self.title)}</title>'
            f"{''.join(self._parts)}</svg>"
        )

    def _add(self, part: str) -> None:
        self._parts.append(part)


def _mark(left: float, base: float, shape: Mark, size: float) -> str:
    if shape in {"disc", "ring"}:
        kind = "full" if shape == "disc" else "empty"
        return f'<circle class="{kind}" cx="{left:.1f}" cy="{base:.1f}" r="{size:g}"/>'
    if shape == "square":
        return (
            f'<rect class="empty" x="{left - size:.1f}" y="{base - size:.1f}" '
            f'width="{2 * size:g}" height="{2 * size:g}"/>'
        )
    if shape == "cross":
        corner = f"M{left - size:.1f},{base - size:.1f}l{2 * size:g},{2 * size:g}"
        return f'<path class="stroke" d="{corner}m{-2 * size:g},0l{2 * size:g},{-2 * size:g}"/>'
    kind = "full" if shape == "triangle" else "empty"
    corners = f"M{left - size:.1f},{base - size:.1f}h{2 * size:g}l{-size:g},{1.7 * size:g}Z"
    return f'<path class="{kind}" d="{corners}"/>'


def _known_pieces(values: Float64) -> Iterator[slice]:
    """Yield the stretches without NaN."""
    known = np.concatenate([[False], np.isfinite(values), [False]])
    edges = np.flatnonzero(np.diff(known.astype(np.int8)))
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        yield slice(int(start), int(end))


def nice_ticks(over: Range, wanted: int) -> list[float]:
    """Return round numbers within a range, about as many as wanted."""
    low, high = over
    rough = (high - low) / max(wanted, 1)
    if not (math.isfinite(rough) and rough > 0):
        return []
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def number_text(value: float) -> str:
    """Return a short number; a dash where it is not known."""
    if not math.isfinite(value):
        return "–"
    return f"{round(value, 10):.6g}".replace("-", "−")


def padded(values: Sequence[float] | Float64, *, least: float, share: float = 0.05) -> Range:
    """Return a range around all known values, at least so wide."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return 0.0, least
    low, high = float(known.min()), float(known.max())
    room = max(share * (high - low), (least - (high - low)) / 2.0)
    return low - room, high + room
