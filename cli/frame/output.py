"""Print answers: data to standard output, everything else, such as progress, to standard error."""

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cli.frame.errors import CancelledError, UsageError
from cli.frame.terminal import fitted, print_json, print_labelled, printable, table_lines, width_of

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient
    from site_agent.tasks.model_files import ModelFile


# Progress on standard error: a bar on a terminal, now and then a line elsewhere.
# Short work says nothing in a log, long work a few lines.
FIRST_LINE_S, LINE_EVERY_S = 15.0, 30.0

Report = Callable[[float | None, str], None]
"""Reports how far the work is: a fraction from 0 to 1 (None: not known) and a few words."""


@contextmanager
def progress_bar(title: str, *, shown: bool) -> Iterator[Report]:
    """Show a bar while the block runs; nothing if `shown` is false."""
    if not shown:
        yield _silent
        return
    # Only here: most commands end before it is loaded.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

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


@contextmanager
def progress_lines(title: str) -> Iterator[Report]:
    """Print a line now and then while the block runs, for a log or a pipe."""
    due_s = time.monotonic() + FIRST_LINE_S

    def report(fraction: float | None, text: str) -> None:
        nonlocal due_s
        if time.monotonic() < due_s:
            return
        due_s = time.monotonic() + LINE_EVERY_S
        share = "" if fraction is None else f" {100 * fraction:.0f} %"
        line = f"{title.strip()}{share}{': ' if text else ''}{text}"
        print(printable(line, sys.stderr), file=sys.stderr, flush=True)

    yield report


def _silent(_fraction: float | None, _words: str) -> None:
    return


# The answers of commands.
_BAR = re.compile(r"(?<!\\)\|")

T = TypeVar("T")


def _convention(name: str, text: str, metavar: str | None = None) -> Any:
    names = (name, "-q") if name == "--quiet" else (name,)
    return typer.Option(*names, help=text, metavar=metavar)


@dataclass(frozen=True)
class Conventions:
    """The options that every command has."""

    as_json: Annotated[bool, _convention("--json", "One JSON object on standard output.")] = False
    quiet: Annotated[bool, _convention("--quiet", "Print identifiers or paths only.")] = False
    no_progress: Annotated[bool, _convention("--no-progress", "No progress bars.")] = False
    profile: Annotated[
        str, _convention("--profile", "The login to use (see 'poolctl auth switch').", "NAME")
    ] = ""
    debug: Annotated[bool, _convention("--debug", "Show the traceback of errors.")] = False


