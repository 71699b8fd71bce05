"""``poolctl study split``: split training beside FedAvg, and what smashed data show."""

from __future__ import annotations

from typing import Annotated, Any

from cli.frame.options import Option
from cli.frame.output import Invocation, Reply
from cli.frame.settings_options import SettingsOptions
from cli.options.studies import (
    RunOptions,
    StudyOptions,
    conducted,
    data_or_drawn,
    plan_reply,
    repeat_words,
    study_reply,
)
from cli.vision.study_gaze import DrawnOption, GazeStudyData
from cli.vision.train_gaze import open_gaze_data
from site_agent.studies.split.settings import QUICK, SplitStudySettings, plan_runs

SPLIT_SETTINGS = SettingsOptions(
    SplitStudySettings(),
    "settings study split",
    ("architecture", "methods", "seeds", "folds", "rounds", "levels"),
)
EXAMPLES = [
    "study split --drawn --quick -o study/",
    "study split MPIIGaze/ -o study/ --folds 15",
    "study split --drawn --quick --methods v1,fedavg --levels 0,1 -o study/",
]


def study_split(
    invocation: Invocation,
    dataset: GazeStudyData = None,
    *,
    study: StudyOptions,
    drawn: DrawnOption = False,
    quick: Annotated[bool, Option("A smaller study, of some minutes on one core.")] = False,
    runs: RunOptions,
    **settings: Any,
) -> Reply:
    """Compare split training with FedAvg on persons left out, and attack its smashed data.

    Each person is a site. The table has the data centre, single persons, FedAvg, the variants of
    split training, also with differential privacy, and what needs no picture at all: the mean gaze
    and the head pose. FOLDER gets table.md with the verdict first, a CSV file for each table, the
    error and the attackers' gains over the noise, sheets of pictures, and the scores of each run.
    After an interruption, run the same command again to continue.
    """
    from site_agent.studies.split.conducting import conduct_split_study

    data_or_drawn(dataset, drawn)
    base = QUICK if quick else SplitStudySettings()
    chosen = SPLIT_SETTINGS.take(settings, base)
    data = None if dataset is None else open_gaze_data(dataset)
    if study.dry_run:
        names = [f"p{number:02d}" for number in range(chosen.drawn.drawn_persons)]
        planned = plan_runs(names if data is None else sorted(data.persons), chosen)
        return plan_reply(planned, ["run"], [[run.key] for run in planned])
    more = SPLIT_SETTINGS.repeated(chosen, base)
    repeat = repeat_words("split", dataset, quick=quick, more=more)
    with conducted(invocation, study, runs, repeat) as conduct:
        done = conduct_split_study(study.output, data, chosen, conduct)
    return study_reply(done, study, verdict=done.findings, results=done.results)
