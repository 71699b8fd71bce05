"""The bar of a command that works, on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from cli.frame.terminal import printable


@contextmanager
def show_bar(title: str) -> Iterator[Callable[[float | None, str], None]]:
    """Show a bar while the block runs."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(40 if console.width > 100 else 8),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        # A narrow terminal cuts the end of the text, never the title.
        TextColumn(
            "{task.fields[words]}", markup=False, table_column=Column(no_wrap=True, ratio=1)
        ),
        console=console,
        expand=True,
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=1.0, words="")

        def report(fraction: float | None, text: str) -> None:
            text = printable(text, sys.stderr)
            if fraction is None:
                bar.update(task, total=None, words=text)
            else:
                bar.update(task, total=1.0, completed=fraction, words=text)

        yield report
