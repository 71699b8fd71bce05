"""What all studies on the command line share: their options, and what is shown at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cli.frame.addresses import first_lines
from cli.frame.errors import UsageError, incomplete
from cli.frame.options import DryRunOption, Option
from cli.frame.output import Invocation, Reply, TableText, markdown_parts

if TYPE_CHECKING:
    from site_agent.studies.runs import Conduct, StudyResults


@dataclass(frozen=True)
class StudyOptions:
    """Where a study is kept, and how its runs are done."""

    output: Annotated[Path, Option("Folder of the study.", "FOLDER")]
    dry_run: DryRunOption = False
    workers: Annotated[
        int, Option("Number of parallel runs; 0: as many as suit the machine.", min=0)
    ] = 0
    redo: Annotated[bool, Option("Repeat finished runs.")] = False


@contextmanager
def kept_when_interrupted(invocation: Invocation, what: str) -> Iterator[None]:
    """Say after Ctrl-C that finished `what` are kept."""
    try:
        yield
    except KeyboardInterrupt:
        invocation.note(f"Finished {what} are kept; run the same command again to continue.")
        raise


def data_or_drawn(given: Path | None, drawn: bool, *, name: str = "DATA") -> None:
    """Refuse a study that has both data and `--drawn`, or neither."""
    if (given is None) != drawn:
        raise UsageError(f"give {name}, or --drawn without {name}")


def repeat_words(
    name: str, dataset: Path | None, *, quick: bool, more: Sequence[str] = ()
) -> list[str]:
    """Return the words of the command that repeats a study in another folder."""
    data = str(dataset.absolute()) if dataset else "--drawn"
    return ["poolctl", "study", name, data, *["--quick"] * quick, "-o", "again/", *more]


@contextmanager
def conducted(
    invocation: Invocation, study: StudyOptions, repeat: Sequence[str]
) -> Iterator[Conduct]:
    """Yield how the study is conducted: with progress, and a line for each finished run."""
    from site_agent.studies.runs import Conduct

    with (
        kept_when_interrupted(invocation, "runs"),
        invocation.progress(f"study {study.output.name}") as progress,
    ):
        yield Conduct(
            progress,
            study.workers,
            study.redo,
            repeat,
            lambda key, took_s: invocation.note(f"{key}  ({took_s:.1f} s)"),
        )


def plan_reply(
    runs: Sequence[Any], columns: Sequence[str], rows: Sequence[Sequence[str]], summary: str = ""
) -> Reply:
    """Return the runs that a study would do, for `--dry-run`."""
    table = TableText(list(columns), [list(row) for row in rows])
    text: list[str | TableText] = [summary or f"would do {len(runs)} runs", table]
    return Reply({"runs": runs}, text, [run.key for run in runs])


def study_reply(done: StudyResults, study: StudyOptions) -> Reply:
    """Return the tables of a study, which are in its first file, and the files written."""
    if done.failed:
        lines = first_lines([f"{key}: {reason}" for key, reason in done.failed.items()])
        total = len(done.failed) + len(done.results)
        failed = f"{len(done.failed)} of {total} runs failed; the others are finished and listed in"
        raise incomplete("study", f"{failed} {done.files[0]}", lines)
    tables = done.files[0].read_text(encoding="utf-8").split("\nTo repeat it")[0]
    text = [*markdown_parts(tables), *(f"written {path}" for path in done.files)]
    counts = {"done": len(done.results) - done.kept, "kept": done.kept}
    shown = {
        "folder": study.output, "runs": counts, "findings": done.findings,
        "results": done.results, "files": done.files,
    }  # fmt: skip
    return Reply(shown, text, [str(study.output)])
