"""``poolctl study split``: split training beside FedAvg, and what smashed data show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.frame.output import Invocation, Reply
from cli.options.studies import (
    RunOptions,
    StudyOptions,
    conducted,
    plan_reply,
    repeat_words,
    study_reply,
)

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
        return plan_reply(planned, ["run"], [[run.key] for run in planned])
    with conducted(invocation, study, runs, repeat_words("split", dataset, quick=quick)) as conduct:
        done = conduct_split_study(study.output, data, settings, conduct)
    return study_reply(done, study, results=done.results)