@dataclass(frozen=True)
class TableText:
    """A small table; a narrow terminal loses the last of its columns first."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    empty: str = "nothing"


@dataclass(frozen=True)
class Reply:
    """The result of a command: data for ``--json``, text for people, and identifiers.

    These (paths, addresses or digests) are printed one a line with ``--quiet``.
    """

    data: Any
    text: str | TableText | Sequence[str | TableText] = ""
    identifiers: Sequence[str] = field(default_factory=tuple)


def markdown_parts(text: str) -> list[str | TableText]:
    """Return a Markdown text in parts, so that its tables fit the width of a terminal."""
    parts: list[str | TableText] = []
    for is_table, lines in groupby(text.split("\n"), lambda line: line.startswith("|")):
        if not is_table:
            parts.append("\n".join(lines))
            continue
        heading, _, *rows = ([cell.strip() for cell in _BAR.split(line)[1:-1]] for line in lines)
        parts.append(TableText(heading, rows))
    return parts


def listing(
    items: Iterable[T],
    columns: Sequence[str],
    row: Callable[[T], Sequence[str]],
    *,
    empty: str = "nothing",
    verdict: str = "",
) -> Reply:
    """Return a listing, one item a line; the first column has the identifiers for other commands.

    The verdict is a sentence above the table.
    """
    listed = list(items)
    rows = [list(row(item)) for item in listed]
    table = TableText(columns, rows, empty=empty)
    text: list[str | TableText] = [verdict, table] if rows else [table]
    return Reply({"items": listed}, text, [row_cells[0] for row_cells in rows])


class Invocation:
    """One run of a command: how to talk to the user, and to the pool of the chosen profile."""

    def __init__(self, conventions: Conventions) -> None:
        self.conventions = conventions

    @property
    def profile(self) -> str:
        return self.conventions.profile

    def note(self, message: str) -> None:
        """Print a remark to standard error, unless quiet."""
        if not self.conventions.quiet:
            text = fitted(printable(message, sys.stderr), sys.stderr)
            print(text, file=sys.stderr, flush=True)

    def first_of(self, items: Iterable[T], limit: int) -> list[T]:
        """Return the first `limit` of a listing, with a note if that is not all of it."""
        first = list(islice(items, limit + 1))
        if len(first) > limit:
            self.note(f"there are more than {limit}; see them with --limit")
        return first[:limit]

    def warn(self, message: str) -> None:
        """Print a warning to standard error."""
        print_labelled("Warning:", "33", message)

    def confirm(self, question: str, *, assume_yes: bool) -> None:
        """Ask before something is destroyed."""
        if assume_yes:
            return
        if not sys.stdin.isatty():
            raise UsageError(f"{question} There is no terminal to ask; give --yes to continue")
        text = fitted(f"{printable(question, sys.stderr)} [y/N]", sys.stderr)
        print(text, end=" ", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer.endswith("\n"):
            print(file=sys.stderr)
        if answer.strip().lower() not in {"y", "yes"}:
            raise CancelledError("nothing was changed")

    def progress(self, title: str) -> AbstractContextManager[Report]:
        """Show how far the block is; gives a function ``(fraction, text)``.

        A bar on a terminal; elsewhere an occasional line.
        """
        shown = not (self.conventions.no_progress or self.conventions.quiet)
        if shown and not sys.stderr.isatty():
            return progress_lines(title)
        return progress_bar(title, shown=shown)

    def pool(self) -> "PoolClient":
        """Return a client of the pool that profile and environment name."""
        from site_agent.pool.client import PoolClient

        return PoolClient(profile=self.profile or None)

    def model_file(self, word: str) -> "ModelFile":
        """Return the model file that a word names: a path, or an address in the pool."""
        return self.model_files([word])[0]

    def model_files(self, names: Sequence[str], *, to_merge: bool = False) -> "list[ModelFile]":
        """Return the model files that words name, fetched from the pool where need be."""
        from site_agent.tasks.model_files import model_files

        return model_files(self, names, to_merge=to_merge)

    def address(self, word: str) -> str:
        """Return an address with its site: one's own where the word is only a name."""
        if "/" in word or word.startswith("sha256:"):
            return word
        with self.pool() as pool:
            return str(pool.address(word))

    def print_reply(self, reply: Reply) -> None:
        """Print the answer in the form that was asked for."""
        if self.conventions.as_json:
            print_json({"success": True, "data": reply.data})
        elif self.conventions.quiet:
            for identifier in reply.identifiers:
                print(printable(identifier, sys.stdout))
        else:
            parts = [reply.text] if isinstance(reply.text, str | TableText) else reply.text
            for part in parts:
                _print_part(part)
        sys.stdout.flush()


def _print_part(part: str | TableText) -> None:
    stream = sys.stdout
    if isinstance(part, str):
        if part:
            print(fitted(printable(part, stream), stream))
        return
    if not part.rows:
        print(fitted(part.empty, stream))
        return
    if part.title:
        print(fitted(printable(part.title, stream), stream))
    rows = [[" ".join(printable(cell, stream).splitlines()) for cell in row] for row in part.rows]
    headings = [printable(heading, stream) for heading in part.columns]
    lines, left_out = table_lines(headings, rows, width_of(stream))
    print("\n".join(lines))
    if left_out:
        note = f"not shown: {', '.join(left_out)} (use a wider terminal, or --json)"
        print(fitted(note, stream))
