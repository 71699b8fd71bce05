"""Pictures with gaze: samples, data sets that are read person by person, and their digests.

Directions of gaze and poses of heads are angles in the frame of the normalised camera: x points to
the right of the picture, y down, z away from the camera. Angles are (yaw, pitch) in radians: yaw
is positive to the left of the picture, pitch upwards, (0, 0) looks into the camera. The
conversions are those of MPIIGaze's own notes.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.check import Finding
from site_agent.datasets.samples import Samples
from site_agent.errors import InvalidInputError
from site_agent.networks.architectures import GAZE_ARCHITECTURES
from site_agent.networks.views import ANGLES, EYE, Target, View
from site_agent.work import Progress

Float64 = NDArray[np.float64]


def gaze_angles(vectors: Float64) -> Float64:
    """Return yaw and pitch, shape (n, 2), of unit vectors (n, 3): (atan2(-x, -z), asin(-y))."""
    x, y, z = vectors.T
    return np.stack([np.arctan2(-x, -z), np.arcsin(np.clip(-y, -1, 1))], axis=1)


def gaze_vectors(angles: Float64) -> Float64:
    """Return unit vectors, shape (n, 3), of yaws and pitches (n, 2)."""
    yaw, pitch = angles.T
    flat = np.cos(pitch)
    return np.stack([-flat * np.sin(yaw), -np.sin(pitch), -flat * np.cos(yaw)], axis=1)


def head_angles(poses: Float64) -> Float64:
    """Return yaw and pitch, shape (n, 2), of poses given as Rodrigues vectors (n, 3).

    With z the third column of the rotation: (atan2(z_x, z_z), asin(z_y)).
    """
    angle = np.linalg.norm(poses, axis=1)
    x, y, z = (poses / np.maximum(angle, 1e-12)[:, None]).T
    sine, rest = np.sin(angle), 1 - np.cos(angle)
    # Rodrigues' formula applied to (0, 0, 1).
    forward = np.array(
        [rest * x * z + sine * y, rest * y * z - sine * x, np.cos(angle) + rest * z * z]
    )
    return gaze_angles(-forward.T)


def angular_errors_deg(predicted: Float64, expected: Float64) -> Float64:
    """Return angles in degrees, shape (n,), between directions given by yaw and pitch (n, 2)."""
    first, second = gaze_vectors(predicted), gaze_vectors(expected)
    across = np.linalg.norm(np.cross(first, second), axis=1)
    # The arc cosine would be inexact for small errors.
    errors: Float64 = np.rad2deg(np.arctan2(across, (first * second).sum(axis=1)))
    return errors


def target_errors(target: Target, predicted: Float64, expected: Float64) -> Float64:
    """Return distances, shape (n,), in the target's unit; angles between directions of gaze."""
    if target is ANGLES:
        return angular_errors_deg(predicted, expected)
    errors: Float64 = target.units_in_one * np.linalg.norm(predicted - expected, axis=1)
    return errors


UInt8 = NDArray[np.uint8]

Eye = Literal["left", "right"]
EYES: tuple[Eye, Eye] = ("left", "right")
PATCH_SHAPE = (36, 60)
"""Height and width of an eye patch in pixels."""


@dataclass(frozen=True)
class GazeSamples(Samples):
    """Pictures of one or several persons, in one view; eye patches all as left eyes.

    Patches of right eyes are mirrored, and their yaws negated, so that one network serves both.
    Angles are radians in the frame of the normalised camera: yaw is positive to the left of the
    picture, pitch upwards, and (0, 0) looks into the camera.
    """

    patches: UInt8
    """uint8, shape (n, 36, 60), or (n, ...) as another view has it."""
    gaze: Float64
    """float64, shape (n, 2): yaw and pitch, or the numbers of the view's target."""
    head: Float64
    """float64, shape (n, 2): yaw and pitch; 0 where a view knows no pose of the head."""
    person: NDArray[np.str_]
    """str, shape (n,)."""
    session: NDArray[np.str_]
    """str, shape (n,)."""
    frame: NDArray[np.int64]
    """int64, shape (n,): number within the session; both eyes of a frame have the same."""
    eye: NDArray[np.str_]
    """str, shape (n,): 'left' or 'right', of the person; 'left' for views of both eyes."""


