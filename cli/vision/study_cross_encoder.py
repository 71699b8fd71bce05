"""``poolctl study cross-encoder``: gaze heads from few shots on encoders that know no labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.frame.errors import UsageError
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import SettingsOptions
from cli.options.studies import (
    RunOptions,
    StudyOptions,
    kept_when_interrupted,
    refuse_failed,
    study_reply,
)
from cli.vision.study_gaze import DrawnOption, GazeStudyData
from cli.vision.train_gaze import open_gaze_data
from site_agent.studies.cross_encoder.settings import (
    CrossEncoderStudySettings,
    Run,
    make_cross_encoder_settings,
    plan_runs,
)

if TYPE_CHECKING:
    pass

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
    quick: Annotated[
        bool, typer.Option(help="A smaller study, of some ten minutes on one core.")
    ] = False,
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
    from site_agent.studies.cross_encoder import conduct_cross_encoder_study

    if (dataset is None) != drawn:
        raise UsageError("give DATA, or --drawn without DATA")
    base = make_cross_encoder_settings(quick=quick)
    chosen = CROSS_ENCODER_SETTINGS.take(settings, base)
    repeat = ["poolctl", "study", "cross-encoder"]
    repeat += [str(dataset.absolute()) if dataset else "--drawn"]
    repeat += ["--quick"] * quick + ["-o", "again/", *CROSS_ENCODER_SETTINGS.repeated(chosen, base)]
    data = None if dataset is None else open_gaze_data(dataset)
    if study.dry_run:
        names = [f"p{number:02d}" for number in range(chosen.drawn.drawn_persons)]
        return _plan(plan_runs(names if data is None else sorted(data.persons), chosen))
    with (
        kept_when_interrupted(invocation, "runs"),
        invocation.progress(f"study {study.output.name}") as report,
    ):
        done = conduct_cross_encoder_study(
            study.output, data, chosen, workers=runs.workers, redo=runs.redo, repeat=repeat,
            on_run=lambda run, took_s: invocation.note(f"{run.key}  ({took_s:.1f} s)"),
            progress=report,
        )  # fmt: skip
    refuse_failed(done)
    counts = {"done": len(done.results) - done.kept, "kept": done.kept}
    facts = {"runs": counts, "verdict": done.verdict}
    return study_reply(facts, done.files, study.output)


def _plan(runs: tuple[Run, ...]) -> Reply:
    rows = [[run.method, str(run.seed), ", ".join(run.test)] for run in runs]
    table = TableText(["method", "seed", "left out"], rows)
    return Reply({"runs": runs}, [f"would do {len(runs)} runs", table], [run.key for run in runs])
