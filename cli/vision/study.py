"""``poolctl study``: compare sub-models of several sites: alone, merged, refined."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cli.frame.errors import UsageError, incomplete
from cli.frame.options import Argument, Option, command, group
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import SettingsOptions
from cli.options.data import GroupingOptions, ImagesOption, read_face_file, reading_from
from cli.vision import study_eyes
from cli.vision.study_eyes import StudyOptions, kept_when_interrupted
from site_agent.datasets.records import FaceDataset
from site_agent.studies.conducting import StudyOutcome, conduct_study, look_at_study
from site_agent.studies.model_study import StepOutcome
from site_agent.studies.outcome import table_data
from site_agent.studies.parts import StudyData, named_parts, split_into_parts
from site_agent.studies.protocol import Protocol, StudySettings
from site_agent.studies.table import StudyTable
from site_agent.training.detector_plan import HogSvmSettings
from site_agent.training.ert import ErtSettings
from site_agent.wording import first_lines

app = group("Compare models of several sites: alone, merged, refined, federated.")

_LEFT_OUT = ("seed", *(f"evaluation.{name}" for name in ("seed", "upsample", "threshold", "parts")))
LANDMARK_SETTINGS = SettingsOptions(
    StudySettings(ErtSettings()), "settings study landmarks", ("training.parts",), _LEFT_OUT
)
DETECTOR_SETTINGS = SettingsOptions(
    StudySettings(HogSvmSettings()),
    "settings study detectors",
    (),
    (*_LEFT_OUT, "refinement", "evaluation.normaliser"),
)

_FOLDER_HELP = """\
FOLDER gets the table (table.md, .csv, .json), pictures, every model with its recipe or training
record, and study.json (parts, digests, settings, seeds, versions). After an interruption, run
the same command again to continue. If a step fails, the others continue.
"""
_LANDMARKS_HELP = """\
Repeat table IV of the paper with your own faces, with further kinds of models.

Trains landmark models on each part, on growing unions and on all parts, and merges them by WBA:
growing numbers, several orders, with weights, with one part twice; as a cascade that any
program using dlib runs, refined in rounds, and thinned to the size of one model.
"""
_DETECTORS_HELP = """\
Repeat table II of the paper with your own faces.

