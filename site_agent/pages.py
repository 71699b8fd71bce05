"""Pages that are one HTML file each: they load nothing, run nothing and print well.

The markup lies in ``templates/``, the style of all pages in ``templates/base.html``. Templates
escape every value; only figures, which the program draws itself, are `Markup`.
"""

import math
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from site_agent.tables import Column

DASH = "–"


def render_page(template: str, **values: Any) -> str:
    """Return the page that a template makes of these values."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    # Strict, so that a misspelt name fails here and does not leave a hole in a page.
    environment = Environment(
        loader=PackageLoader("site_agent"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = cell_text
    return environment


def cell_text(value: object, column: Column) -> str:
    """Return the text of a table's cell as a page shows it: a dash for an unknown value."""
    if isinstance(value, str):
        return value
    text = column.text(value)
    if isinstance(value, float) and math.isfinite(value):
        return _typeset(text)
    return text or DASH


def number_text(value: float | None, digits: int = 2, unit: str = "") -> str:
    """Return a number with its unit; a dash where it is not known."""
    if value is None or not math.isfinite(value):
        return DASH
    text = _typeset(f"{value:.{digits}f}")
    return f"{text} {unit}" if unit else text


def _typeset(number: str) -> str:
    # Numbers rounded to zero have no sign; others get a true minus.
    return number.replace("-", "−") if float(number) else number.removeprefix("-")


def duration_text(seconds: float) -> str:
    """Return ``1 h 02 min 05 s``, ``2 min 05 s`` or ``5.0 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min {rest:02d} s" if hours else f"{minutes} min {rest:02d} s"
