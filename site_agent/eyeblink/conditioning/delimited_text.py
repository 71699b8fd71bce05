"""Small tables in text files as laboratory software and spreadsheets write them."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from site_agent.errors import TrialFileError

LARGEST_TABLE_BYTES = 256 * 1024 * 1024
_DELIMITERS = ("\t", ";", ",")
_MISSING = frozenset({"", "n/a", "na", "nan", "none", "null", "-", "."})
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_MAYBE_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


@dataclass(frozen=True)
class TableRow:
    """One row: `cells` by column name, and its line in the file counted from 1.

    `grouped` names the columns in which a comma may be one for thousands.
    """

    line: int
    cells: Mapping[str, str]
    grouped: frozenset[str] = frozenset()

    def number(self, column: str) -> float:
        """Return the number in a cell, as `parse_number`.

        Raises
        ------
        ValueError
            It is no finite number.
        """
        return parse_number(self.cells[column], grouped=column in self.grouped)


@dataclass(frozen=True)
class TextTable:
    """A table with a header; column names in lower case, blanks and hyphens as underscores."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]


def read_text_table(path: Path) -> TextTable:
    """Read a table separated by commas, semicolons or tabs.

    UTF-8 and UTF-16 with or without a byte order mark, else Latin-1. Empty lines and lines that
    begin with ``#`` are skipped.

    Raises
    ------
    TrialFileError
        The file is missing, empty, too large or no text, or a row does not have as many cells as
        the header.
    """
    text = read_text(path)
    numbered = [
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip(" \t,;") and not line.lstrip().startswith("#")
    ]
    if not numbered:
        raise TrialFileError(path, [(0, "is empty; expected a header line and one line a trial")])
    delimiter = delimiter_of(numbered[0][1])
    header = [column_name(cell) for cell in split_cells(numbered[0][1], delimiter)]
    while header and not header[-1]:
        header.pop()
    repeated = {name for name in header if header.count(name) > 1}
    if repeated:
        raise TrialFileError(
            path, [(numbered[0][0], f"the column {sorted(repeated)[0]!r} is there twice")]
        )
    named: list[tuple[int, dict[str, str]]] = []
    problems: list[tuple[int, str]] = []
    for number, line in numbered[1:]:
        cells = [cell.strip() for cell in split_cells(line, delimiter)]
        extra = [cell for cell in cells[len(header) :] if cell]
        if extra:
            problems.append(
                (number, f"{len(cells)} cells, expected {len(header)} as in the header")
            )
            continue
        cells += [""] * (len(header) - len(cells))
        named.append((number, dict(zip(header, cells, strict=False))))
    if problems:
        raise TrialFileError(path, problems)
    grouped = frozenset(
        name
        for name in header
        if delimiter == "," and not any(_is_surely_decimal(cells[name]) for _, cells in named)
    )
    rows = tuple(TableRow(number, cells, grouped) for number, cells in named)
    return TextTable(path, tuple(header), rows)


def _is_surely_decimal(cell: str) -> bool:
    """Tell whether the comma of a number can be none for thousands: ``15,5`` or ``0,450``."""
    return bool(_DECIMAL_COMMA.fullmatch(cell)) and not _MAYBE_THOUSANDS.fullmatch(cell)


def parse_number(text: str, *, grouped: bool = False) -> float:
    """Return a number, NaN for an empty cell, ``n/a`` and the like; decimal commas are read.

    Parameters
    ----------
    text : str
    grouped : bool
        Commas separate the cells of the table, and no number of the column shows that they are
        decimal, too: a quoted ``5,000`` is more likely five thousand than five, and refused.

    Raises
    ------
    ValueError
        The text is no finite number.
    """
    stripped = text.strip()
    if stripped.lower() in _MISSING:
        return math.nan
    if grouped and _MAYBE_THOUSANDS.fullmatch(stripped):
        raise ValueError(stripped)
    if _DECIMAL_COMMA.fullmatch(stripped):
        stripped = stripped.replace(",", ".")
    value = float(stripped)
    if not math.isfinite(value):
        raise ValueError(stripped)
    return value


def read_text(path: Path) -> str:
    """Return a text file's content.

    Raises
    ------
    TrialFileError
        The file is missing, too large or no text.
    """
    try:
        if path.stat().st_size > LARGEST_TABLE_BYTES:
            raise TrialFileError(
                path, [(0, f"is larger than {LARGEST_TABLE_BYTES >> 20} MiB: is it the video?")]
            )
        return decode_text(path, path.read_bytes())
    except OSError as error:
        raise TrialFileError(path, [(0, error.strerror or str(error))]) from error


def decode_text(path: Path, data: bytes) -> str:
    """Return the text that a file, or its beginning, holds.

    Raises
    ------
    TrialFileError
        It is no text.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        # The beginning of a file may end within a character.
        return data.decode("utf-16", errors="replace")
    if b"\0" in data:
        raise TrialFileError(path, [(0, "holds zero bytes; expected a text file (CSV or TSV)")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Only names of trials can hold such characters: any single-byte reading will do.
        return data.decode("latin-1")


def delimiter_of(line: str) -> str:
    """Return what separates the columns of a table, by its header."""
    return max(_DELIMITERS, key=line.count)


def split_cells(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line, without quotation marks around them."""
    return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))


def column_name(cell: str) -> str:
    """Return the name in lower case, blanks and hyphens as underscores."""
    return re.sub(r"[\s\-]+", "_", cell.strip().lower())
