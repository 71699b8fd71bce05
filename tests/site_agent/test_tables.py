"""Rows as CSV and Markdown."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from site_agent.tables import Column, Table, columns_of

TABLE = Table(
    "scores",
    (
        Column("model"),
        Column("mean_error", "number", format=".3f"),
        Column("faces", "integer"),
        Column("seen", "boolean", label="seen before"),
    ),
)
ROWS: list[list[object]] = [["a,b", 0.12345, 3, True], ["c|d", math.nan, None, False]]


def test_csv_has_the_header_and_empty_cells_for_missing_values(tmp_path: Path) -> None:
    path = TABLE.write_csv(tmp_path / "scores.csv", ROWS)
    assert path.read_bytes() == (b'model,mean_error,faces,seen\n"a,b",0.123,3,true\nc|d,,,false\n')


def test_a_csv_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"

    def rows() -> Iterator[list[object]]:
        yield ROWS[0]
        raise KeyError

    with pytest.raises(KeyError):
        TABLE.write_csv(path, rows())
    assert list(tmp_path.iterdir()) == []


def test_markdown_escapes_what_would_end_a_cell() -> None:
    assert TABLE.markdown([*ROWS, ["e\\\nf", math.inf, 0, True]]) == [
        "| model | mean error | faces | seen before |",
        "|---|---:|---:|---:|",
        "| a,b | 0.123 | 3 | true |",
        "| c\\|d |  |  | false |",
        "| e\\\\ f | inf | 0 | true |",
    ]


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        TABLE.markdown([["a"]])


def test_numbers_without_a_format_keep_all_digits() -> None:
    table = Table("any", columns_of(["value"]))
    assert list(table.texts([[0.1 + 0.2], [1e-20], [7]])) == [
        ["0.30000000000000004"],
        ["1e-20"],
        ["7"],
    ]
