"""``poolctl study split``: split training beside FedAvg, and what smashed data show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.frame.options import DryRunOption
from cli.frame.output import Invocation, Reply, TableText

SPLIT_EXAMPLES = ["study split eyes/ --quick -o study/", "study split MPIIGaze/ -o study/"]


def study_split(
    invocation: Invocation,
    dataset: Annotated[
        Path, typer.Argument(metavar="DATA", help="Gaze data in any layout.", show_default=False)
    ],
    *,
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the study.")],
    quick: Annotated[
        bool, typer.Option(help="A smaller study, of some minutes on two cores.")
    ] = False,
    workers: Annotated[
        int, typer.Option(min=0, help="Number of parallel runs; 0: one for each core.")
    ] = 0,
    dry_run: DryRunOption = False,
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
    if dry_run:
        runs = list(list_runs(data.persons, settings))
        table = TableText(["run"], [[run.key] for run in runs])
        return Reply({"runs": runs}, [f"would do {len(runs)} runs", table], [r.key for r in runs])
    repeat = ["poolctl", "study", "split", str(dataset.absolute())]
    repeat += ["--quick"] * quick + ["-o", "again/"]
    try:
        with invocation.progress(f"study {output.name}") as report:
            done = conduct_split_study(
                output, data, settings, workers=workers, repeat=repeat, progress=report,
                on_run=lambda key, took_s: invocation.note(f"{key}  ({took_s:.0f} s)"),
            )  # fmt: skip
    except KeyboardInterrupt:
        invocation.note("Finished runs are kept; run the same command again to continue.")
        raise
    facts = {
        "folder": output,
        "runs": {"done": len(done.results) - done.kept, "kept": done.kept},
        "results": done.results,
        "files": done.files,
    }
    table_text = done.files[0].read_text(encoding="utf-8").split("\nTo repeat it")[0]
    return Reply(facts, [table_text, *(f"written {path}" for path in done.files)], [str(output)])