@dataclass(frozen=True)
class GazeDataset:
    """A data set of pictures with gaze on disk."""

    path: Path
    layout: str
    """'folder', 'mpiigaze' or another one of `site_agent.datasets.gaze.check.LAYOUTS`."""
    persons: tuple[str, ...]
    """In the order of their names."""
    read_person: Callable[[str], GazeSamples]
    """Reads all samples of a person, in the order of the files."""
    view: View = EYE
    """The view in which samples are read."""
    others: Mapping[View, Callable[[str], GazeSamples]] = field(default_factory=dict)
    """Readers of the further views that the files offer."""

    def seen_as(self, view: View) -> "GazeDataset":
        """Return the data set read in a view; raise `InvalidInputError` if it has not got it."""
        if view == self.view:
            return self
        if view not in self.others:
            offered = " or ".join(item.description for item in (self.view, *self.others))
            views = {self.view, *self.others}
            fitting = [item.name for item in GAZE_ARCHITECTURES.values() if item.view in views]
            raise InvalidInputError(
                f"{self.path}: holds {offered}; the network takes {view.description}",
                hint=f"for these pictures train with --set architecture={' or '.join(fitting)}"
                if fitting
                else "",
            )
        return replace(self, view=view, read_person=self.others[view], others={})

    def read(self, persons: Iterable[str] | None = None) -> GazeSamples:
        """Return the samples of some persons, or of all.

        Raises `InvalidInputError`: a person that the data set does not have. `AnnotationFileError`:
        a file is damaged or missing.
        """
        names = self.persons if persons is None else tuple(persons)
        if unknown := sorted(set(names) - set(self.persons)):
            raise InvalidInputError(
                f"{self.path}: has no person {', '.join(unknown)}; it has {', '.join(self.persons)}"
            )
        return GazeSamples.join([self.read_person(person) for person in names])

    def read_each(self, progress: Progress) -> Iterator[tuple[str, GazeSamples]]:
        """Yield the name and the samples of each person."""
        for number, name in enumerate(self.persons):
            progress(number / len(self.persons), f"person {name}")
            yield name, self.read_person(name)


CheckedPerson = tuple[GazeSamples | None, Sequence[int], list[Finding]]
"""Readable samples of a person, the line of each (0 without lines), and findings on the others."""


@dataclass(frozen=True)
class GazeLayout:
    """One way to lay out gaze data in files; `site_agent.datasets.gaze.check` lists all."""

    name: str
    expected: str
    """The files by which it is recognised, for messages."""
    find: Callable[[Path], Path | None]
    """Returns the path that `open` and `examine` take, or None for data in another layout."""
    open: Callable[[Path], GazeDataset]
    """Returns the data set; raises `AnnotationFileError` for damaged data."""
    examine: Callable[[Path], Iterator[CheckedPerson]]
    """Yields each person as far as it can be read, for checks."""
    view: View = EYE
    """The view in which it is read unless another one is asked for."""


def as_left_eyes(patches: UInt8, angles: Float64, right: NDArray[np.bool_]) -> None:
    """Mirror the patches of right eyes and negate their yaws, in place.

    The same function turns them back. `angles` has shape (n, ..., 2), yaw first.
    """
    patches[right] = patches[right][..., ::-1]
    angles[right, ..., 0] *= -1


_MARK_DIGITS = 12


def gaze_digest(dataset: GazeDataset) -> str:
    """Hash the contents of a gaze data set: patches, angles, persons, sessions, frames, eyes.

    It does not depend on names of files, on their order, or on the layout: a copy in another
    layout has the same digest, if its angles have the same six decimals.
    """
    return join_digests(
        {name: person_digest(dataset.read_person(name)) for name in dataset.persons}
    )


