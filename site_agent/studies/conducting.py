"""A whole study, from the data to the table.

How it works. `protocol` plans the steps (train, merge, contribute, score) of all rows of the table;
`parts` divides the data; `steps` gives each step a digest and keeps the records of finished ones.
`model_study` lists the others as jobs for the workers of `site_agent.work.jobs`, which do them by
`step_jobs.run_job`. `outcome` then writes table, pictures and a description to repeat the study by.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from site_agent.datasets.conversion import ReadingOptions
from site_agent.datasets.records import FaceDataset
from site_agent.studies import model_study
from site_agent.studies.outcome import describe_study, make_table, write_outcome
from site_agent.studies.parts import StudyData, describe_parts, whole_pixels, write_parts
from site_agent.studies.protocol import Protocol, StudySettings
from site_agent.studies.steps import StudyFolder
from site_agent.studies.table import StudyTable
from site_agent.work import Progress, no_progress
from site_agent.work.jobs import hold_folder


@dataclass(frozen=True)
class StudyOutcome:
    """The result of a study."""

    run: model_study.StudyRun
    table: StudyTable
    files: tuple[Path, ...]
    leftovers: tuple[str, ...]
    """Models in the folder that an earlier run made and that are not of this study."""


@dataclass(frozen=True)
class StudyPlan:
    """A study before its first step."""

    parts: Mapping[str, FaceDataset]
    """By name, in whole pixels."""
    data: StudyData
    settings: StudySettings
    """With the landmarks that the test data name."""
    protocol: Protocol


def look_at_study(
    folder: Path,
    name: str,
    parts: Mapping[str, FaceDataset],
    test: FaceDataset,
    settings: StudySettings,
    *,
    test_reading: ReadingOptions | None = None,
    despite_findings: bool = False,
) -> StudyPlan:
    """Return the data and the steps of a study; nothing is written."""
    rounded = {part: whole_pixels(dataset) for part, dataset in parts.items()}
    data = describe_parts(
        StudyFolder(folder).parts,
        name,
        rounded,
        test,
        test_reading,
        use="landmarks" if settings.kind == "landmarks" else "boxes",
        despite_findings=despite_findings,
    )
    settings = model_study.with_named_landmarks(data, settings)
    return StudyPlan(rounded, data, settings, model_study.plan_study(data, settings))


def conduct_study(
    folder: Path,
    name: str,
    parts: Mapping[str, FaceDataset],
    test: FaceDataset,
    settings: StudySettings,
    *,
    test_reading: ReadingOptions | None = None,
    despite_findings: bool = False,
    repeat: Sequence[str] = (),
    workers: int = 0,
    redo: bool = False,
    on_outcome: Callable[[model_study.StepOutcome], None] | None = None,
    progress: Progress = no_progress,
) -> StudyOutcome:
    """Make and score all models of a study, and write its table.

    `folder`: Made where absent. A run that was interrupted goes on in it. `test_reading`: How the
    test data were read from their file, which steps read again. `despite_findings`: Go on despite
    faults of the data, which become remarks of the table. `repeat`: Words of the command that
    repeats the study, for readers of its folder. `workers`, `redo`, `on_outcome`, `progress`:
    See `run_study`.

    Raises `InvalidInputError`, `BusyError`, `AnnotationFileError`, `UnsoundDataError`: nothing can
    be begun. Steps that fail raise nothing: `StudyRun.failed` has them.
    """
    # Refuses before anything is written.
    plan = look_at_study(
        folder,
        name,
        parts,
        test,
        settings,
        test_reading=test_reading,
        despite_findings=despite_findings,
    )
    place, data, settings = StudyFolder(folder), plan.data, plan.settings
    with hold_folder(folder, place.hidden / "lock", what="study"):
        if not redo:
            model_study.refuse_other_study(place, data, settings)
        place.prepare()
        write_parts(data, plan.parts)
        describe_study(place, data, settings, model_study.study_versions(), repeat)
        run = model_study.run_study(
            place,
            data,
            settings,
            workers=workers,
            redo=redo,
            on_outcome=on_outcome,
            progress=progress,
        )
        table = make_table(run)
        files = write_outcome(run, table, repeat)
        leftovers = place.leftovers(run.protocol.steps)
    return StudyOutcome(run, table, tuple(files), tuple(leftovers))
