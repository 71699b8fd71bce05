"""The persons of a privacy study: victims, public persons, samples."""

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.gaze.records import GazeDataset, GazeSamples, person_digest
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, drawn_dataset
from site_agent.datasets.synthetic.eye_patches.persons import Skews, make_person
from site_agent.errors import InvalidInputError
from site_agent.studies.eyes import open_data
from site_agent.work import Progress

__all__ = ["list_names", "open_data", "prepare"]

_DRAWN_SEED, _GLASSES = 20, 0.5
_FILE = "persons"
_FEWEST = 12


@dataclass(frozen=True, eq=False)
class Person:
    """The samples of one person."""

    trains: GazeSamples
    others: GazeSamples
    """Of the same sessions."""
    elsewhere: GazeSamples
    """Of a session that does not train; empty if there is one session only."""
    attributes: Mapping[str, float]
    """Known of drawn persons only."""


@dataclass(frozen=True, eq=False)
class StudyPersons:
    """All persons by name, in four disjoint groups."""

    victims: Mapping[str, Person]
    public: Mapping[str, Person]
    outsiders: Mapping[str, Person]
    judges: Mapping[str, Person]
    digest: str

    def train_less(self, samples: int) -> "StudyPersons":
        """Return the persons with only some training samples of each victim and public person."""

        def thin(group: Mapping[str, Person]) -> dict[str, Person]:
            return {
                name: replace(person, trains=person.trains[_spread(len(person.trains), samples)])
                for name, person in group.items()
            }

        return replace(self, victims=thin(self.victims), public=thin(self.public))


def list_names(_dataset: GazeDataset | None, _settings: Any) -> dict[str, list[str]]:
    """Return no lists for factors."""
    return {}


def prepare(
    dataset: GazeDataset | None, settings: Any, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Write the persons for the workers; return the facts about them."""
    if dataset is None:
        everyone = draw_persons(settings, progress)
    else:
        everyone = read_persons(dataset, settings, progress)
    (folder / _FILE).write_bytes(pickle.dumps(everyone))
    return describe_persons(everyone)


def load_persons(folder: Path) -> StudyPersons:
    """Return the persons that `prepare` wrote."""
    everyone: StudyPersons = pickle.loads((folder / _FILE).read_bytes())
    return everyone


def draw_persons(settings: Any, progress: Progress) -> StudyPersons:
    """Draw the persons."""
    counts = (settings.victims, settings.public, settings.outsiders, settings.judges)
    drawing = RenderSettings(
        persons=sum(counts),
        frames_per_person=settings.train_samples
        + settings.other_samples
        + settings.session_samples,
        sessions=(3, 3),
        glasses=_GLASSES,
        seed=_DRAWN_SEED,
        skews=Skews(amount=1.0),
    )
    persons = {}
    for number, (name, samples) in enumerate(drawn_dataset(drawing).read_each(progress)):
        face = make_person(drawing.seed, number, drawing.skews, drawing.glasses)
        attributes = {
            "glasses": float(face.glasses is not None),
            "iris": face.left.iris_tone,
            "skin": face.skin_tone,
        }
        persons[name] = _divide(samples, settings, attributes)
    return _group(persons, counts)


def read_persons(dataset: GazeDataset, settings: Any, progress: Progress) -> StudyPersons:
    """Read the persons of a data set: half are victims, the others divided among the groups.

    Raises `InvalidInputError`: there are fewer than 12 persons.
    """
    names = dataset.persons
    if len(names) < _FEWEST:
        raise InvalidInputError(
            f"{dataset.path}: has {len(names)} persons, expected at least {_FEWEST}"
        )
    victims = min(settings.victims, len(names) // 2)
    rest = len(names) - victims
    outsiders = judges = rest // 4
    persons = {
        name: _divide(samples, settings, {}) for name, samples in dataset.read_each(progress)
    }
    return _group(persons, (victims, rest - outsiders - judges, outsiders, judges))


def _group(persons: Mapping[str, Person], counts: tuple[int, ...]) -> StudyPersons:
    names, groups, digest = list(persons), [], hashlib.sha256()
    for count in counts:
        groups.append({name: persons[name] for name in names[:count]})
        names = names[count:]
    for person in persons.values():
        for part in (person.trains, person.others, person.elsewhere):
            digest.update(person_digest(part).encode())
    victims, public, outsiders, judges = groups
    return StudyPersons(victims, public, outsiders, judges, digest.hexdigest())


def _divide(samples: GazeSamples, settings: Any, attributes: Mapping[str, float]) -> Person:
    """Divide a person's samples: the last session apart, and about a quarter of the rest unused."""
    sessions = np.unique(samples.session)
    last = (samples.session == sessions[-1]) & (len(sessions) > 1)
    inside = np.flatnonzero(~last)
    needed = settings.train_samples + settings.other_samples
    inside = inside[_spread(len(inside), needed)]
    share = settings.other_samples / needed
    order = np.arange(len(inside))
    other = np.floor((order + 1) * share) > np.floor(order * share)
    outside = np.flatnonzero(last)
    outside = outside[_spread(len(outside), settings.session_samples)]
    if min((~other).sum(), other.sum()) < 2:
        raise InvalidInputError(
            f"person {samples.person[0]} has {len(samples)} samples, expected at least {needed}"
        )
    return Person(samples[inside[~other]], samples[inside[other]], samples[outside], attributes)


def _spread(count: int, most: int) -> NDArray[np.int64]:
    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def describe_persons(everyone: StudyPersons) -> dict[str, object]:
    """Return the description of the persons for ``study.json``."""
    groups = {
        name: {
            person: len(person_samples.trains)
            for person, person_samples in getattr(everyone, name).items()
        }
        for name in ("victims", "public", "outsiders", "judges")
    }
    return {"persons": groups, "digest": everyone.digest}
