"""Tables of data sets: rows with the columns that a layout needs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from site_agent.errors import AnnotationFileError, TableFileError
from site_agent.text_tables import TextTable, read_table


def read_data_table(path: Path, columns: Sequence[str]) -> TextTable:
    """Read a table that has these columns; raise `AnnotationFileError` for another one."""
    if not path.is_file():
        raise AnnotationFileError(path, 0, "found no such file")
    try:
        table = read_table(path)
    except TableFileError as error:
        raise AnnotationFileError(path, *error.problems[0]) from error
    if missing := [name for name in columns if name not in table.columns]:
        raise AnnotationFileError(
            path,
            1,
            f"found columns {table.named()}, lacks {', '.join(missing)}; expected "
            f"{', '.join(columns)}",
        )
    return table


def rows_of(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the lines of a table with their numbers."""
    for row in read_data_table(path, columns).rows:
        yield row.line, row.cells
