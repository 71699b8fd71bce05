"""The tables of a study of networks as its folder has them: the verdict first."""

import shlex
import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from aggregators.whole_file import write_whole
from site_agent.tables import Table

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
) -> list[Path]:
    """Write ``table.md`` and a CSV file for each table that has rows; return their files.

    `findings`: The verdict first. `notes`: What a reader of the tables has to know. `repeat`: The
    words of the command. `only_csv`: Tables that are too long to read.
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
    written = [table.write_csv(folder / table.file_name, rows) for table, rows in filled]
    return [folder / "table.md", *written]
