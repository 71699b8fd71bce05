"""The results of a study as tables in SQL, and the tables and verdicts of its protocol.

Each step is a table: its factors, its measures, and the rows of each run's results. Python adds the
aggregates ``mean``, ``sd``, ``half`` (half width of Student's 95 % interval), ``paired_p`` (of
Student's test of paired differences), ``low`` and ``high`` (ends of a bootstrap interval), and the
functions ``label`` and ``place`` (position among the labels), ``text`` (a formatted number),
``spread`` (a number and its interval) and ``printf``. ``runs`` lists all runs, with the reasons of
those that failed.
"""

import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from string import Formatter
from typing import Any
from weakref import finalize

import numpy as np

from site_agent.errors import InvalidInputError
from site_agent.evaluation import bootstrap_intervals
from site_agent.studies.protocol_file import Step, TablePart, VerdictPart, parameters
from site_agent.tables import Column, Table, write_tables

Rows = list[tuple[Any, ...]]
_RESAMPLES = 2000


class Results:
    """The results of a study, and all that its protocol makes of them."""

    def __init__(
        self,
        content: Any,
        steps: Sequence[Step],
        results: Mapping[str, Any],
        settings: Any,
        *,
        facts: Mapping[str, Any] | None = None,
        failed: Mapping[str, str] | None = None,
    ) -> None:
        self.content, self._steps, self._results = content, steps, results
        self._parameters = parameters(settings)
        self._database = sqlite3.connect(":memory:")
        finalize(self, self._database.close)
        self._database.row_factory = sqlite3.Row
        _add_functions(self._database, content.labels)
        for part in content.steps:
            self._fill(part.name, (*part.factors, *part.measures), self._rows_of(part.name))
        runs = [
            {"key": step.key, "step": step.name, "reason": (failed or {}).get(step.key),
             "factors": json.dumps(dict(step.factors))}
            for step in steps
        ]  # fmt: skip
        self._fill("runs", ("key", "step", "reason", "factors"), runs)
        for name, columns in content.facts.items():
            self._fill(name, columns, (facts or {}).get(name, []))
        self._tables = [self._make(part) for part in content.tables]

    def query(self, sql: str) -> tuple[list[str], Rows]:
        """Return the columns and the rows of a query."""
        try:
            cursor = self._database.execute(sql, self._parameters)
        except sqlite3.Error as error:
            raise InvalidInputError(f"{error}, in the SQL: {' '.join(sql.split())}") from error
        return [column[0] for column in cursor.description], [tuple(row) for row in cursor]

    def check(self) -> None:
        """Raise `InvalidInputError` for SQL that cannot be read; for an empty table of results."""
        self.findings()
        for figure in self.content.figures:
            for panel in figure.panels:
                self.query(panel.sql)

    def findings(self) -> list[str]:
        """Return the sentences of all verdicts."""
        return [line for part in self.content.verdicts for line in self._sentences(part)]

    def write_tables(
        self, folder: Path, findings: Sequence[str], repeat: Sequence[str]
    ) -> list[Path]:
        """Write ``table.md`` and a CSV file for each table; return their files."""
        shown = [(table, rows) for part, table, rows in self._tables if part.only != "sql"]
        return write_tables(
            folder, self.content.title, shown, findings, " ".join(self.content.notes.split()),
            repeat=repeat,
            only_csv=[table for part, table, _ in self._tables if part.only == "csv"],
            only_text=[table for part, table, _ in self._tables if part.only == "markdown"],
        )  # fmt: skip

    def list_files(self, folder: Path) -> list[Path]:
        """Return the pictures that the runs made."""
        places = dict.fromkeys(step.place for step in self._steps)
        return [path for place in places for path in sorted((folder / place).glob("*.png"))]

    def _rows_of(self, name: str) -> list[dict[str, Any]]:
        rows = []
        for step in self._steps:
            if step.name == name and step.key in self._results:
                result = self._results[step.key]
                listed = result if isinstance(result, list) else [result]
                rows += [{"key": step.key, **step.factors, **row} for row in listed]
        return rows

    def _fill(self, name: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        names = list(dict.fromkeys(["key", *columns, *(column for row in rows for column in row)]))
        listed_names = ", ".join(f'"{column}"' for column in names)
        self._database.execute(f'CREATE TABLE "{name}" ({listed_names})')
        self._database.executemany(
            f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(names))})',
            [[_plain(row.get(column)) for column in names] for row in rows],
        )

    def _make(self, part: TablePart) -> tuple[TablePart, Table, Rows]:
        header, rows = self.query(part.sql)
        names = ", ".join(f'"{name}"' for name in header)
        self._database.execute(f'CREATE TABLE "{part.name}" ({names})')
        self._database.executemany(
            f'INSERT INTO "{part.name}" VALUES ({", ".join("?" * len(header))})', rows
        )
        if part.skip_empty:
            shown = [
                place for place in range(len(header)) if any(row[place] is not None for row in rows)
            ]
            header = [header[place] for place in shown]
            rows = [tuple(row[place] for place in shown) for row in rows]
        formats = {name: form for form, names in part.formats.items() for name in names.split(", ")}
        columns = [Column(name, format=formats.get(name, formats.get("*", ""))) for name in header]
        return part, Table(part.name, tuple(columns), part.title), rows

    def _sentences(self, part: VerdictPart) -> Iterator[str]:
        bound = f", ({part.bound}) AS holds" if part.bound else ""
        header, rows = self.query(f"SELECT *{bound} FROM ({part.sql})")
        for row in rows:
            values = dict(zip(header, row, strict=True))
            if part.bound:
                values["verdict"] = part.outcomes[0 if values["holds"] else 1]
            yield " ".join(_Sentence().vformat(part.text, (), values).split())


