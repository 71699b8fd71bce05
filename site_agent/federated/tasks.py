"""The tasks that networks learn: the samples of a site, training with them, and scoring on them.

One entry a kind of network. The halves of the methods (`personal`, `local_training`), the checks
of a site and all engines of rounds work with any.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aggregators.models import StateDict
from site_agent.datasets.egocentric import FIXATION, UNTRACKED, ClipSamples, ClipShape
from site_agent.datasets.gaze import records
from site_agent.datasets.network_data import NetworkData, clips_of, gaze_of
from site_agent.errors import InvalidInputError
from site_agent.evaluation.gaze import few_shot_error, split_shots
from site_agent.evaluation.saliency import (
    SaliencyScores,
    reference_maps,
    score_maps,
    summarise_frames,
)
from site_agent.federated.scores import Measure, PersonScores
from site_agent.networks.architectures import find_architecture, is_crossed
from site_agent.networks.modules import MAP_PX, encode_gaze, predict_gaze, predict_maps, to_module
from site_agent.networks.views import EYE, View
from site_agent.training import saliency
from site_agent.training.cross_encoder import loop as pairs_loop
from site_agent.training.gaze import loop
from site_agent.work import Progress

_YAW_EDGES, _PITCH_EDGES = (-0.1, 0.1), (-0.2, -0.1)
"""Edges of the gaze classes in radians, for people at a screen."""

_CELLS = 4
"""Of classes of clips, over the width and the height of a picture."""

HOME_SHARE = 0.2
"""Of a site's samples that measure its score at home: the last ones of each person."""

SHOTS = 100
"""Most shots of a head that scores representations."""

Holdout = Literal["sessions", "persons", "none"]


@dataclass(frozen=True, eq=False)
class Division:
    """The data of a simulation before persons become sites."""

    digest: str
    """SHA-256 of all the data."""
    counts: Mapping[str, int]
    """Number of training samples, by person."""
    held_out: Any | None
    """Samples with which no site trains."""
    reference: PersonScores | None
    """Scores of the baseline on the held-out samples."""
    learned: Mapping[str, Any]
    """The training samples, for `site_agent.training_record.remember_learned`."""