Trains detectors on each part, on growing unions and on all parts, and merges them by MWMA:
growing numbers, several orders, with weights, and with one part twice.
"""


def _add_study(kind: str, options: SettingsOptions[Any], text: str, examples: list[str]) -> None:
    """Register the command of one kind of study."""

    def study(
        invocation: Invocation,
        dataset: Annotated[
            list[Path], Argument("One data set, which is split, or one for each part.", "FACES...")
        ],
        *,
        test: Annotated[Path, Option("The test set for all models.", "FACES")],
        place: StudyOptions,
        site_count: Annotated[
            int | None, Option("Number of parts of one data set. Default: 6.", min=2, max=50)
        ] = None,
        grouping: GroupingOptions,
        dataset_name: Annotated[
            str, Option("Name of the data in the table. Default: that of FACES.", "NAME")
        ] = "",
        seed: Annotated[
            int,
            Option("Seed of the split, the orders, the starting shapes and the intervals.", min=0),
        ] = 0,
        images: ImagesOption = None,
        **settings: Any,
    ) -> Reply:

        chosen = options.take(settings)
        evaluation = replace(chosen.evaluation, seed=seed)
        seeded = replace(chosen, seed=seed, evaluation=evaluation)
        reading = reading_from(images)
        parts = _parts(
            [read_face_file(file, reading) for file in dataset], site_count, grouping, seed
        )
        faces, name = read_face_file(test, reading), dataset_name or dataset[0].stem
        arguments = (place.output, name, parts, faces, seeded)
        if place.dry_run:
            return _plan(
                *look_at_study(
                    *arguments, test_reading=reading, despite_findings=place.despite_findings
                )
            )
        # The command that does the same from the parts in the study's folder.
        repeat = ["poolctl", "study", kind, *(f"parts/P{n + 1}.xml" for n in range(len(parts)))]
        repeat += ["--test", str(test.absolute()), "--dataset-name", name, "-o", "again/"]
        repeat += [] if images is None else ["--images", str(images.absolute())]
        repeat += ["--despite-findings"] * place.despite_findings
        repeat += ["--seed", str(seed), *options.repeated(chosen)]
        with (
            kept_when_interrupted(invocation, "steps"),
            invocation.progress(f"study {place.output.name}") as report,
        ):
            conducted = conduct_study(
                *arguments,
                test_reading=reading,
                despite_findings=place.despite_findings,
                repeat=repeat,
                workers=place.workers,
                redo=place.redo,
                on_outcome=lambda outcome: _note_outcome(invocation, outcome),
                progress=report,
            )
        for leftover in conducted.leftovers:
            invocation.note(f"left from an earlier study: {place.output / leftover}")
        _check_complete(conducted)
        return _reply(conducted)

    study.__doc__ = f"{text}\n{_FOLDER_HELP}"
    command(app, kind, *examples, parameters=options.parameters())(study)


_add_study(
    "landmarks",
    LANDMARK_SETTINGS,
    _LANDMARKS_HELP,
    [
        "study landmarks faces.xml --site-count 6 --test test.xml -o study/",
        "study landmarks faces.xml --site-count 3 --together folder --test test.xml -o study/",
        "study landmarks siteA.xml siteB.xml siteC.xml --test test.xml -o study/ --parts eyes",
    ],
)
_add_study(
    "detectors",
    DETECTOR_SETTINGS,
    _DETECTORS_HELP,
    [
        "study detectors faces.xml --site-count 6 --test test.xml -o study/",
        "study detectors siteA.xml siteB.xml --test test.xml -o study/ --set upsample=1",
    ],
)


for _name, _options, _examples, _function in (
    (
        "egocentric", study_eyes.EGOCENTRIC_SETTINGS, study_eyes.EGOCENTRIC_EXAMPLES,
        study_eyes.study_egocentric,
    ),
    (
        "privacy", study_eyes.PRIVACY_SETTINGS, study_eyes.PRIVACY_EXAMPLES,
        study_eyes.study_privacy,
    ),
    ("gaze", study_eyes.GAZE_SETTINGS, study_eyes.GAZE_EXAMPLES, study_eyes.study_gaze),
    (
        "cross-encoder", study_eyes.CROSS_ENCODER_SETTINGS, study_eyes.CROSS_ENCODER_EXAMPLES,
        study_eyes.study_cross_encoder,
    ),
    ("split", study_eyes.SPLIT_SETTINGS, study_eyes.SPLIT_EXAMPLES, study_eyes.study_split),
):  # fmt: skip
    command(app, _name, *_examples, parameters=_options.parameters())(_function)


def _parts(
    datasets: list[FaceDataset], site_count: int | None, grouping: GroupingOptions, seed: int
) -> dict[str, FaceDataset]:
    """Return the parts by name: split, or as they were given."""
    if len(datasets) > 1:
        if site_count is not None or grouping != GroupingOptions():
            raise UsageError(
                f"{len(datasets)} data sets are the parts: --site-count, --together, "
                "--person-pattern and --persons are for one data set that is split"
            )
        return named_parts(datasets)
    group_of = grouping.group_of(datasets[0])
    return split_into_parts(datasets[0], site_count or 6, group_of=group_of, seed=seed)


def _plan(data: StudyData, protocol: Protocol) -> Reply:
    rows = [[row.name, row.group] for row in protocol.rows]
    sizes = [[part.name, str(part.images), str(part.faces)] for part in (*data.parts, data.test)]
    plan = {"parts": data.parts, "test": data.test, "rows": protocol.rows}
    summary = f"would make and score {len(rows)} models in {len(protocol.steps)} steps"
    tables = [TableText(["part", "pictures", "faces"], sizes), TableText(["model", "group"], rows)]
    return Reply(plan, [summary, *tables, *data.remarks], [row.name for row in protocol.rows])


def _note_outcome(invocation: Invocation, outcome: StepOutcome) -> None:
    if outcome.state == "failed":
        invocation.note(f"{outcome.title}  failed: {outcome.reason}")
    elif outcome.record is not None:
        invocation.note(f"{outcome.title}  ({outcome.record.took_s:.1f} s)")


def _check_complete(conducted: StudyOutcome) -> None:
    failed = conducted.run.failed
    if not failed:
        return
    lines = first_lines([f"{outcome.title}: {outcome.reason}" for outcome in failed])
    lost = conducted.run.count("left out")
    besides = f", and {lost} that need their results" if lost else ""
    text = (
        f"{len(failed)} of {len(conducted.run.outcomes)} steps failed{besides}; the others are "
        f"finished and listed in {conducted.files[0]}"
    )
    raise incomplete("study", text, lines)


def _reply(conducted: StudyOutcome) -> Reply:
    run, table = conducted.run, conducted.table
    data = {
        **table_data(run, table),
        "folder": run.folder.path,
        "workers": run.workers,
        "steps": {"done": run.count("done"), "kept": run.count("kept")},
        "files": conducted.files,
    }
    verdict, *others = table.remarks
    text: list[str | TableText] = [verdict, _table_text(table), *others]
    text += [f"written {path}" for path in conducted.files]
    return Reply(data, text, [str(run.folder.path)])


def _table_text(table: StudyTable) -> TableText:
    best = table.best_alone()
    rows = []
    for line in table.lines:
        compared = table.against(line, best)
        cells = [f"{line.value(name):.4f}" for name in table.headline]
        against = "" if math.isnan(compared) else f"{compared:+.1f} %"
        size = f"{line.size_bytes / 1e6:.2f}"
        rows.append([f"{table.name}-{line.row.name}", *cells, against, size])
    names = [name.replace("_", " ") for name in table.headline]
    return TableText(["dataset", *names, "against best alone", "MB"], rows)
