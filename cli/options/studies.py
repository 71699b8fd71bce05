"""What all studies on the command line share: their options, and what is shown at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.frame.addresses import first_lines
from cli.frame.errors import StudyIncompleteError
from cli.frame.options import DryRunOption
from cli.frame.output import Invocation, Reply, markdown_parts


@dataclass(frozen=True)
class StudyOptions:
    """Where a study is kept."""

    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the study.")]
    dry_run: DryRunOption = False


@dataclass(frozen=True)
class RunOptions:
    """How the runs of a study are done."""

    workers: Annotated[
        int, typer.Option(min=0, help="Number of parallel runs; 0: as many as suit the machine.")
    ] = 0
    redo: Annotated[bool, typer.Option(help="Repeat finished runs.")] = False


@contextmanager
def kept_when_interrupted(invocation: Invocation, what: str) -> Iterator[None]:
    """Say after Ctrl-C that finished `what` are kept."""
    try:
        yield
    except KeyboardInterrupt:
        invocation.note(f"Finished {what} are kept; run the same command again to continue.")
        raise


def refuse_failed(done: Any) -> None:
    """Raise an error that lists the failed runs of a study, where there are any."""
    if done.failed:
        lines = first_lines([f"{key}: {reason}" for key, reason in done.failed.items()])
        raise StudyIncompleteError(
            f"{len(done.failed)} of {len(done.runs)} runs failed; the others are finished and "
            f"listed in {done.files[0]}:\n" + "\n".join(lines)
        )


def study_reply(facts: dict[str, Any], files: tuple[Path, ...], folder: Path) -> Reply:
    """Return the tables of a study, which are in its first file, and the files written."""
    tables = files[0].read_text(encoding="utf-8").split("\nTo repeat it")[0]
    text = [*markdown_parts(tables), *(f"written {path}" for path in files)]
    return Reply({"folder": folder, **facts, "files": files}, text, [str(folder)])
