"""A whole study of split training: the runs that are missing, and the tables.

::

    STUDY/study.json       settings, persons, digest of the data
    STUDY/runs/KEY.json    scores of a run, with the digest of what they depend on
    STUDY/sheets/*.png     eyes, what the attackers made of them, the mean eye
    STUDY/table.md, *.csv
"""

from __future__ import annotations

import pickle
import shlex
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.whole_file import write_whole
from site_agent.datasets.gaze import GazeDataset, GazeSamples
from site_agent.datasets.gaze.records import join_digests, person_digest
from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.runs.jobs import (
    Job,
    JobOutcome,
    JobRecords,
    Schedule,
    digest_of,
    do_jobs,
    hold_folder,
    write_json,
)
from site_agent.runs.progress import Progress, part_of
from site_agent.runs.workers import Task, Workers, processor_count
from site_agent.studies.split.protocol import (
    INVERSION,
    METHODS,
    SplitJob,
    SplitRun,
    SplitStudySettings,
    do_run,
    list_runs,
)
from site_agent.studies.steps import StudyFolder
from site_agent.tables import Column, Table

SCHEMA = "poolctl-split-study/1"
_FEWEST_PERSONS = 5
_READING = 0.05

ERRORS = Table(
    "errors",
    (
        Column("method"),
        Column("error", "number", "deg", "Mean over persons left out and seeds.", ".2f"),
        Column("between_seeds", "number", "deg", "Standard deviation of the seeds' means.", ".2f"),
        Column("worst_person", "number", "deg", "Mean over seeds of the worst person.", ".2f"),
    ),
    "Errors on persons left out, in degrees",
)
SHOWN = Table(
    "inversion",
    (
        Column("noise", "number", format=".2f"),
        Column("attacker"),
        Column("signal_to_noise", "number", "dB", "Of the smashed data.", ".1f"),
        Column("gain", "number", "", "0: as good as the mean eye; 1: the eye itself.", ".3f"),
        Column("mse", "number", format=".4f"),
        Column("ssim", "number", format=".3f"),
        Column("gaze_error", "number", "deg", "Of the network on the pictures.", ".2f"),
        Column("persons_found", "number", format=".2f"),
    ),
    "What smashed data show",
)


@dataclass(frozen=True)
class SplitOutcome:
    """What a study has left.

    Attributes
    ----------
    results : mapping of str to dict
        Scores by the key of the run.
    kept : int
        Runs that an earlier call had done.
    files : tuple of Path
        ``table.md`` first.
    """

    results: Mapping[str, Mapping[str, Any]]
    kept: int
    files: tuple[Path, ...]


def conduct_split_study(
    folder: Path,
    dataset: GazeDataset,
    settings: SplitStudySettings,
    *,
    workers: int = 0,
    redo: bool = False,
    repeat: Sequence[str] = (),
    on_run: Callable[[str, float], None] = lambda _key, _took_s: None,
    progress: Progress,
) -> SplitOutcome:
    """Do all runs that are missing, and write the tables.

    Parameters
    ----------
    folder : Path
        Made where absent. A study that was interrupted goes on in it.
    workers : int
        Processes side by side; 0: one for each core.
    redo : bool
        Repeat finished runs, too.

    Raises
    ------
    InvalidInputError, BusyError, AnnotationFileError
        Nothing can be begun.
    TrainingFailedError
        A run failed.
    """
    if len(dataset.persons) < _FEWEST_PERSONS:
        raise InvalidInputError(
            f"{dataset.path}: found {len(dataset.persons)} persons, expected at least "
            f"{_FEWEST_PERSONS}"
        )
    with (
        hold_folder(folder, StudyFolder(folder).hidden / "lock", what="study"),
        tempfile.TemporaryDirectory(prefix="poolctl-study-") as scratch,
    ):
        people, digest = _read(dataset, settings, part_of(progress, 0, _READING))
        given, sheets = Path(scratch) / "samples", folder / "sheets"
        given.write_bytes(pickle.dumps(people))
        (folder / "runs").mkdir(exist_ok=True)
        runs = {run.key: run for run in list_runs(dataset.persons, settings)}
        write_json(
            folder / "study.json",
            {"schema": SCHEMA, "settings": asdict(settings), "data": digest, "runs": len(runs)},
        )
        # More seeds, persons and levels change nothing of the runs that are done.
        shared = {**asdict(settings), "seeds": 0, "folds": 0, "levels": ()}
        depends = digest_of({"data": digest, "settings": shared, "schema": SCHEMA})
        records = JobRecords(folder / "runs", SCHEMA, dict.fromkeys(runs, depends))
        kept = {} if redo else records.read_all()

        def notify(outcome: JobOutcome) -> None:
            if outcome.state == "failed":
                raise TrainingFailedError(f"{outcome.key}: {outcome.reason}")
            on_run(outcome.key, outcome.took_s)

        with Workers(workers or processor_count(), advice="take fewer workers") as pool:
            outcomes = do_jobs(
                Schedule([Job(key) for key in runs], frozenset(kept)),
                pool,
                lambda job: Task(job.key, do_run, SplitJob(runs[job.key], given, settings, sheets)),
                kept=kept,
                keep=records.keep,
                on_outcome=notify,
                noun="runs",
                progress=part_of(progress, _READING, 1),
            )
        results = {key: outcomes[key].result for key in runs}
        files = _write_tables(folder, runs, results, repeat)
    return SplitOutcome(results, len(kept), (*files, *sorted(sheets.glob("*.png"))))


