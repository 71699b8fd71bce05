"""The table of this package: columns are data, and rows become CSV or Markdown.

A `Table` knows its columns (name, type, unit, meaning, format) and no rows. Rows come with each
call, a value a column; ``None`` and NaN are missing values and become empty cells. Descriptions
of a table for programs (data packages, sidecars) use the same columns.
"""

import csv
import io
import math
import shlex
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from aggregators.whole_file import whole_file, write_whole

MISSING_VALUE = ""
"""The text of a cell without a value."""

Row = Sequence[object]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: Literal["string", "integer", "number", "boolean"] = "string"
    """Its type in a JSON table schema."""
    unit: str = ""
    """Empty for numbers without one, and for words."""
    description: str = ""
    format: str = ""
    """Format of floating-point numbers, such as ``.4f``; if empty, all digits are written."""
    label: str = ""
    """The heading for people; if empty, the name with blanks for underscores."""

    @property
    def heading(self) -> str:
        return self.label or self.name.replace("_", " ")

    def text(self, value: object) -> str:
        """Return the text of a cell: the same in CSV, Markdown and on a terminal."""
        if isinstance(value, str):
            return value
        if isinstance(value, float):
            return MISSING_VALUE if math.isnan(value) else format(value, self.format)
        if isinstance(value, bool):
            return "true" if value else "false"
        return MISSING_VALUE if value is None else str(value)


def columns_of(names: str | Iterable[str], format: str = "") -> tuple[Column, ...]:  # noqa: A002
    """Return columns that need no more than a name, and a format for their numbers.

    `names`: Or one text in which blanks separate them.
    """
    listed = names.split() if isinstance(names, str) else names
    return tuple(Column(name, format=format) for name in listed)


@dataclass(frozen=True)
class Table:
    """The columns of a table, and how its rows are written."""

    name: str
    columns: tuple[Column, ...]
    """In the order of the rows' values."""
    title: str = ""
    """For people."""
    key: str = ""
    """The column that is unique and never empty; may be empty if no other table refers to it."""
    levels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The values that a column of words can have, and their meanings."""

    @property
    def file_name(self) -> str:
        return f"{self.name}.csv"

    @property
    def header(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def texts(self, rows: Iterable[Row]) -> Iterator[list[str]]:
        """Yield each row as texts: the rows of CSV files and of a terminal's tables."""
        for row in rows:
            yield [column.text(value) for column, value in zip(self.columns, row, strict=True)]

    def markdown(self, rows: Iterable[Row]) -> list[str]:
        """Return the lines of a Markdown table: the first column left, the others right."""
        lines = [
            _markdown_line(column.heading for column in self.columns),
            "|---" + "|---:" * (len(self.columns) - 1) + "|",
        ]
        return lines + [_markdown_line(texts) for texts in self.texts(rows)]

    def write_csv(self, path: Path, rows: Iterable[Row]) -> Path:
        """Write the rows, header first, as a whole file; return its path."""
        with self.open_csv(path) as write:
            write(rows)
        return path

    @contextmanager
    def open_csv(self, path: Path) -> Iterator[Callable[[Iterable[Row]], None]]:
        """Write rows in portions; the file appears, whole, when the block ends without error."""
        with whole_file(path) as file:
            stream = io.TextIOWrapper(file, encoding="utf-8", newline="")
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(self.header)
            yield lambda rows: writer.writerows(self.texts(rows))
            # The binary file belongs to `whole_file`, which flushes and closes it.
            stream.flush()
            stream.detach()


def _markdown_line(cells: Iterable[str]) -> str:
    escaped = (
        " ".join(cell.replace("\\", "\\\\").replace("|", "\\|").splitlines()) for cell in cells
    )
    return f"| {' | '.join(escaped)} |"


Tables = Sequence[tuple[Table, Sequence[Sequence[Any]]]]
_WIDTH = 79


def write_tables(
    folder: Path,
    title: str,
    tables: Tables,
    findings: Sequence[str],
    notes: str,
    *,
    repeat: Sequence[str],
    only_csv: Collection[Table] = (),
    only_text: Collection[Table] = (),
) -> list[Path]:
    """Write ``table.md`` and a CSV file for each table that has rows; return their files.

    `findings`: The verdict first. `notes`: Notes for readers of the tables. `repeat`: The words of
    the command. `only_csv`: Tables that are too long to read. `only_text`: Excerpts of other
    tables.
    """
    filled = [(table, rows) for table, rows in tables if rows]
    lines = textwrap.wrap(findings[0], _WIDTH) if findings else []
    lines += [""] * bool(lines) + [f"- {finding}" for finding in findings[1:]]
    lines += [""] * (len(findings) > 1) + [f"# {title}", ""]
    for table, rows in filled:
        if table not in only_csv:
            heading = table.title or table.name.replace("_", " ").capitalize()
            lines += [f"## {heading}", "", *table.markdown(rows), ""]
    lines += [*textwrap.wrap(notes, _WIDTH), "", "To repeat it:", "", f"    {shlex.join(repeat)}"]
    write_whole(folder / "table.md", "\n".join(lines) + "\n")
    written = [
        table.write_csv(folder / table.file_name, rows)
        for table, rows in filled
        if table not in only_text
    ]
    return [folder / "table.md", *written]
