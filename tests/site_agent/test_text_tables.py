"""Tables of other programs: the one reader names their kind."""

from pathlib import Path

import pytest

from site_agent.errors import TableFileError
from site_agent.text_tables import header_of, read_table

ROWS = "name;wert\nä;1,5\nb;2\n"


def written(folder: Path, data: bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("data", "taken_for"),
    [
        (ROWS.encode(), "separated by semicolons, decimal commas, UTF-8"),
        (b"\xef\xbb\xbf" + ROWS.encode(), "separated by semicolons, decimal commas, UTF-8"),
        (ROWS.encode("utf-16"), "separated by semicolons, decimal commas, UTF-16"),
        (ROWS.encode("cp1252"), "separated by semicolons, decimal commas, Windows-1252"),
        (f"sep=;\r\n{ROWS}".encode(), "separated by semicolons, decimal commas, UTF-8"),
        (f"sep=|\n{ROWS}".replace(";", "|").encode(), "separated by '|', decimal commas, UTF-8"),
        (ROWS.replace(";", "\t").encode(), "separated by tabs, decimal commas, UTF-8"),
        (ROWS.replace(",", ".").replace(";", ",").encode(), "separated by commas, UTF-8"),
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
