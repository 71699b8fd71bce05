"""The one reader of tables in text files: trials, traces, times, sessions, gaze, clips, persons.

A table has a header line. Everything that spreadsheets write is read: commas, semicolons or tabs
between cells (or as the first line ``sep=;`` says), decimal commas, UTF-8 with and without a byte
order mark, UTF-16, and the encoding of Western European Windows.
"""

import codecs
import csv
import io
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from site_agent.errors import TableFileError

Float64 = NDArray[np.float64]
Decimal = Literal["auto", ".", ","]
"""The decimal mark of a table; auto: a comma where no number has a point."""

TIME_COLUMNS: Mapping[str, float] = {
    "timestamp_s": 1.0,
    "time_s": 1.0,
    "timestamp_ms": 1e-3,
    "time_ms": 1e-3,
}
"""Names of a column of times, and the factor to seconds."""

_DELIMITERS = {"\t": "tabs", ";": "semicolons", ",": "commas"}
_MISSING = {"", "n/a", "na", "nan"}
_WITH_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
_WITH_POINT = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?", re.IGNORECASE)
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OF_OTHER_PROGRAMS = {
    b"PK\x03\x04": "a spreadsheet or another archive",
    b"\xd0\xcf\x11\xe0": "a spreadsheet of an old program",
    b"\x89HDF": "an HDF5 file",
}
_HEAD_BYTES = 100_000
_log = logging.getLogger(__name__)
_remarked: set[tuple[Path, str]] = set()


@dataclass(frozen=True)
class TableRow:
    """One row: its line in the file, counted from 1, and its cells by column."""

    line: int
    cells: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class TextTable:
    """A table with a header."""

    path: Path
    columns: tuple[str, ...]
    """Names in lower case, with underscores for blanks and hyphens."""
    lines: tuple[int, ...]
    """The line of each row in the file."""
    texts: Mapping[str, Sequence[str]]
    """The cells of each column without blanks around them; numbers have decimal points."""
    taken_for: str = ""
    """The kind of text, for messages: ``separated by semicolons, decimal commas, UTF-8``."""

    @property
    def rows(self) -> Iterator[TableRow]:
        for number, line in enumerate(self.lines):
            yield TableRow(line, {name: self.texts[name][number] for name in self.columns})

    def __len__(self) -> int:
        return len(self.lines)

    def first_of(self, names: Sequence[str] | Mapping[str, float]) -> str | None:
        """Return the first of these names that is a column."""
        return next((name for name in names if name in self.columns), None)

    def cells(self, column: str) -> list[str]:
        return list(self.texts[column])

    def numbers(self, column: str) -> Float64:
        """Return a column of numbers, NaN for an empty cell and ``n/a``; shape (rows,)."""
        return read_numbers(self.path, column, self.lines, self.texts[column])

    def times_s(self) -> Float64:
        """Return the column of times in seconds, NaN where a cell is empty; shape (rows,)."""
        column = self.first_of(TIME_COLUMNS)
        if column is None:
            raise TableFileError(
                self.path,
                [(1, f"the columns are {self.named()}; expected {', '.join(TIME_COLUMNS)}")],
            )
        return self.seconds(column, TIME_COLUMNS[column])

    def seconds(self, column: str, unit_s: float = 1.0) -> Float64:
        """Return a column of times in seconds, NaN where a cell is empty; shape (rows,).

        `unit_s`: of numbers. Date-times and times of day count from midnight of the first day, so
        two files of one day have one clock.
        """
        cells = self.texts[column]
        if not any(":" in cell for cell in cells):
            return self.numbers(column) * unit_s
        try:
            moments = [None if cell.lower() in _MISSING else _moment(cell) for cell in cells]
            first = next(moment for moment in moments if moment is not None)
            midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
            return np.array(
                [np.nan if at is None else (at - midnight).total_seconds() for at in moments]
            )
        except (ValueError, TypeError) as error:
            raise TableFileError(
                self.path,
                f"{column}: {error}; expected numbers, or times such as 2026-05-06 14:30:00.250",
            ) from error

    def named(self) -> str:
        """Return the columns and the kind of the text, for messages."""
        return f"{', '.join(self.columns)[:200]} ({self.taken_for})"


def read_table(path: Path, decimal: Decimal = "auto") -> TextTable:
    """Read a table with a header line, separated by commas, semicolons or tabs."""
    text, encoding = read_text(path)
    first, rest, skipped = _without_separator_line(text)
    delimiter = first or _delimiter_of(rest.partition("\n")[0])
    rows = list(_rows(path, rest, delimiter, skipped))
    if not rows:
        raise TableFileError(path, "is empty; expected a header line and rows")
    header_line, header = rows[0]
    names = [column_name(cell) for cell in header]
    repeated = sorted(name for name, count in Counter(names).items() if name and count > 1)
    if repeated:
        raise TableFileError(path, [(header_line, f"the column {repeated[0]!r} is there twice")])
    _require_width(path, rows, len(names), delimiter)
    filled = [(line, cells) for line, cells in rows[1:] if any(cells)]
    columns = {
        name: [cells[place] if place < len(cells) else "" for _, cells in filled]
        for place, name in enumerate(names)
        if name
    }
    mark = decimal_mark(columns.values()) if decimal == "auto" else decimal
    if mark == ",":
        columns = {name: with_points(cells) for name, cells in columns.items()}
    traits = [f"separated by {_DELIMITERS.get(delimiter, repr(delimiter))}"]
    traits += ["decimal commas"] * (mark == ",") + [encoding]
    if mark == "," or encoding != "UTF-8" or first:
        _remark(path, f"read as a table {', '.join(traits)}")
    lines = tuple(line for line, _ in filled)
    return TextTable(path, tuple(columns), lines, columns, ", ".join(traits))