def _read(
    dataset: GazeDataset, settings: SplitStudySettings, progress: Progress
) -> tuple[dict[str, GazeSamples], str]:
    """Return the samples of each person, thinned out, and the digest of what they come from."""
    people, digests = {}, {}
    for number, person in enumerate(dataset.persons):
        progress(number / len(dataset.persons), f"reading {person}")
        samples = dataset.read_person(person)
        digests[person] = person_digest(samples)
        chosen = np.linspace(0, len(samples) - 1, min(settings.images, len(samples))).astype(int)
        people[person] = samples[chosen]
    return people, join_digests(digests)


def _write_tables(
    folder: Path,
    runs: Mapping[str, SplitRun],
    results: Mapping[str, Mapping[str, Any]],
    repeat: Sequence[str],
) -> list[Path]:
    lines = ["# Split training", ""]
    files = [folder / "table.md"]
    for table, rows in ((ERRORS, error_rows(runs, results)), (SHOWN, shown_rows(runs, results))):
        lines += [f"## {table.title}", "", *table.markdown(rows), ""]
        files.append(table.write_csv(folder / table.file_name, rows))
    lines += ["To repeat it:", "", f"    {shlex.join(repeat)}"]
    write_whole(files[0], "\n".join(lines) + "\n")
    return files


def error_rows(
    runs: Mapping[str, SplitRun], results: Mapping[str, Mapping[str, Any]]
) -> list[list[object]]:
    """Return a row of `ERRORS` for each method."""
    rows: list[list[object]] = []
    for method in METHODS:
        found: dict[int, list[float]] = {}
        for key, run in runs.items():
            if run.method == method:
                found.setdefault(run.seed, []).append(results[key]["error_deg"])
        means = [float(np.mean(each)) for each in found.values()]
        spread = float(np.std(means, ddof=1)) if len(means) > 1 else None
        worst = float(np.mean([max(each) for each in found.values()]))
        rows.append([method, float(np.mean(means)), spread, worst])
    return rows


def shown_rows(
    runs: Mapping[str, SplitRun], results: Mapping[str, Mapping[str, Any]]
) -> list[list[object]]:
    """Return a row of `SHOWN` for each noise and attacker: means over seeds."""
    found: dict[tuple[float, str], list[dict[str, Any]]] = {}
    for key, run in runs.items():
        if run.method == INVERSION:
            for attacker, scores in results[key]["attackers"].items():
                facts = {**scores, "signal_to_noise_db": results[key]["signal_to_noise_db"]}
                found.setdefault((run.level, attacker), []).append(facts)
    names = ("gain", "mse", "ssim", "gaze_error_deg", "persons_found")
    return [
        [level, attacker, _mean(each, "signal_to_noise_db"), *(_mean(each, n) for n in names)]
        for (level, attacker), each in sorted(found.items())
    ]


def _mean(found: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [each[name] for each in found if each[name] is not None]
    return float(np.mean(values)) if values else None
