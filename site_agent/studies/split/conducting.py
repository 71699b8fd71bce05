"""A whole study of split training; `site_agent.studies.runs` has its folder and its runs.

``STUDY/sheets/*.png`` show eyes, what the attackers made of them, and the mean eye.
"""

from __future__ import annotations

import pickle
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.whole_file import write_whole
from site_agent.datasets.gaze import GazeDataset, GazeSamples
from site_agent.datasets.gaze.records import join_digests, person_digest
from site_agent.errors import InvalidInputError
from site_agent.runs.progress import Progress, part_of
from site_agent.studies.runs import Conduct, StudyResults, open_study
from site_agent.studies.split.protocol import (
    INVERSION,
    METHODS,
    SplitJob,
    SplitRun,
    SplitStudySettings,
    do_run,
    list_runs,
)
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


def conduct_split_study(
    folder: Path, dataset: GazeDataset, settings: SplitStudySettings, conduct: Conduct
) -> StudyResults:
    """Do all runs that are missing, and write the tables.

    Parameters
    ----------
    folder : Path
        Made where absent. A study that was interrupted goes on in it.

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
    with open_study(folder, SCHEMA, conduct) as study:
        people, digest = _read(dataset, settings, part_of(conduct.progress, 0, _READING))
        given, sheets = study.hidden / "samples", folder / "sheets"
        given.write_bytes(pickle.dumps(people))
        runs = {run.key: run for run in list_runs(dataset.persons, settings)}
        study.describe(settings, {"data": digest, "runs": len(runs)})
        # More seeds, persons and levels change nothing of the runs that are done.
        shared = {**asdict(settings), "seeds": 0, "folds": 0, "levels": ()}
        done = study.do(
            runs,
            lambda _run: {"data": digest, "settings": shared},
            do_run,
            lambda run: SplitJob(run, given, settings, sheets),
            progress=part_of(conduct.progress, _READING, 1),
        )
        done.require_complete()
        files = _write_tables(folder, runs, done.results, conduct.repeat)
    return replace(done, files=(*files, *sorted(sheets.glob("*.png"))))


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
