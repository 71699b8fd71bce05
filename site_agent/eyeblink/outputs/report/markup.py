"""Small pieces of HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from site_agent.pictures.plot_style import svg_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASH = "–"


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    """Return a number with its unit; a dash where it is not known."""
    if value is None or not math.isfinite(value):
        return DASH
    # Adding zero makes 0 of what would be shown as -0.
    text = f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")
    return f"{text} {unit}" if unit else text


def duration_text(seconds: float) -> str:
    """Return ``1 h 02 min 05 s``, ``2 min 05 s`` or ``5.0 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min {rest:02d} s" if hours else f"{minutes} min {rest:02d} s"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], words: Iterable[int] = (0,)) -> str:
    """Return a table; the columns `words` are set left."""
    left = set(words)
    kinds = [' class="words"' if place in left else "" for place in range(len(header))]
    head = "".join(
        f'<th scope="col"{kind}>{escape(name)}</th>'
        for kind, name in zip(kinds, header, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and what they are; long words may break."""
    body = "".join(
        f'<tr><th scope="row" class="words">{escape(name)}</th>'
        f'<td class="wrap">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f'<div class="scroll"><table><tbody>{body}</tbody></table></div>'


def tiles(entries: Iterable[tuple[str, str]]) -> str:
    """Return the numbers that are read first, as (number, what it is)."""
    items = "".join(
        f"<li><b>{escape(value)}</b><span>{escape(name)}</span></li>" for value, name in entries
    )
    return f'<ul class="tiles">{items}</ul>'


def figure(drawn: Figure | None, title: str, caption: str) -> str:
    """Return a figure with its caption; nothing where there is no figure."""
    if drawn is None:
        return ""
    return f"<figure>{svg_text(drawn, title)}<figcaption>{escape(caption)}</figcaption></figure>"


def section(name: str, title: str, *parts: str) -> str:
    """Return a section of the page."""
    return f'<section id="{name}"><h2>{escape(title)}</h2>{"".join(parts)}</section>'


def paragraph(text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f"<p{attribute}>{escape(text)}</p>" if text else ""


def folded(title: str, content: str, *, shown: bool) -> str:
    """Return content that can be folded away."""
    state = " open" if shown else ""
    return f"<details{state}><summary>{escape(title)}</summary>{content}</details>"