class _Sentence(Formatter):
    """Formats without a complaint about missing values."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return "-" if value is None else str(format(value, format_spec))


def _plain(value: Any) -> Any:
    """Return a value that SQLite has; NaN is none."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float | str | None):
        return value
    raise InvalidInputError(f"a result is {value!r}; expected a number, a text or nothing")


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _printf(form: str, *values: Any) -> str:
    """Format like SQLite, but write - for NULL: SQLite writes 0."""
    rest = iter(values)

    def written(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        value = next(rest)
        return "-" if value is None else match[0] % value

    return re.sub(r"%[^%A-Za-z]*[%A-Za-z]", written, form)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _half(values: Sequence[float]) -> float | None:
    # Values that are all alike say nothing about their spread.
    if len(values) < 2 or not math.isfinite(_mean(values)) or _are_alike(values):
        return None
    from scipy.special import stdtrit

    return (
        float(stdtrit(len(values) - 1, 0.975))
        * float(np.std(values, ddof=1))
        / math.sqrt(len(values))
    )


def _are_alike(values: Sequence[float]) -> bool:
    return bool(np.ptp(values) <= 1e-9 * np.abs(values).max())


def _paired_p(values: Sequence[float]) -> float | None:
    if len(values) < 2 or _are_alike(values):
        return None
    from scipy import stats

    return float(stats.ttest_1samp(values, 0.0).pvalue)


def _bootstrap(values: Sequence[float], end: int) -> float | None:
    array = np.array(values)
    ends = bootstrap_intervals(
        lambda times: {"": float((times * array).sum() / times.sum())},
        len(array), resamples=_RESAMPLES, seed=0,
    ).get("")  # fmt: skip
    return None if ends is None else ends[end]


def _percent(values: Sequence[float]) -> str:
    """Return a share with its range over seeds, in per cent."""
    low, high = 100 * min(values), 100 * max(values)
    mean = f"{np.mean([100 * value for value in values]):.0f} %"
    return mean if round(low) == round(high) else f"{mean} ({low:.0f} to {high:.0f})"


_AGGREGATES: Mapping[str, Callable[[Sequence[float]], float | str | None]] = {
    "mean": _mean,
    "sd": lambda values: float(np.std(values, ddof=1)) if len(values) > 1 else None,
    "half": _half,
    "paired_p": _paired_p,
    "percent": _percent,
    "low": lambda values: _bootstrap(values, 0),
    "high": lambda values: _bootstrap(values, 1),
}


def _add_functions(database: sqlite3.Connection, labels: Mapping[str, str]) -> None:
    def aggregate(function: Callable[[Sequence[float]], float | str | None]) -> Any:
        class Aggregate:
            def __init__(self) -> None:
                self.values: list[tuple[float, float]] = []

            def step(self, value: float | None, place: float = 0) -> None:
                if value is not None:
                    self.values.append((place, value))

            def finalize(self) -> float | str | None:
                self.values.sort(key=itemgetter(0))
                return function([value for _, value in self.values]) if self.values else None

        return Aggregate

    for name, function in _AGGREGATES.items():
        database.create_aggregate(name, -1, aggregate(function))
    places = {value: place for place, value in enumerate(labels)}
    # Not every build of SQLite has it.
    database.create_function("sqrt", 1, lambda value: None if value is None else math.sqrt(value))
    database.create_function("text", 2, _text)
    database.create_function("printf", -1, _printf)
    database.create_function(
        "spread", 3,
        lambda value, low, high: _text(value, ".4f")
        + ("" if low is None else f" ({low:.4f}-{high:.4f})"),
    )  # fmt: skip
    database.create_function("label", 1, lambda value: labels.get(value, value))
    database.create_function("place", 1, lambda value: places.get(value, len(places)))
