"""Progress on standard error: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cli.frame.terminal import printable

# Short work says nothing in a log, long work a few lines.
FIRST_LINE_S, LINE_EVERY_S = 15.0, 30.0

Report = Callable[[float | None, str], None]
"""Tell how far the work is: a fraction from 0 to 1 (None: not known) and a few words."""


@contextmanager
def progress_bar(title: str, *, shown: bool) -> Iterator[Report]:
    """Show a bar while the block runs; nothing if `shown` is false."""
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
            words = printable(words, sys.stderr)
            if fraction is None:
                bar.update(task, total=None, words=words)
            else:
                bar.update(task, total=1.0, completed=fraction, words=words)

        yield report


@contextmanager
def progress_lines(title: str) -> Iterator[Report]:
    """Print a line now and then while the block runs, for a log or a pipe."""
    due_s = time.monotonic() + FIRST_LINE_S

    def report(fraction: float | None, words: str) -> None:
        nonlocal due_s
        if time.monotonic() < due_s:
            return
        due_s = time.monotonic() + LINE_EVERY_S
        share = "" if fraction is None else f" {100 * fraction:.0f} %"
        line = f"{title.strip()}{share}{': ' if words else ''}{words}"
        print(printable(line, sys.stderr), file=sys.stderr, flush=True)

    yield report


def _silent(_fraction: float | None, _words: str) -> None:
    return
