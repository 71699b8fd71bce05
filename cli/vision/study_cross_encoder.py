"""``poolctl study cross-encoder``: gaze heads from few shots on encoders that know no labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.frame.addresses import first_lines
from cli.frame.errors import StudyIncompleteError, UsageError
from cli.frame.options import DryRunOption
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import SettingsOptions
from cli.vision.study_gaze import DrawnOption, GazeStudyData, StudyFolderOption, changes_of
from cli.vision.train_gaze import open_gaze_data
from site_agent.studies.cross_encoder.settings import (
    CrossEncoderStudySettings,
    Run,
    make_cross_encoder_settings,
    plan_runs,
)

if TYPE_CHECKING:
    from pathlib import Path

    from site_agent.studies.cross_encoder import CrossEncoderOutcome

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
    output: StudyFolderOption,
    drawn: DrawnOption = False,
    quick: Annotated[
        bool, typer.Option(help="A smaller study, of some ten minutes on one core.")
    ] = False,
    workers: Annotated[
        int, typer.Option(min=0, help="Number of parallel runs; 0: one for each core.")
    ] = 0,
    redo: Annotated[bool, typer.Option(help="Repeat finished runs.")] = False,
    dry_run: DryRunOption = False,
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
    repeat += ["--quick"] * quick + ["-o", "again/", *changes_of(base, chosen)]
    data = None if dataset is None else open_gaze_data(dataset)
    if dry_run:
        names = [f"p{number:02d}" for number in range(chosen.drawn.drawn_persons)]
        return _plan(plan_runs(names if data is None else sorted(data.persons), chosen))
    try:
        with invocation.progress(f"study {output.name}") as report:
            done = conduct_cross_encoder_study(
                output, data, chosen, workers=workers, redo=redo, repeat=repeat,
                on_run=lambda run, took_s: invocation.note(f"{run.key}  ({took_s:.1f} s)"),
                progress=report,
            )  # fmt: skip
    except KeyboardInterrupt:
        invocation.note("Finished runs are kept; run the same command again to continue.")
        raise
    if done.failed:
        lines = first_lines([f"{key}: {reason}" for key, reason in done.failed.items()])
        raise StudyIncompleteError(
            f"{len(done.failed)} of {len(done.runs)} runs failed; the others are finished and "
            f"listed in {done.files[0]}:\n" + "\n".join(lines)
        )
    return _reply(done, output)


def _plan(runs: tuple[Run, ...]) -> Reply:
    rows = [[run.method, str(run.seed), ", ".join(run.test)] for run in runs]
    table = TableText(["method", "seed", "left out"], rows)
    return Reply({"runs": runs}, [f"would do {len(runs)} runs", table], [run.key for run in runs])


def _reply(done: CrossEncoderOutcome, folder: Path) -> Reply:
    data = {
        "folder": folder,
        "runs": {"done": len(done.results) - done.kept, "kept": done.kept},
        "verdict": done.verdict,
        "files": done.files,
    }
    table = done.files[0].read_text(encoding="utf-8").split("\nTo repeat it")[0]
    return Reply(data, [table, *(f"written {path}" for path in done.files)], [str(folder)])
