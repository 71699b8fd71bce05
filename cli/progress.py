"""Progress bars on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cli.output import harmless

Report = Callable[[float | None, str], None]
"""Tell how far the work is: a fraction from 0 to 1 (None: not known) and a few words."""


@contextmanager
def progress_bar(title: str, *, shown: bool) -> Iterator[Report]:
    """Show a bar while the block runs.

    Parameters
    ----------
    title : str
        What is being done.
    shown : bool
        False gives a function that does nothing.
    """
    if not shown:
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[words]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(title, total=1.0, words="")

        def report(fraction: float | None, words: str) -> None:
            words = harmless(words, sys.stderr)
            if fraction is None:
                bar.update(task, total=None, words=words)
            else:
                bar.update(task, total=1.0, completed=fraction, words=words)

        yield report


def _silent(_fraction: float | None, _words: str) -> None:
    return