class Task(Protocol):
    """The task that a network learns.

    Laws: the same samples, module and generator give the same parameters; scores at home are from
    0 (as good as a constant answer) to 1 (perfect). `most_output` is the largest number with which
    a trained network answers.
    """

    @property
    def measure(self) -> Measure: ...

    @property
    def most_output(self) -> float: ...

    @property
    def class_count(self) -> int: ...

    @property
    def drawing_layers(self) -> tuple[str, ...]:
        """Dense layers in which each row draws a place of a picture."""

    def read(self, data: Any, persons: Sequence[str] = (), holdout: Holdout = "none") -> Any:
        """Return the samples that train, of a folder or an open data set; no persons: of all."""

    def digests(self, samples: Any) -> dict[str, str]:
        """Return the digest of each person's samples."""

    def learned(self, samples: Any) -> dict[str, Any]:
        """Return training samples, for `site_agent.training_record.remember_learned`."""

    def divide(self, path: Path, holdout: Holdout, seed: int, progress: Progress) -> Division:
        """Read all data of a simulation, and hold a part of it out."""

    def to_tensors(self, samples: Any) -> Any:
        """Return samples as tensors with a length, and ``inputs(index)`` for a module."""

    def classes(self, samples: Any) -> NDArray[np.int64]:
        """Return where each sample looks, from 0 to `class_count` - 1, or -1 where unknown.

        Shape (n,); of clips, (n, frames).
        """

    def features(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the features of each sample, of clips of each frame, from the last layer's input.

        Shape (n, numbers), of clips (n * frames, numbers).
        """

    def split_home(self, samples: Any) -> tuple[Any, Any]:
        """Return the samples that train, and those that measure the score at home."""

    def train_epoch(
        self,
        module: nn.Module,
        optimiser: torch.optim.Optimizer,
        data: Any,
        batch_size: int,
        generator: torch.Generator,
        *,
        extra_loss: Callable[[torch.Tensor], torch.Tensor] | None = None,
        after_step: Callable[[], None] | None = None,
        progress: Callable[[float], None] = lambda _share: None,
    ) -> float:
        """Train once on all samples, and return the mean loss."""

    def score_home(self, module: nn.Module, home: Any, trained: Any) -> float:
        """Return the score at home of a module, on samples that did not train it."""

    def score_persons(self, module: nn.Module, samples: Any) -> dict[str, float]:
        """Return the score of each person by the task's measure."""


@dataclass(frozen=True)
class GazeTask:
    """Directions of gaze, or points, in the pictures of a view."""

    view: View = EYE
    most_output: ClassVar[float] = 10.0
    class_count: ClassVar[int] = 9
    drawing_layers: ClassVar[tuple[str, ...]] = ()
    digests = staticmethod(records.person_digests)
    to_tensors = staticmethod(loop.to_tensors)
    train_epoch = staticmethod(loop.train_epoch)

    def learned(self, samples: records.GazeSamples) -> dict[str, Any]:
        return records.learned_samples(self.digests(samples), records.sample_marks(samples.patches))

    @property
    def measure(self) -> Measure:
        target = self.view.target
        return Measure(target.measure, target.unit, "constant mean", larger_is_better=False)

    def read(
        self, data: Path | NetworkData, persons: Sequence[str] = (), holdout: Holdout = "none"
    ) -> records.GazeSamples:
        """Return all samples, or those outside the sessions that are held out."""
        dataset = gaze_of(data).seen_as(self.view)
        samples = self._usable(dataset, sorted(set(persons)) or None)
        return samples[~records.held_out_sessions(samples)] if holdout == "sessions" else samples

    def divide(self, path: Path, holdout: Holdout, seed: int, progress: Progress) -> Division:
        """Hold out a fifth: sessions, as `held_out_sessions` chooses them, or drawn persons."""
        dataset = gaze_of(path).seen_as(self.view)
        outside = draw_persons(dataset.persons, seed) if holdout == "persons" else frozenset()
        digests, counts, held_out = {}, {}, []
        trained: dict[str, str] = {}
        marks: list[str] = []
        total = np.zeros(2)
        for number, person in enumerate(dataset.persons):
            progress(number / len(dataset.persons), f"reading {person}")
            samples = self._usable(dataset, [person])
            digests[person] = records.person_digest(samples)
            is_out = np.full(len(samples), person in outside)
            if holdout == "sessions":
                is_out = records.held_out_sessions(samples)
            if is_out.any():
                held_out.append(samples[is_out])
            if person not in outside:
                counts[person], trained[person] = int((~is_out).sum()), digests[person]
                marks += records.sample_marks(samples.patches[~is_out])
            total += samples.gaze[~is_out].sum(axis=0)
        if holdout == "sessions" and not held_out:
            raise InvalidInputError(
                f"{path}: no person has two sessions, so that none can be held out",
                hint="Hold out persons instead.",
            )
        digest = records.join_digests(digests)
        learned = records.learned_samples(trained, marks)
        if not held_out:
            return Division(digest, counts, None, None, learned)
        outer = records.GazeSamples.join(held_out)
        reference = self._score_constant(total / sum(counts.values()), outer)
        return Division(digest, counts, outer, PersonScores(reference, self.measure), learned)

    @staticmethod
    def _usable(dataset: records.GazeDataset, persons: Sequence[str] | None) -> records.GazeSamples:
        """Return the samples of persons that a network can be trained with."""
        return dataset.read(persons)

    def _score_constant(
        self, gaze: NDArray[np.float64], samples: records.GazeSamples
    ) -> dict[str, float]:
        """Return the score of each person for an answer that is always `gaze`."""
        return self._by_person(np.tile(gaze, (len(samples), 1)), samples)

    @staticmethod
    def classes(samples: records.GazeSamples) -> NDArray[np.int64]:
        """Return the bin of each gaze: three of yaw times three of pitch."""
        yaw, pitch = samples.gaze.T
        bins: NDArray[np.int64] = np.digitize(yaw, _YAW_EDGES).astype(np.int64)
        bins += 3 * np.digitize(pitch, _PITCH_EDGES)
        return bins

    @staticmethod
    def features(outputs: torch.Tensor) -> torch.Tensor:
        """Return the inputs of the last layer."""
        return outputs

    @staticmethod
    def split_home(samples: records.GazeSamples) -> tuple[records.GazeSamples, records.GazeSamples]:
        """Hold back the last fifth of each person's samples; neighbours in time stay together."""
        is_home = np.zeros(len(samples), dtype=np.bool_)
        for person in np.unique(samples.person):
            rows = np.flatnonzero(samples.person == person)
            is_home[rows[len(rows) - int(HOME_SHARE * len(rows)) :]] = True
        return samples[~is_home], samples[is_home]

    def score_home(
        self, module: nn.Module, home: records.GazeSamples, trained: records.GazeSamples
    ) -> float:
        """Return the share of the mean gaze's error that the module avoids."""
        gaze = predict_gaze(module, home.patches, home.head)
        constant = np.tile(trained.gaze.mean(axis=0), (len(home), 1))
        target = self.view.target
        error = float(records.target_errors(target, gaze, home.gaze).mean())
        bar = float(records.target_errors(target, constant, home.gaze).mean())
        return 1.0 - error / bar if bar > 0 else 0.0

    def score_persons(self, module: nn.Module, samples: records.GazeSamples) -> dict[str, float]:
        """Return the mean error of each person in the view's unit."""
        return self._by_person(predict_gaze(module, samples.patches, samples.head), samples)

    def _by_person(
        self, answers: NDArray[np.float64], samples: records.GazeSamples
    ) -> dict[str, float]:
        errors = records.target_errors(self.view.target, answers, samples.gaze)
        names = sorted({str(person) for person in samples.person})
        return {name: float(errors[samples.person == name].mean()) for name in names}


@dataclass(frozen=True)
class RepresentationTask(GazeTask):
    """Features of eye patches, learned from frames with both eyes and without labels.

    Labels are used for scores only: the first half of a person's samples gives the shots of a
    linear head, which is tested on the other half.

    `crossed`: False for auto-encoders.
    """

    crossed: bool = True
    most_output: ClassVar[float] = 100.0
    drawing_layers: ClassVar[tuple[str, ...]] = ("decoder.fc",)
    to_tensors = staticmethod(pairs_loop.to_tensors)  # type: ignore[assignment]

    @property
    def measure(self) -> Measure:
        name = f"angular error after at most {SHOTS} shots"
        return Measure(name, "degrees", "mean gaze of the shots", larger_is_better=False)

    def train_epoch(self, *args: Any, **options: Any) -> float:
        """Train once on all frames; see `site_agent.training.cross_encoder.loop.train_epoch`."""
        return pairs_loop.train_epoch(*args, crossed=self.crossed, **options)

    @staticmethod
    def classes(_samples: records.GazeSamples) -> NDArray[np.int64]:
        """Raise `InvalidInputError`: sites that learn without labels report none."""
        raise InvalidInputError(
            "found a network that learns without labels, expected one with classes of gaze",
            hint="Hold the rounds with fedavg or fedper.",
        )

    @staticmethod
    def _usable(dataset: records.GazeDataset, persons: Sequence[str] | None) -> records.GazeSamples:
        """Return the frames with both eyes; raise `InvalidInputError` where there are none."""
        return records.require_both_eyes(dataset.read(persons), dataset.path)

    def _score_constant(
        self,
        gaze: NDArray[np.float64],  # noqa: ARG002 (shots are of the person herself)
        samples: records.GazeSamples,
    ) -> dict[str, float]:
        return self._score_features(np.empty((len(samples), 0)), samples)

    @staticmethod
    def split_home(samples: records.GazeSamples) -> tuple[records.GazeSamples, records.GazeSamples]:
        """Hold back the last fifth of each person's frames."""
        pairs = records.both_eyes(samples)
        is_home = np.zeros(len(pairs), dtype=np.bool_)
        for person in np.unique(pairs.person):
            rows = np.flatnonzero(pairs.person == person)
            is_home[rows[len(rows) - 2 * int(HOME_SHARE * len(rows) / 2) :]] = True
        return pairs[~is_home], pairs[is_home]

    def score_home(
        self,
        module: nn.Module,
        home: records.GazeSamples,
        trained: records.GazeSamples,  # noqa: ARG002 (patches are scaled: their mean is 0)
    ) -> float:
        """Return by how much a drawn patch is nearer than an even one."""
        return pairs_loop.drawing_score(module, home)

    def score_persons(self, module: nn.Module, samples: records.GazeSamples) -> dict[str, float]:
        """Return the mean angular error of each person's own head in degrees."""
        features = encode_gaze(module, samples.patches)
        return self._score_features(np.concatenate([features, samples.head], axis=1), samples)

    @staticmethod
    def _score_features(
        features: NDArray[np.float64], samples: records.GazeSamples
    ) -> dict[str, float]:
        scores = {}
        for name in sorted({str(person) for person in samples.person}):
            is_person = np.flatnonzero(samples.person == name)
            shots, test = (is_person[part] for part in split_shots(len(is_person), SHOTS))
            scores[name] = few_shot_error(
                features[shots], samples.gaze[shots], features[test], samples.gaze[test],
                samples.session[shots],
            )  # fmt: skip
        return scores


@dataclass(frozen=True)
class SaliencyTask:
    """The task of finding where persons look in clips of a head-mounted camera.

    Sites train with the training clips of their data; the test clips are held out.
    """

    architecture: str
    measure: ClassVar[Measure] = Measure("F1", "", "person-mean map", larger_is_better=True)
    most_output: ClassVar[float] = 1000.0
    class_count: ClassVar[int] = _CELLS**2
    drawing_layers: ClassVar[tuple[str, ...]] = ()
    to_tensors = staticmethod(saliency.to_tensors)
    train_epoch = staticmethod(saliency.train_epoch)

    def read(
        self,
        data: Path | NetworkData,
        persons: Sequence[str] = (),
        holdout: Holdout = "none",  # noqa: ARG002 (clips for tests never train)
    ) -> ClipSamples:
        """Return the training clips."""
        return clips_of(data).read(sorted(set(persons)), self._clip, splits=("train",))

    @property
    def _clip(self) -> ClipShape:
        return saliency.clip_shape(self.architecture)

    def learned(self, samples: ClipSamples) -> dict[str, Any]:
        return records.learned_samples(self.digests(samples), records.sample_marks(samples.frames))

    @staticmethod
    def digests(samples: ClipSamples) -> dict[str, str]:
        """Hash pictures and gaze of each person."""
        scores = {}
        for name in sorted(set(samples.person.tolist())):
            person_samples = samples[samples.person == name]
            digest = hashlib.sha256(b"poolctl-clips/1")
            for part in (person_samples.frames, person_samples.gaze, person_samples.kind):
                digest.update(np.ascontiguousarray(part).tobytes())
            scores[name] = digest.hexdigest()
        return scores

    def divide(self, path: Path, holdout: Holdout, seed: int, progress: Progress) -> Division:
        """Hold out the test clips, or all clips of drawn persons."""
        dataset = clips_of(path)
        outside = draw_persons(dataset.persons, seed) if holdout == "persons" else frozenset()
        digests: dict[str, str] = {}
        counts, held_out = {}, []
        marks: list[str] = []
        reference: dict[str, float] = {}
        for number, person in enumerate(dataset.persons):
            progress(number / len(dataset.persons), f"reading {person}")
            samples = dataset.read([person], self._clip)
            digests |= self.digests(samples)
            training, test = samples.of("train"), samples.of("test")
            if person in outside:
                test = samples
            else:
                counts[person] = len(training)
                marks += records.sample_marks(training.frames)
            if person in outside or holdout == "sessions":
                held_out.append(test)
                fixed = training.gaze[training.kind == FIXATION]
                mean = reference_maps(fixed, MAP_PX, MAP_PX)["person-mean"]
                maps = np.broadcast_to(mean, (*test.kind.shape, *mean.shape))
                reference |= self._by_person(maps, test)
        digest = records.join_digests(digests)
        learned = records.learned_samples({person: digests[person] for person in counts}, marks)
        if holdout == "none":
            return Division(digest, counts, None, None, learned)
        if not reference:
            raise InvalidInputError(
                f"{path}: has no clips for tests; expected at least three videos of a person, or "
                "the split 'test' in clips.csv",
                hint="Hold out persons instead.",
            )
        scores = PersonScores(reference, self.measure)
        return Division(digest, counts, ClipSamples.join(held_out), scores, learned)

    @staticmethod
    def classes(samples: ClipSamples) -> NDArray[np.int64]:
        """Return the cell of each frame's gaze, of 4 x 4."""
        cells = np.clip(np.nan_to_num(samples.gaze) * _CELLS, 0, _CELLS - 1).astype(np.int64)
        return np.where(samples.kind == UNTRACKED, -1, _CELLS * cells[..., 1] + cells[..., 0])

    @staticmethod
    def features(outputs: torch.Tensor) -> torch.Tensor:
        """Return means over each frame, from shape (n, numbers, frames, rows, columns)."""
        return outputs.mean((3, 4)).transpose(1, 2).flatten(0, 1)

    @staticmethod
    def split_home(samples: ClipSamples) -> tuple[ClipSamples, ClipSamples]:
        """Hold out the last fifth of the videos of each person with at least two."""
        is_home = np.zeros(len(samples), dtype=np.bool_)
        for person in np.unique(samples.person):
            is_person = samples.person == person
            videos = list(dict.fromkeys(samples.video[is_person].tolist()))
            count = max(1, int(HOME_SHARE * len(videos))) if len(videos) > 1 else 0
            is_home |= is_person & np.isin(samples.video, videos[len(videos) - count :])
        return samples[~is_home], samples[is_home]

    @classmethod
    def score_home(
        cls,
        module: nn.Module,
        home: ClipSamples,
        trained: ClipSamples,  # noqa: ARG003 (F1 is from 0 to 1 by itself)
    ) -> float:
        """Return the F1 of all fixations."""
        chosen = home.kind == FIXATION
        maps = predict_maps(module, home.frames)
        return summarise_frames(score_maps(maps[chosen], home.gaze[chosen])).f1

    @classmethod
    def score_persons(cls, module: nn.Module, samples: ClipSamples) -> dict[str, float]:
        """Return the F1 of each person's fixations."""
        return cls._by_person(predict_maps(module, samples.frames), samples)

    @classmethod
    def summarise_persons(
        cls, module: nn.Module, samples: ClipSamples
    ) -> dict[str, SaliencyScores]:
        """Return all scores of each person's fixations."""
        return cls._summaries(predict_maps(module, samples.frames), samples)

    @classmethod
    def _by_person(cls, maps: NDArray[np.float32], samples: ClipSamples) -> dict[str, float]:
        return {name: summary.f1 for name, summary in cls._summaries(maps, samples).items()}

    @staticmethod
    def _summaries(maps: NDArray[np.float32], samples: ClipSamples) -> dict[str, SaliencyScores]:
        scores = {}
        for name in sorted(set(samples.person.tolist())):
            is_person = (samples.person == name)[:, None] & (samples.kind == FIXATION)
            if is_person.any():
                scores[name] = summarise_frames(
                    score_maps(maps[is_person], samples.gaze[is_person])
                )
        return scores


def draw_persons(persons: Sequence[str], seed: int) -> frozenset[str]:
    """Return a fifth of the persons, drawn by SHA-256 of the seed and their names."""
    if len(persons) < 2:
        raise InvalidInputError("there is one person, so that none can be held out")

    def drawn(person: str) -> bytes:
        return hashlib.sha256(f"poolctl-holdout/1|{seed}|{person}".encode()).digest()

    count = max(1, round(records.HELD_OUT_SHARE * len(persons)))
    return frozenset(sorted(persons, key=drawn)[:count])


def task_of(architecture: str) -> Task:
    """Return the task of an architecture."""
    described = find_architecture(architecture)
    if described.kind == "saliency":
        return SaliencyTask(architecture)
    if described.kind == "representation":
        return RepresentationTask(crossed=is_crossed(architecture))
    return GazeTask(described.view)


def task_of_network(network: StateDict) -> Task:
    """Return the task of a network; raises as `to_module`."""
    if "architecture" not in network.metadata:
        to_module(network)
    return task_of(network.metadata["architecture"])