def join_digests(persons: Mapping[str, str]) -> str:
    """Return the digest of a data set from those of its persons."""
    text = json.dumps(["poolctl-gaze/1", sorted(persons.items())], separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def person_digests(samples: GazeSamples) -> dict[str, str]:
    """Return the digest of each person's samples."""
    persons = np.unique(samples.person).tolist()
    return {name: person_digest(samples[samples.person == name]) for name in persons}


def sample_marks(pictures: UInt8) -> tuple[str, ...]:
    """Return a short mark of each patch or clip, by which a test on the same ones is known.

    A mark is a part of a hash; the pictures cannot be recovered from it.
    """
    return tuple(
        hashlib.sha256(b"poolctl-patch/1" + picture.tobytes()).hexdigest()[:_MARK_DIGITS]
        for picture in pictures
    )


def learned_samples(digests: Mapping[str, str], marks: Iterable[str]) -> dict[str, Any]:
    """Return the sources of training for `site_agent.training_record.remember_learned`.

    `digests`: Of all samples of each person, trained with or not. `marks`: `sample_marks` of those
    that train.
    """
    data = {"digest": join_digests(digests), "image_marks": sorted(set(marks))}
    return {"data": data, "details": {"person_digests": sorted(digests.values())}}


def person_digest(samples: GazeSamples) -> str:
    """Hash the samples of one person, in any order."""
    # Six decimals, as tables store them: a copy in another layout has the same digest.
    micro = np.round(np.concatenate([samples.gaze, samples.head], axis=1) * 1e6).astype(int)
    marks = []
    for i, patch in enumerate(samples.patches):
        place = [str(samples.session[i]), int(samples.frame[i]), str(samples.eye[i])]
        label = json.dumps([*place, *micro[i].tolist()], separators=(",", ":"))
        marks.append(hashlib.sha256(label.encode("ascii") + patch.tobytes()).hexdigest())
    return hashlib.sha256("".join(sorted(marks)).encode("ascii")).hexdigest()


HELD_OUT = "held-out"
HELD_OUT_SHARE = 0.2


def held_out_sessions(samples: GazeSamples, share: float = HELD_OUT_SHARE) -> NDArray[np.bool_]:
    """Mark the samples of the sessions that are held out of a training.

    Hold out about `share` of the sessions of each person with at least two: one or more, never
    all. A person with one session keeps it. Frames of a session resemble each other, so whole
    sessions are held out. The choice depends on the names of person and sessions alone: equal
    names and shares give equal choices everywhere.

    `share`: 0 to 1; 0 holds out nothing.

    Returns bool, shape (n,).
    """
    held = np.zeros(len(samples), dtype=np.bool_)
    for person in np.unique(samples.person) if share > 0 else ():
        of_person = samples.person == person
        sessions = sorted(
            np.unique(samples.session[of_person]), key=lambda name: _order(person, name)
        )
        # One session always stays for training.
        count = min(max(1, round(share * len(sessions))), len(sessions) - 1)
        held |= of_person & np.isin(samples.session, sessions[:count])
    return held


def select_sessions(samples: GazeSamples, sessions: Sequence[str]) -> GazeSamples:
    """Return the samples of some sessions: of these names, or those held out by default.

    `sessions`: names; ``held-out`` alone for `held_out_sessions`; empty for all.
    """
    if not sessions:
        return samples
    if list(sessions) == [HELD_OUT]:
        held = held_out_sessions(samples)
        if not held.any():
            raise InvalidInputError("no person has two sessions, so that none is held out")
        return samples[held]
    known = np.unique(samples.session)
    if unknown := sorted(set(sessions) - set(known.tolist())):
        raise InvalidInputError(
            f"there is no session {', '.join(unknown)}; expected {', '.join(known.tolist())}, or "
            f"{HELD_OUT}"
        )
    return samples[np.isin(samples.session, list(sessions))]


def _order(person: str, session: str) -> bytes:
    return hashlib.sha256(f"poolctl-session/1|{person}|{session}".encode()).digest()


PATCHES_OF_A_PAIR = 4
"""Of two frames, each with both eyes."""


def both_eyes(samples: GazeSamples) -> GazeSamples:
    """Return the samples of frames with both eyes, ordered by frame, the left eye first."""
    order = np.lexsort((samples.eye, samples.frame, samples.session, samples.person))
    first, second = order[:-1], order[1:]
    same = np.ones(len(first), dtype=np.bool_)
    for name in ("person", "session", "frame"):
        values = getattr(samples, name)
        same &= values[first] == values[second]
    same &= (samples.eye[first] == "left") & (samples.eye[second] == "right")
    return samples[np.stack([first[same], second[same]], axis=1).ravel()]


def require_both_eyes(samples: GazeSamples, source: object) -> GazeSamples:
    """Return the samples of frames with both eyes; each person of `source` must have pairs."""
    pairs = both_eyes(samples)
    sessions = zip(pairs.person.tolist(), pairs.session.tolist(), strict=True)
    counts = Counter(sessions).items()
    paired = {person for (person, _), count in counts if count >= PATCHES_OF_A_PAIR}
    if lacking := sorted(set(samples.person.tolist()) - paired):
        raise InvalidInputError(
            f"{source}: no session of {', '.join(lacking)} has two frames with both eyes; "
            "representations are learned from such pairs",
            hint="Choose the persons that have some, or draw "
            "them with 'poolctl dataset draw eyes FOLDER --set both_eyes=true'.",
        )
    return pairs
