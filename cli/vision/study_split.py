"""``poolctl study split``: split training beside FedAvg, and what smashed data show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.frame.output import Invocation, Reply, TableText
from cli.options.studies import RunOptions, StudyOptions, kept_when_interrupted, study_reply

SPLIT_EXAMPLES = ["study split eyes/ --quick -o study/", "study split MPIIGaze/ -o study/"]


def study_split(
    invocation: Invocation,
    dataset: Annotated[
        Path, typer.Argument(metavar="DATA", help="Gaze data in any layout.", show_default=False)
    ],
    *,
    study: StudyOptions,
    quick: Annotated[
        bool, typer.Option(help="A smaller study, of some minutes on two cores.")
    ] = False,
    runs: RunOptions,
) -> Reply:
    """Compare split training with FedAvg on persons left out, and attack its smashed data.

    Each person is a site. The table has the data centre, single persons, FedAvg, the variants of
    split training, and what needs no picture at all: the mean gaze and the head pose. FOLDER gets
    table.md, a CSV file for each table, sheets of pictures, and the scores of each run. After an
    interruption, run the same command again to continue.
    """
    from site_agent.datasets.gaze import open_gaze
    from site_agent.studies.split import conduct_split_study, list_runs, make_settings

    settings, data = make_settings(quick=quick), open_gaze(dataset)
    if study.dry_run:
        planned = list(list_runs(data.persons, settings))
        keys = [run.key for run in planned]
        table = TableText(["run"], [[key] for key in keys])
        return Reply({"runs": planned}, [f"would do {len(keys)} runs", table], keys)
    repeat = ["poolctl", "study", "split", str(dataset.absolute())]
    repeat += ["--quick"] * quick + ["-o", "again/"]
    with (
        kept_when_interrupted(invocation, "runs"),
        invocation.progress(f"study {study.output.name}") as report,
    ):
        done = conduct_split_study(
            study.output, data, settings, workers=runs.workers, redo=runs.redo, repeat=repeat,
            on_run=lambda key, took_s: invocation.note(f"{key}  ({took_s:.0f} s)"),
            progress=report,
        )  # fmt: skip
    counts = {"done": len(done.results) - done.kept, "kept": done.kept}
    return study_reply({"runs": counts, "results": done.results}, done.files, study.output)
