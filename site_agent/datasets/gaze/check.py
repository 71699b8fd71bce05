"""Check gaze data before training: its faults, and its numbers by person."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np

from site_agent.datasets.check import Finding, Severity
from site_agent.datasets.gaze import records
from site_agent.datasets.gaze.generic_layout import GENERIC, TABLE_NAME, lacking_columns
from site_agent.datasets.gaze.mpiigaze import MPIIGAZE, NORMALISED_FACES
from site_agent.datasets.gaze.published import GAZECAPTURE, LPW, NVGAZE
from site_agent.errors import AnnotationFileError
from site_agent.networks.views import ANGLES, Target
from site_agent.work import Progress, no_progress

LAYOUTS: tuple[records.GazeLayout, ...] = (
    GENERIC,
    MPIIGAZE,
    NORMALISED_FACES,
    GAZECAPTURE,
    NVGAZE,
    LPW,
)


def is_gaze_data(path: Path) -> bool:
    """Return whether a path holds eye patches with gaze, and no annotated faces."""
    return any(layout.find(path) is not None for layout in LAYOUTS)


def open_gaze(path: Path) -> records.GazeDataset:
    """Open gaze data in any known layout."""
    layout, place = find_layout(path)
    return layout.open(place)


_MOST_LACKING = 4
"""Columns that a table of gaze may lack to be recognised as one: that of clips lacks 8."""


def find_layout(path: Path) -> tuple[records.GazeLayout, Path]:
    """Return the layout of gaze data, and the path at which it is opened."""
    for layout in LAYOUTS:
        if (place := layout.find(path)) is not None:
            return layout, place
    expected = ", or ".join(layout.expected for layout in LAYOUTS)
    table = path if path.suffix.lower() == ".csv" else path / TABLE_NAME
    lacking = lacking_columns(table)
    if 0 < len(lacking) <= _MOST_LACKING:
        problem = f"{table.name} lacks {', '.join(lacking)}; expected {GENERIC.expected}"
        raise AnnotationFileError(path, 0, problem)
    raise AnnotationFileError(path, 0, f"is not gaze data; expected {expected}")


_FEWEST_SAMPLES = 20
# Normalised heads do not turn further in use.
_FAR_HEAD = np.deg2rad(70)
# Both eyes look at the same point, so that their directions differ little.
_EYES_DIFFER = np.deg2rad(15)


def check_gaze(
    paths: Sequence[Path], progress: Progress = no_progress, *, persons: Collection[str] = ()
) -> list[Finding]:
    """Look for everything that would stop a training or spoil its result.

    Missing, broken and repeated pictures, pictures in two of the data sets, angles out of range
    (such as degrees for radians), samples named twice, eyes of a frame that look apart, persons
    with very few samples or with a single session.

    `persons`: The persons to look at; all if empty.
    """
    findings: list[Finding] = []
    seen: dict[bytes, tuple[Path, str]] = {}
    for path in paths:
        layout, place = find_layout(path)
        for samples, lines, findings_of_person in layout.examine(place):
            person = str(samples.person[0]) if samples else ""
            if persons and person not in persons:
                continue
            findings += findings_of_person
            if not samples:
                continue
            progress(None, f"person {person}")
            findings += _repeated(place, path, samples, lines, seen)
            if layout.view.target is ANGLES and _look_like_degrees(samples):
                findings.append(Finding("error", "gaze-range", place, 0, _IN_DEGREES))
            else:
                findings += _number_findings(place, samples, lines, layout.view.target)
                findings += _frame_findings(place, samples, lines)
            findings += _person_findings(place, samples, person, layout.view.target)
    progress(1.0, "checked")
    # Angles in degrees are said once, not of each person.
    return list(dict.fromkeys(findings))


_IN_DEGREES = (
    "most angles are beyond those that eyes have; they look like degrees, expected radians"
)


def _look_like_degrees(samples: records.GazeSamples) -> bool:
    angles = np.abs(np.stack([samples.gaze, samples.head], axis=1)).max(axis=2)
    return bool((np.median(angles, axis=0) > ANGLES.farthest).any())


def _number_findings(
    place: Path, samples: records.GazeSamples, lines: Sequence[int], target: Target
) -> Iterator[Finding]:
    gaze, head = (samples.gaze, target, target.far), (samples.head, ANGLES, _FAR_HEAD)
    for name, (numbers, kind, far) in {"gaze": gaze, "head": head}.items():
        most = np.abs(numbers).max(axis=1)
        # Angles are shown as tables have them.
        scale, unit = (1.0, "radians ") if kind is ANGLES else (kind.units_in_one, "")
        for i in np.flatnonzero(~(most <= far)).tolist():
            severity: Severity = "warning" if most[i] <= kind.farthest else "error"
            (first, second), (across, down) = scale * numbers[i], kind.axes
            text = f"{_name(samples, i)}: {name} is {across} {first:.4g}, {down} {second:.4g}; "
            text += f"expected {unit}within +-{far * kind.units_in_one:.0f} {kind.unit}"
            yield Finding(severity, f"{name}-range", place, lines[i], text)


def _repeated(
    place: Path,
    path: Path,
    samples: records.GazeSamples,
    lines: Sequence[int],
    seen: dict[bytes, tuple[Path, str]],
) -> Iterator[Finding]:
    named: dict[tuple[str, int, str], int] = {}
    for i in range(len(samples)):
        key = (str(samples.session[i]), int(samples.frame[i]), str(samples.eye[i]))
        if named.setdefault(key, i) != i:
            text = f"{_name(samples, i)} is named twice; expected one sample for each eye"
            yield Finding("error", "duplicate-sample", place, lines[i], text)
        # By content, as copies have other names.
        mark = hashlib.sha256(samples.patches[i].tobytes()).digest()
        first_path, first = seen.setdefault(mark, (path, _name(samples, i)))
        if first_path != path:
            text = f"{_name(samples, i)} is the same picture as {first} of {first_path}; scores on "
            text += "pictures that a network was trained on are too good"
            yield Finding("error", "shared-image", place, lines[i], text)
        elif first != _name(samples, i):
            text = f"{_name(samples, i)} is the same picture as {first}"
            yield Finding("warning", "duplicate-image", place, lines[i], text)


def _frame_findings(
    place: Path, samples: records.GazeSamples, lines: Sequence[int]
) -> Iterator[Finding]:
    # Right eyes are mirrored; compare them as the camera saw them.
    yaw = np.where(samples.eye == "right", -1, 1) * samples.gaze[:, 0]
    first: dict[tuple[str, int], int] = {}
    for i in range(len(samples)):
        key = (str(samples.session[i]), int(samples.frame[i]))
        j = first.setdefault(key, i)
        if samples.eye[j] == samples.eye[i]:
            continue
        apart = np.hypot(yaw[i] - yaw[j], samples.gaze[i, 1] - samples.gaze[j, 1])
        if apart > _EYES_DIFFER:
            text = f"{_name(samples, i)}: the eyes of the frame look {np.rad2deg(apart):.0f} "
            text += "degrees apart; is the yaw of the right eye mirrored?"
            yield Finding("warning", "eyes-apart", place, lines[i], text)


def _person_findings(
    place: Path, samples: records.GazeSamples, person: str, target: Target
) -> Iterator[Finding]:
    if len(samples) < _FEWEST_SAMPLES:
        text = f"person {person} has {len(samples)} samples; expected {_FEWEST_SAMPLES} or more"
        yield Finding("warning", "few-samples", place, 0, text)
    if len(np.unique(samples.session)) < 2:
        text = f"person {person} has one session; a test on a held-out session needs two"
        yield Finding("warning", "one-session", place, 0, text)
    for axis, values in zip(target.axes, samples.gaze.T, strict=True):
        if len(values) > 1 and not np.ptp(values):
            text = f"person {person}: {axis} is {values[0]:.4g} in all {len(values)} samples; "
            text += "expected eyes that look in different directions"
            yield Finding("warning", "equal-gaze", place, 0, text)


def _name(samples: records.GazeSamples, i: int) -> str:
    parts = (samples.person[i], samples.session[i], samples.frame[i], samples.eye[i])
    return " ".join(map(str, parts))