def _rows(path: Path, text: str, delimiter: str, skipped: int) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    line = skipped + 1
    try:
        for cells in reader:
            if cells:
                yield line, [cell.strip() for cell in cells]
            line = skipped + reader.line_num + 1
    except csv.Error as error:
        raise TableFileError(path, [(line, str(error))]) from error


def _require_width(
    path: Path, rows: Sequence[tuple[int, Sequence[str]]], width: int, delimiter: str
) -> None:
    hint = "; between commas, decimal commas need quotes" if delimiter == "," else ""
    wide = [
        (line, f"has {len(cells)} cells, expected {width} as in the header{hint}")
        for line, cells in rows[1:]
        if len(cells) > width and any(cells[width:])
    ]
    if wide:
        raise TableFileError(path, wide)


def decimal_mark(columns: Iterable[Iterable[str]]) -> Literal[".", ","]:
    """Return the decimal mark: a comma where numbers have one and none has a point."""
    commas = False
    for column in columns:
        for cell in column:
            if "." in cell and _WITH_POINT.fullmatch(cell):
                return "."
            commas = commas or ("," in cell and _WITH_COMMA.fullmatch(cell) is not None)
    return "," if commas else "."


def with_points(cells: Iterable[str]) -> list[str]:
    """Return cells with points for the commas of numbers; a number with a point is no number."""
    return [
        cell.replace(",", ".")
        if _WITH_COMMA.fullmatch(cell)
        else f"{cell} (decimal commas)"
        if _WITH_POINT.fullmatch(cell)
        else cell
        for cell in cells
    ]


def read_numbers(path: Path, column: str, lines: Sequence[int], cells: Sequence[str]) -> Float64:
    """Return words as numbers, NaN for an empty one and ``n/a``; see `TextTable.numbers`."""
    try:
        numbers = np.array([_number(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        numbers = np.array([np.inf])
    if np.isinf(numbers).any():
        bad = [
            (line, cell) for line, cell in zip(lines, cells, strict=True) if not _is_number(cell)
        ]
        expected = "expected a number"
        if any("," in cell for _, cell in bad):
            expected += " (other numbers of the table have decimal points)"
        raise TableFileError(
            path, [(line, f"{column} is {cell[:40]!r}, {expected}") for line, cell in bad]
        )
    return numbers


def _moment(cell: str) -> datetime:
    return datetime.fromisoformat(cell if "-" in cell else f"1970-01-01 {cell}")


def _number(cell: str) -> float:
    if cell.lower() in _MISSING:
        return np.nan
    if "_" in cell:
        raise ValueError(cell)
    return float(cell)


def _is_number(cell: str) -> bool:
    try:
        return not np.isinf(_number(cell))
    except ValueError:
        return False


def read_text(path: Path) -> tuple[str, str]:
    """Return the text of a file, and its encoding.

    Text that is neither UTF-8 nor UTF-16 is taken for that of Western European Windows, which is
    logged.

    Raises `TableFileError`: the file cannot be read, or is no text.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TableFileError(path, error.strerror or str(error)) from error
    return _decode(path, data)


def _decode(path: Path, data: bytes) -> tuple[str, str]:
    for mark, program in _OF_OTHER_PROGRAMS.items():
        if data.startswith(mark):
            raise TableFileError(path, f"is {program}, no text; save the table as CSV UTF-8")
    encoding = next((name for mark, name in _BYTE_ORDER_MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        if b"\0" in data or encoding != "utf-8":
            raise TableFileError(path, "is no text; expected a table as CSV UTF-8") from error
        text, encoding = data.decode("cp1252", "replace"), "Windows-1252"
        _remark(
            path,
            "is not UTF-8, so it is read as text of Western European Windows (Windows-1252); save "
            "it as UTF-8 if names come out wrong",
        )
    if "\0" in text:
        raise TableFileError(path, "is no text; expected a table as CSV UTF-8")
    return text, encoding.upper().removesuffix("-SIG") if encoding.islower() else encoding


def _remark(path: Path, text: str) -> None:
    """Log a remark on a file, once."""
    if (path, text) not in _remarked:
        _remarked.add((path, text))
        _log.info(f"{path}: {text}")


def first_line(path: Path) -> str:
    """Return the first line of a text, behind a line that names the separator."""
    return _without_separator_line(_head(path))[1].partition("\n")[0]


def _head(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_HEAD_BYTES)
    except OSError as error:
        raise TableFileError(path, error.strerror or str(error)) from error
    # A character may end beyond the part that is read.
    whole = data if len(data) < _HEAD_BYTES else data[: max(data.rfind(b"\n"), 1)]
    return _decode(path, whole)[0]


def _without_separator_line(text: str) -> tuple[str, str, int]:
    """Return the separator that Excel's first line ``sep=;`` names, the rest, and lines skipped."""
    line, _, rest = text.partition("\n")
    match = re.fullmatch(r"\"?sep=(.)\"?\s*", line, re.IGNORECASE)
    return (match[1], rest, 1) if match else ("", text, 0)


def header_of(path: Path) -> list[str]:
    """Return the cells of the first line as names of columns."""
    separator, rest, _ = _without_separator_line(_head(path))
    line = rest.partition("\n")[0].strip()
    return [column_name(cell.strip('"')) for cell in line.split(separator or _delimiter_of(line))]


def column_name(cell: str) -> str:
    """Return the name in lower case, blanks and hyphens as underscores."""
    return re.sub(r"[\s\-]+", "_", cell.strip().lower())


def _delimiter_of(line: str) -> str:
    return max(_DELIMITERS, key=line.count)
