"""The samples of a gaze study: read or drawn once, and kept in one file for the workers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.gaze import GazeDataset, GazeSamples, join_samples
from site_agent.runs.progress import Progress
from site_agent.studies.gaze.protocol import Run, held_out_sessions
from site_agent.studies.gaze.settings import GazeStudySettings

_GREY_LEVELS = 255
_NOISE_STREAM = 0x2015E


StudySamples = Mapping[str, GazeSamples]
"""All samples of a study, by person."""


def draw_samples(settings: GazeStudySettings, progress: Progress) -> StudySamples:
    """Draw persons and their eyes; `first_seed` of the settings chooses them."""
    from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
    from site_agent.datasets.synthetic.eye_patches.persons import Skews

    drawn = settings.drawn
    rendering = RenderSettings(
        persons=drawn.drawn_persons,
        frames_per_person=drawn.frames,
        seed=settings.first_seed,
        skews=Skews(amount=drawn.amount),
    )
    persons = {}
    for number in rendering.numbers:
        progress(number / drawn.drawn_persons, f"drawing person {number}")
        samples = spread_over_sessions(render_person(rendering, number), settings.most_frames)
        persons[str(samples.person[0])] = samples
    return persons


def read_samples(
    dataset: GazeDataset, settings: GazeStudySettings, progress: Progress
) -> StudySamples:
    """Read the samples of all persons.

    Raises
    ------
    AnnotationFileError
        A file is damaged or missing.
    """
    persons = {}
    for number, name in enumerate(dataset.persons):
        progress(number / len(dataset.persons), f"reading person {name}")
        persons[name] = spread_over_sessions(dataset.read_person(name), settings.most_frames)
    return persons


def spread_over_sessions(samples: GazeSamples, most: int) -> GazeSamples:
    """Return at most `most` samples of a person at equal distances, so of all sessions; 0: all."""
    if not most or len(samples) <= most:
        return samples
    order = np.argsort(samples.session, kind="stable")
    picks = np.linspace(0, len(order) - 1, most).round().astype(int)
    return samples[np.sort(order[picks])]


def write_samples(samples: StudySamples, path: Path) -> None:
    """Write samples for `load_samples`."""
    columns = vars(join_samples(list(samples.values())))
    partial = path.with_suffix(".partial")
    with partial.open("wb") as stream:
        np.savez(stream, **columns)
    partial.replace(path)


def load_samples(path: Path) -> StudySamples:
    """Return the samples that `write_samples` wrote."""
    with np.load(path) as content:
        everything = GazeSamples(**{name: content[name] for name in content.files})
    names = dict.fromkeys(everything.person.tolist())
    return {name: everything[everything.person == name] for name in names}


def samples_to_train_on(samples: StudySamples, run: Run, noise_sd: float) -> dict[str, GazeSamples]:
    """Return what each person of a run trains on: without held-out sessions, noisy if she is."""
    found = {}
    for name in run.train:
        own = samples[name]
        if name in run.test:
            own = own[~_held_out(name, own, run.seed)]
        if name in run.noisy:
            own = add_noise(own, noise_sd, run.seed)
        found[name] = own
    return found


def samples_to_test(samples: StudySamples, run: Run) -> dict[str, GazeSamples]:
    """Return what each person is tested on: held-out sessions, or all of who was not trained on."""
    found = {}
    for name in run.test:
        own = samples[name]
        found[name] = own[_held_out(name, own, run.seed)] if name in run.train else own
    return found


def add_noise(samples: GazeSamples, noise_sd: float, seed: int) -> GazeSamples:
    """Return samples with Gaussian noise on their pictures, cut off at black and white."""
    random = np.random.default_rng([_NOISE_STREAM, seed, len(samples)])
    noise = random.normal(0, noise_sd * _GREY_LEVELS, samples.patches.shape)
    noisy = np.clip(np.round(samples.patches + noise), 0, _GREY_LEVELS).astype(np.uint8)
    return GazeSamples(**{**vars(samples), "patches": noisy})


def _held_out(person: str, samples: GazeSamples, seed: int) -> NDArray[np.bool_]:
    sessions = np.unique(samples.session).tolist()
    return np.isin(samples.session, held_out_sessions(person, sessions, seed))
