"""Tables in text files: trials, pulses, traces, times of frames, sessions of a batch."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from site_agent.errors import TableFileError
from site_agent.eyeblink.records import Float64

Decimal = Literal[".", ","]

TIME_COLUMNS: Mapping[str, float] = {
    "timestamp_s": 1.0,
    "time_s": 1.0,
    "timestamp_ms": 1e-3,
    "time_ms": 1e-3,
}
"""Names of a column of times, and the factor to seconds."""

NOT_UTF8 = "is not UTF-8 text; save it as CSV UTF-8"
_DELIMITERS = ("\t", ";", ",")
_MISSING = ("", "n/a", "na", "nan")
_COMMA_TO_POINT = str.maketrans({",": ".", ".": "!"})


@dataclass(frozen=True)
class TableRow:
    """One row: its line in the file, counted from 1, and its cells by column."""

    line: int
    cells: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class TextTable:
    """A table with a header."""

    path: Path
    frame: Any
    """A pandas.DataFrame of cells as text without blanks around them, indexed by their lines;
    column names are in lower case, with underscores for blanks and hyphens."""
    decimal: Decimal = "."

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.frame.columns)

    @property
    def lines(self) -> list[int]:
        return list(self.frame.index)

    @property
    def rows(self) -> tuple[TableRow, ...]:
        records = self.frame.to_dict("records")
        return tuple(TableRow(*pair) for pair in zip(self.lines, records, strict=True))

    def __len__(self) -> int:
        return len(self.frame)

    def first_of(self, names: Sequence[str] | Mapping[str, float]) -> str | None:
        """Return the first of these names that is a column."""
        return next((name for name in names if name in self.columns), None)

    def cells(self, column: str) -> list[str]:
        return list(self.frame[column])

    def numbers(self, column: str) -> Float64:
        """Return a column of numbers, NaN for an empty cell and ``n/a``; shape (rows,)."""
        return read_numbers(self.path, column, self.lines, self.cells(column), self.decimal)

    def times_s(self) -> Float64:
        """Return the column of times in seconds, NaN where a cell is empty; shape (rows,)."""
        column = self.first_of(TIME_COLUMNS)
        if column is None:
            raise TableFileError(
                self.path,
                [(1, f"the columns are {self.named()}; expected {', '.join(TIME_COLUMNS)}")],
            )
        return self.numbers(column) * TIME_COLUMNS[column]

    def named(self) -> str:
        """Return the columns as a text for messages."""
        return ", ".join(self.columns)[:200]


def read_table(path: Path, decimal: Decimal = ".") -> TextTable:
    """Read a UTF-8 table with a header line, separated by commas, semicolons or tabs."""
    frame = _text_frame(path)
    frame.index += 1
    if not len(frame):
        raise TableFileError(path, "is empty; expected a header line and rows")
    names = [column_name(cell) for cell in frame.iloc[0]]
    repeated = sorted({name for name in names if name and names.count(name) > 1})
    if repeated:
        raise TableFileError(path, [(1, f"the column {repeated[0]!r} is there twice")])
    named = [place for place, name in enumerate(names) if name]
    cells = frame.iloc[1:, named].apply(lambda column: column.str.strip())
    cells.columns = [names[place] for place in named]
    return TextTable(path, cells[(cells != "").any(axis="columns")], decimal)


def read_numbers(
    path: Path, column: str, lines: Sequence[int], cells: Sequence[str], decimal: Decimal = "."
) -> Float64:
    """Return words as numbers, NaN for an empty one and ``n/a``; see `TextTable.numbers`."""
    import pandas as pd

    texts = pd.Series(list(cells), dtype=str).str.strip()
    if decimal == ",":
        texts = texts.str.translate(_COMMA_TO_POINT)
    numbers = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    missing = texts.str.lower().str.replace("!", ".").isin(_MISSING).to_numpy()
    bad = np.flatnonzero(~np.isfinite(numbers) & ~missing).tolist()
    if bad:
        expected = "expected a number"
        if any("," in cells[index] for index in bad):
            expected += " (for decimal commas set decimal to ,)"
        raise TableFileError(
            path, [(lines[i], f"{column} is {cells[i][:40]!r}, {expected}") for i in bad]
        )
    return np.where(missing, np.nan, numbers)


def first_line(path: Path) -> str:
    """Return the first line of a UTF-8 text."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            line = file.readline(100_000)
            # Excel's way to name the separator, which is no header.
            return file.readline(100_000) if _names_separator(line) else line
    except OSError as error:
        raise TableFileError(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise TableFileError(path, NOT_UTF8) from error


def _names_separator(line: str) -> bool:
    return re.fullmatch(r"sep=.\s*", line, re.IGNORECASE) is not None


def _skipped_lines(path: Path) -> int:
    with path.open(encoding="utf-8-sig") as file:
        return int(_names_separator(file.readline(100)))


def header_of(path: Path) -> list[str]:
    """Return the cells of the first line as names of columns."""
    line = first_line(path).rstrip("\n")
    return [column_name(cell.strip('"')) for cell in line.split(_delimiter_of(line))]


def column_name(cell: str) -> str:
    """Return the name in lower case, blanks and hyphens as underscores."""
    return re.sub(r"[\s\-]+", "_", cell.strip().lower())


def _delimiter_of(line: str) -> str:
    return max(_DELIMITERS, key=line.count)


def _text_frame(path: Path) -> Any:
    import pandas as pd

    delimiter = _delimiter_of(first_line(path))
    skipped = _skipped_lines(path)
    try:
        frame = pd.read_csv(
            path,
            skiprows=skipped,
            sep=delimiter,
            header=None,
            dtype=str,
            keep_default_na=False,
            skip_blank_lines=False,
            skipinitialspace=True,
            encoding="utf-8-sig",
        ).fillna("")
        frame.index += skipped
        return frame
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except UnicodeDecodeError as error:
        raise TableFileError(path, NOT_UTF8) from error
    except pd.errors.ParserError as error:
        raise TableFileError(path, str(error).rpartition("error: ")[2].strip()) from error
