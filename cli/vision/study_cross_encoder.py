"""``poolctl study cross-encoder``: gaze heads from few shots on encoders that know no labels."""

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
from site_agent.studies.cross_encoder.settings import QUICK, CrossEncoderStudySettings, plan_runs

CROSS_ENCODER_SETTINGS = SettingsOptions(
    CrossEncoderStudySettings(),
    "settings study cross-encoder",
    ("architecture", "methods", "seeds", "left_out", "shots", "rounds"),
)
EXAMPLES = [
    "study cross-encoder --drawn --quick -o study/",
    "study cross-encoder eyes/ -o study/ --shots 10,100 --workers 2",
    "study cross-encoder --drawn --quick --methods cross-encoder,random,pca -o study/",
]


def study_cross_encoder(
    invocation: Invocation,
    dataset: GazeStudyData = None,
    *,
    study: StudyOptions,
    drawn: DrawnOption = False,
    quick: Annotated[bool, Option("A smaller study, of some ten minutes on one core.")] = False,
    runs: RunOptions,
    **settings: Any,
) -> Reply:
    """Compare gaze heads from few labelled shots on federated encoders that were shown no label.

    Persons are left out; the others are sites, which train a cross-encoder in rounds from frames
    with both eyes. A linear head is fitted to 5 to 200 shots of each left-out person. Beside it
    stand a cross-encoder trained in one place, an auto-encoder, a random encoder, PCA-12, a network
    that learns from the shots alone, the head pose, and the mean gaze, all with the same shots.

    FOLDER gets table.md with the verdict first, CSV files, the curve over the number of shots, the
    result of each run, and study.json. After an interruption, run the same command again to
    continue.
    """
    from site_agent.studies.cross_encoder.conducting import conduct_cross_encoder_study

    data_or_drawn(dataset, drawn)
    base = QUICK if quick else CrossEncoderStudySettings()
    chosen = CROSS_ENCODER_SETTINGS.take(settings, base)
    data = None if dataset is None else open_gaze_data(dataset)
    if study.dry_run:
        names = [f"p{number:02d}" for number in range(chosen.drawn.drawn_persons)]
        planned = plan_runs(names if data is None else sorted(data.persons), chosen)
        rows = [[run.method, str(run.seed), ", ".join(run.test)] for run in planned]
        return plan_reply(planned, ["method", "seed", "left out"], rows)
    more = CROSS_ENCODER_SETTINGS.repeated(chosen, base)
    repeat = repeat_words("cross-encoder", dataset, quick=quick, more=more)
    with conducted(invocation, study, runs, repeat) as conduct:
        done = conduct_cross_encoder_study(study.output, data, chosen, conduct)
    return study_reply(done, study, verdict=done.findings[0])
