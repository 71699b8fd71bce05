"""Tables: written once for all forms, and read as text."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from site_agent.errors import TableFileError
from site_agent.tables import Column, Table, columns_of
from site_agent.text_tables import header_of, read_table

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


WRITTEN_ROWS = "name;wert\nä;1,5\nb;2\n"


def written(folder: Path, data: bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "taken_for"),
    [
        (WRITTEN_ROWS.encode(), "separated by semicolons, decimal commas, UTF-8"),
        (b"\xef\xbb\xbf" + WRITTEN_ROWS.encode(), "separated by semicolons, decimal commas, UTF-8"),
        (WRITTEN_ROWS.encode("utf-16"), "separated by semicolons, decimal commas, UTF-16"),
        (WRITTEN_ROWS.encode("cp1252"), "separated by semicolons, decimal commas, Windows-1252"),
        (f"sep=;\r\n{WRITTEN_ROWS}".encode(), "separated by semicolons, decimal commas, UTF-8"),
        (
            f"sep=|\n{WRITTEN_ROWS}".replace(";", "|").encode(),
            "separated by '|', decimal commas, UTF-8",
        ),
        (WRITTEN_ROWS.replace(";", "\t").encode(), "separated by tabs, decimal commas, UTF-8"),
        (WRITTEN_ROWS.replace(",", ".").replace(";", ",").encode(), "separated by commas, UTF-8"),
        (b'name,wert\n\xc3\xa4,"1,5"\nb,2\n', "separated by commas, decimal commas, UTF-8"),
    ],
)
def test_tables_of_spreadsheets_are_read_and_their_kind_is_named(
    data: bytes, taken_for: str, tmp_path: Path
) -> None:
    table = read_table(written(tmp_path, data))
    assert table.taken_for == taken_for
    assert table.numbers("wert").tolist() == [1.5, 2]
    assert table.cells("name") == ["ä", "b"]
    assert header_of(table.path) == ["name", "wert"]


def test_lines_are_those_of_the_file(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, b'sep=,\na,b\n"x\ny",1\n\n,\nz,2\n'))
    assert table.lines == (3, 7)
    assert [row.cells for row in table.rows] == [{"a": "x\ny", "b": "1"}, {"a": "z", "b": "2"}]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"PK\x03\x04rest", "is a spreadsheet or another archive, no text"),
        (b"\0\1\2", "is no text"),
        (b"a,b\n0,5,1\n", "line 2: has 3 cells, expected 2 as in the header; between commas"),
        (b"a;b\n1.5;x\n2,5;y\n", "line 3: a is '2,5', expected a number .other numbers"),
        (b"a,a\n1,2\n", "line 1: the column 'a' is there twice"),
        (b"", "is empty"),
    ],
)
def test_files_that_are_no_tables_are_named(data: bytes, expected: str, tmp_path: Path) -> None:
    with pytest.raises(TableFileError, match=expected):
        read_table(written(tmp_path, data)).numbers("a")


def test_a_number_with_a_point_is_refused_where_commas_are_given(tmp_path: Path) -> None:
    path = written(tmp_path, b"a;b\n1.5;x\n2,5;y\n")
    with pytest.raises(TableFileError, match=r"line 2: a is '1\.5"):
        read_table(path, ",").numbers("a")
