"""A whole privacy study: seeds that are not done yet are done, and then the tables are written.

::

    STUDY/study.json           settings, persons, digest, versions
    STUDY/seeds/SEED.json      the scores of a seed, with the digest of what they depend on
    STUDY/seeds/SEED.npz       its reconstructed pictures
    STUDY/*.csv, *.md, *.png
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.gaze import GazeDataset
from site_agent.errors import InvalidInputError
from site_agent.runs.progress import Progress, part_of
from site_agent.studies.model_study import holding
from site_agent.studies.privacy.persons import (
    StudyPersons,
    describe_persons,
    draw_persons,
    read_persons,
)
from site_agent.studies.privacy.report import write_report
from site_agent.studies.privacy.running import run_seed
from site_agent.studies.privacy.settings import PrivacySettings
from site_agent.studies.step_records import StudyFolder, write_json

SCHEMA = "poolctl-privacy-study/1"
_READING = 0.1


@dataclass(frozen=True)
class PrivacyOutcome:
    """What a study has left.

    Attributes
    ----------
    results : mapping of int to dict
        Scores by seed; see `run_seed`.
    kept : int
        Seeds that an earlier run had done.
    files : tuple of Path
        Tables and pictures.
    """

    results: Mapping[int, Mapping[str, Any]]
    kept: int
    files: tuple[Path, ...]


def conduct_privacy_study(
    folder: Path,
    dataset: GazeDataset | None,
    settings: PrivacySettings,
    *,
    repeat: Sequence[str],
    on_seed: Callable[[int, float], None],
    progress: Progress,
) -> PrivacyOutcome:
    """Attack all leaks with every seed, and write the tables and the pictures.

    Parameters
    ----------
    folder : Path
        Made where absent. A run that was interrupted goes on in it.
    dataset : GazeDataset or None
        None draws the persons.
    on_seed : callable
        Gets each seed that is done, and the seconds it took.

    Raises
    ------
    InvalidInputError, BusyError, AnnotationFileError
        Nothing can be begun.
    """
    with holding(StudyFolder(folder)):
        reading = part_of(progress, 0, _READING)
        if dataset is None:
            everyone = draw_persons(settings, reading)
        else:
            everyone = read_persons(dataset, settings, reading)
        digest = _describe(folder, everyone, settings, repeat)
        (folder / "seeds").mkdir(exist_ok=True)
        results: dict[int, Mapping[str, Any]] = {}
        kept = 0
        for seed in range(settings.seeds):
            own = folder / "seeds" / f"{seed}.json"
            found = _read(own, digest)
            kept += found is not None
            if found is None:
                share = (1 - _READING) / settings.seeds
                part = part_of(progress, _READING + share * seed, _READING + share * (seed + 1))
                started_s = time.monotonic()
                made = run_seed(everyone, settings, seed, _naming(part, seed))
                found = made.scores
                _write_pictures(own.with_suffix(".npz"), made.pictures)
                write_json(own, {"schema": SCHEMA, "digest": digest, "scores": found})
                on_seed(seed, time.monotonic() - started_s)
            results[seed] = found
        with np.load(folder / "seeds" / "0.npz") as pictures:
            files = write_report(folder, everyone, results, dict(pictures), repeat)
    return PrivacyOutcome(results, kept, tuple(files))


def _naming(progress: Progress, seed: int) -> Progress:
    return lambda share, text: progress(share, f"seed {seed}: {text}")


def _read(path: Path, digest: str) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return dict(content["scores"]) if content["digest"] == digest else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_pictures(path: Path, pictures: Mapping[str, NDArray[np.uint8]]) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **pictures)
    partial.replace(path)


def _describe(
    folder: Path, everyone: StudyPersons, settings: PrivacySettings, repeat: Sequence[str]
) -> str:
    """Write ``study.json``, and return the digest of what the scores depend on."""
    file = folder / "study.json"
    if file.exists() and SCHEMA not in file.read_text(encoding="utf-8", errors="replace"):
        raise InvalidInputError(f"{folder} holds another study; choose another folder with -o")
    versions = {name: metadata.version(name) for name in ("poolctl", "torch", "numpy", "scipy")}
    content: dict[str, Any] = {
        "schema": SCHEMA,
        **describe_persons(everyone, settings),
        "versions": versions,
    }
    # More seeds change nothing of those that are done.
    shared = {**content, "settings": {**asdict(settings), "seeds": 0}}
    write_json(file, {**content, "repeat": list(repeat)})
    text = json.dumps(shared, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
