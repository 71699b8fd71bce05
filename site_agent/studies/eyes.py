"""The eyes of persons as data of studies: read or drawn once, and kept for the workers."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.whole_file import whole_file
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import GazeDataset, GazeSamples, person_digest
from site_agent.datasets.soundness import require_sound
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, drawn_dataset
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.networks.views import EYE
from site_agent.studies.protocol_file import StepJob
from site_agent.work import Progress

StudySamples = Mapping[str, GazeSamples]
"""All samples of a study, by person."""
_FILE = "samples.npz"


def open_data(paths: Sequence[Path], *, despite_findings: bool = False) -> GazeDataset:
    """Open the gaze data that a user named."""
    (path,) = paths
    dataset = open_gaze(path).seen_as(EYE)
    require_sound(dataset, despite_findings=despite_findings)
    return dataset


def list_names(dataset: GazeDataset | None, settings: Any) -> dict[str, list[str]]:
    """Return the persons of the data, or of the drawn data."""
    return {"persons": sorted((dataset or drawn_eyes(settings)).persons)}


def prepare(
    dataset: GazeDataset | None, settings: Any, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Write the samples of all persons for the workers; return the facts about them."""
    persons = (dataset or drawn_eyes(settings)).read_each(progress)
    used = {name: spread_over_sessions(samples, settings.most_frames) for name, samples in persons}
    return keep_samples(used, folder)


def keep_samples(samples: StudySamples, folder: Path) -> dict[str, Any]:
    """Write samples for `read_samples`; return the facts about them."""
    with whole_file(folder / _FILE) as file:
        np.savez(file, **vars(GazeSamples.join(list(samples.values()))))
    facts = {
        name: {"samples": len(mine), "digest": person_digest(mine)}
        for name, mine in samples.items()
    }
    return {"persons": facts}


def read_samples(job: StepJob) -> StudySamples:
    """Return the samples of all persons in the order of their names, in a worker."""
    samples = _load_once(job.data / _FILE)
    return {name: samples[name] for name in sorted(samples)}


def drawn_eyes(settings: Any, *, both_eyes: bool = False) -> GazeDataset:
    """Return drawn persons and their eyes: one eye of each frame, or both."""
    drawn = settings.drawn
    rendering = RenderSettings(
        persons=drawn.drawn_persons,
        frames_per_person=drawn.frames,
        both_eyes=both_eyes,
        seed=settings.first_seed,
        skews=Skews(amount=drawn.amount),
    )
    return drawn_dataset(rendering)


def spread_over_sessions(samples: GazeSamples, most: int) -> GazeSamples:
    """Return at most `most` samples of a person at equal distances, so of all sessions; 0: all."""
    if not most or len(samples) <= most:
        return samples
    order = np.argsort(samples.session, kind="stable")
    picks = np.linspace(0, len(order) - 1, most).round().astype(int)
    return samples[np.sort(order[picks])]


@lru_cache(maxsize=1)
def _load_once(path: Path) -> StudySamples:
    with np.load(path) as content:
        everything = GazeSamples(**{name: content[name] for name in content.files})
    names = dict.fromkeys(everything.person.tolist())
    return {name: everything[everything.person == name] for name in names}
