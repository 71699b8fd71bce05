"""Finding what is wrong with gaze data before training starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from site_agent.datasets.check import Finding, Severity
from site_agent.datasets.gaze.generic_layout import (
    Row,
    find_table,
    read_patch,
    rows_by_person,
    samples_of,
)
from site_agent.datasets.gaze.layouts import open_gaze
from site_agent.datasets.gaze.records import GazeSamples, UInt8
from site_agent.errors import AnnotationFileError
from site_agent.runs.progress import Progress, no_progress

_FEWEST_SAMPLES = 20
# Eyes do not turn further in their sockets, and normalised heads do not in use.
_FAR_GAZE, _FAR_HEAD = np.deg2rad(60), np.deg2rad(70)
# Both eyes look at the same point, so that their directions differ little.
_EYES_DIFFER = np.deg2rad(15)


def check_gaze(paths: Sequence[Path], progress: Progress = no_progress) -> list[Finding]:
    """Look for everything that would stop a training or spoil its result.

    Missing, broken and repeated pictures, pictures in two of the data sets, angles out of range
    (such as degrees for radians), samples named twice, eyes of a frame that look apart, persons
    with very few samples or with a single session.

    Raises
    ------
    AnnotationFileError
        A table or a MATLAB file that cannot be read at all.
    """
    findings: list[Finding] = []
    seen: dict[bytes, tuple[Path, str]] = {}
    for path in paths:
        table = find_table(path)
        for samples, lines, found in _persons(path, table):
            findings += found
            if not len(samples):
                continue
            person = str(samples.person[0])
            progress(None, f"person {person}")
            place = table or path
            findings += _angle_findings(place, samples, lines)
            findings += _repeated(place, path, samples, lines, seen)
            findings += _frame_findings(place, samples, lines)
            findings += _person_findings(place, samples, person)
    progress(1.0, "checked")
    return findings


Checked = tuple[GazeSamples, Sequence[int], list[Finding]]


def _persons(path: Path, table: Path | None) -> Iterator[Checked]:
    """Yield what can be read of each person, the line of each sample, and what cannot be read."""
    if table is None:
        dataset = open_gaze(path)
        for person in dataset.persons:
            try:
                samples = dataset.read_person(person)
            except AnnotationFileError as error:
                found = Finding("error", "damaged-file", error.path, error.line, error.problem)
                yield samples_of([], []), [], [found]
            else:
                yield samples, [0] * len(samples), []
        return
    persons = rows_by_person(table)
    if not persons:
        yield samples_of([], []), [], [Finding("error", "no-samples", table, 0, "has no samples")]
    for _, rows in sorted(persons.items()):
        kept: list[Row] = []
        patches: list[UInt8] = []
        broken: list[Finding] = []
        for row in rows:
            try:
                patches.append(read_patch(table, row))
                kept.append(row)
            except AnnotationFileError as error:
                missing = not (table.parent / row.file).is_file()
                code = "missing-image" if missing else "broken-image"
                broken.append(Finding("error", code, table, error.line, error.problem))
        yield samples_of(kept, patches), [row.line for row in kept], broken


def _angle_findings(place: Path, samples: GazeSamples, lines: Sequence[int]) -> Iterator[Finding]:
    for name, angles, far in (("gaze", samples.gaze, _FAR_GAZE), ("head", samples.head, _FAR_HEAD)):
        most = np.abs(angles).max(axis=1)
        for i in np.flatnonzero(~(most <= far)).tolist():
            severity: Severity = "warning" if most[i] <= np.pi / 2 else "error"
            yaw, pitch = angles[i]
            text = f"{_name(samples, i)}: {name} is yaw {yaw:.4g}, pitch {pitch:.4g}; expected "
            text += f"radians within +-{np.rad2deg(far):.0f} degrees"
            yield Finding(severity, f"{name}-range", place, lines[i], text)


def _repeated(
    place: Path,
    path: Path,
    samples: GazeSamples,
    lines: Sequence[int],
    seen: dict[bytes, tuple[Path, str]],
) -> Iterator[Finding]:
    named: dict[tuple[str, int, str], int] = {}
    for i in range(len(samples)):
        key = (str(samples.session[i]), int(samples.frame[i]), str(samples.eye[i]))
        if named.setdefault(key, i) != i:
            text = f"{_name(samples, i)} is named twice; expected one sample for each eye"
            yield Finding("error", "duplicate-sample", place, lines[i], text)
        mark = hashlib.sha256(samples.patches[i].tobytes()).digest()
        first_path, first = seen.setdefault(mark, (path, _name(samples, i)))
        if first_path != path:
            text = f"{_name(samples, i)} is the same picture as {first} of {first_path}; scores on "
            text += "pictures that a network was trained on are too good"
            yield Finding("error", "shared-image", place, lines[i], text)
        elif first != _name(samples, i):
            text = f"{_name(samples, i)} is the same picture as {first}"
            yield Finding("warning", "duplicate-image", place, lines[i], text)


def _frame_findings(place: Path, samples: GazeSamples, lines: Sequence[int]) -> Iterator[Finding]:
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


def _person_findings(place: Path, samples: GazeSamples, person: str) -> Iterator[Finding]:
    if len(samples) < _FEWEST_SAMPLES:
        text = f"person {person} has {len(samples)} samples; expected {_FEWEST_SAMPLES} or more"
        yield Finding("warning", "few-samples", place, 0, text)
    if len(np.unique(samples.session)) < 2:
        text = f"person {person} has one session; a test on a held-out session needs two"
        yield Finding("warning", "one-session", place, 0, text)


def _name(samples: GazeSamples, i: int) -> str:
    parts = (samples.person[i], samples.session[i], samples.frame[i], samples.eye[i])
    return " ".join(map(str, parts))
