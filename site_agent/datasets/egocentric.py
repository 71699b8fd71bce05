"""Clips of head-mounted cameras with gaze: samples, and the three layouts that they are read from.

===========  ============================================================================
layout       files
===========  ============================================================================
``generic``  ``clips.csv`` (clip, file, person, split) and ``gaze.csv`` (clip, frame, x, y,
             kind): x and y in widths and heights of the picture from its upper left corner,
             kind ``fixation``, ``moving`` or ``untracked``; ``truth.csv`` (clip, frame, x,
             y) where the true gaze is known
``egtea``    EGTEA Gaze+: ``cropped_clips/SESSION/...-Ffirst-Flast.mp4`` at 24 frames a
             second, and ``gaze_data/SESSION.txt`` of BeGaze in either version of its
             header; the person is the part of SESSION before ``-R``
``ego4d``    ``full_scale.gaze/UID.mp4`` and ``gaze/UID.csv``, read by its header; persons
             from ``persons.csv`` (uid, person) if it is there, else each video is one
===========  ============================================================================

Frames are counted from 0 and read one after the other, never by seeking. Where a layout names no
split, the last fifth of a person's videos is for tests, and the fifth before for validation.
"""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from aggregators.formats import file_digest
from site_agent.datasets.check import Finding
from site_agent.datasets.data_tables import rows_of
from site_agent.datasets.samples import Samples
from site_agent.errors import AnnotationFileError, InvalidInputError, VideoFileError
from site_agent.named_files import find_named
from site_agent.pictures.video_reading import VideoReader
from site_agent.text_tables import read_text
from site_agent.work import Progress, no_progress

Float64 = NDArray[np.float64]
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
KINDS = ("fixation", "moving", "untracked")
"""Of a frame's gaze; a fixation may follow a moving object. Their numbers are `GazeClip.kind`."""

FIXATION, MOVING, UNTRACKED = range(3)
CLIPS_TABLE, GAZE_TABLE, TRUTH_TABLE = "clips.csv", "gaze.csv", "truth.csv"
EGTEA_RATE_HZ = 24
EGTEA_SIZE_PX = (1280, 960)
EGTEA_HEADER_LINES = 34
_EGTEA_CLIP = re.compile(r"F(\d+)-F(\d+)$")
_LEAST_CONFIDENCE = 0.6
"""Of Ego4D's trackers: the threshold that Pupil Labs recommends."""

_FEW_VIDEOS = 3


@dataclass(frozen=True, eq=False)
class GazeClip:
    """One video with the gaze in each of its frames."""

    name: str
    path: Path
    person: str
    split: Split
    gaze: Float64
    """Of shape (frames, 2). x and y in widths and heights of the picture, from the upper left
    corner."""
    kind: NDArray[np.uint8]
    """Of shape (frames,). `FIXATION`, `MOVING` or `UNTRACKED`; gaze outside the picture is
    untracked."""
    fewest_frames: int
    most_frames: int
    """Of the video; another number means that frames and gaze do not belong together."""
    truth: Float64 | None = None
    """Of shape (frames, 2). Where a drawn person really looked."""


@dataclass(frozen=True)
class ClipShape:
    """The length and size of the clips into which videos are cut."""

    frames: int = 8
    size_px: int = 64
    """Of a clip: number of frames, and their width and height."""
    every: int = 4
    """One frame of a clip stands for this number of the video."""


@dataclass(frozen=True, eq=False)
class ClipSamples(Samples):
    """Clips of a few frames, as networks take them."""

    frames: NDArray[np.uint8]
    """uint8, shape (n, frames, size, size, 3); RGB, squeezed to a square."""
    gaze: Float64
    """float64, shape (n, frames, 2): x and y, 0 to 1."""
    kind: NDArray[np.uint8]
    """uint8, shape (n, frames)."""
    truth: Float64
    """float64, shape (n, frames, 2); NaN where unknown."""
    person: NDArray[np.str_]
    """str, shape (n,)."""
    video: NDArray[np.str_]
    """str, shape (n,)."""
    split: NDArray[np.str_]
    """str, shape (n,)."""

    def of(self, split: Split) -> "ClipSamples":
        """Return the clips of a split."""
        return self[self.split == split]


_DEFAULT_SHAPE = ClipShape()


@dataclass(frozen=True, eq=False)
class EgocentricDataset:
    """Videos with gaze, in any of the layouts."""

    path: Path
    layout: str
    clips: tuple[GazeClip, ...]

    @property
    def persons(self) -> tuple[str, ...]:
        return tuple(sorted({clip.person for clip in self.clips}))

    @property
    def digest(self) -> str:
        """SHA-256 of names, splits, gaze and the videos' sizes in bytes; no picture is read."""
        digest = hashlib.sha256()
        for clip in self.clips:
            size = clip.path.stat().st_size if clip.path.is_file() else 0
            digest.update(f"{clip.name}|{clip.person}|{clip.split}|{size}|".encode())
            digest.update(np.ascontiguousarray(clip.gaze).tobytes() + clip.kind.tobytes())
        return digest.hexdigest()

    def only(self, persons: Sequence[str]) -> "EgocentricDataset":
        """Return the videos of some persons."""
        chosen = tuple(clip for clip in self.clips if clip.person in persons)
        return EgocentricDataset(self.path, self.layout, chosen)

    def read(
        self,
        persons: Sequence[str] = (),
        shape: ClipShape = _DEFAULT_SHAPE,
        *,
        splits: Sequence[Split] = SPLITS,
        progress: Progress = no_progress,
    ) -> ClipSamples:
        """Return the clips of some persons, or of all, without overlap."""
        if missing := sorted(set(persons) - set(self.persons)):
            raise InvalidInputError(
                f"{self.path}: has no person {missing[0]}; it has {', '.join(self.persons)}"
            )
        names = set(persons or self.persons)
        chosen = [clip for clip in self.clips if clip.person in names and clip.split in splits]
        if not chosen:
            raise InvalidInputError(f"{self.path}: has no clips for {' or '.join(splits)}")
        parts = []
        for number, clip in enumerate(chosen):
            progress(number / len(chosen), clip.name)
            parts.append(cut_clip(clip, shape))
        return ClipSamples.join(parts)


def cut_clip(clip: GazeClip, shape: ClipShape) -> ClipSamples:
    """Return the clips of one video; video and gaze have the same number of frames."""
    pictures, count = [], 0
    for picture in decode_video(clip.path, shape.size_px):
        if count % shape.every == 0:
            pictures.append(picture)
        count += 1
    if not clip.fewest_frames <= count <= clip.most_frames:
        raise AnnotationFileError(
            clip.path, 0, f"the video has {count} frames, and its gaze is for {len(clip.gaze)}"
        )
    return cut_pictures(clip, pictures, shape)


def cut_pictures(
    clip: GazeClip, pictures: Sequence[NDArray[np.uint8]], shape: ClipShape
) -> ClipSamples:
    """Return the clips of one video; `pictures` are its frames at intervals, squeezed."""
    windows = len(pictures) // shape.frames
    size = (windows, shape.frames)
    numbers = np.arange(windows * shape.frames) * shape.every
    truth = np.full_like(clip.gaze, np.nan) if clip.truth is None else clip.truth
    inside = np.minimum(numbers, len(clip.gaze) - 1)
    kind = np.where(numbers < len(clip.kind), clip.kind[inside], UNTRACKED).astype(np.uint8)
    return ClipSamples(
        np.array(pictures[: len(numbers)], np.uint8).reshape(
            *size, shape.size_px, shape.size_px, 3
        ),
        clip.gaze[inside].reshape(*size, 2),
        kind.reshape(size),
        truth[inside].reshape(*size, 2),
        np.full(windows, clip.person),
        np.full(windows, clip.name),
        np.full(windows, clip.split),
    )


def decode_video(path: Path, size_px: int | None = None) -> Iterator[NDArray[np.uint8]]:
    """Yield the frames of a video in RGB, squeezed to a square if a size is given."""
    for _, picture in decode_timed(path):
        yield picture if size_px is None else squeeze(picture, size_px)


def decode_timed(path: Path) -> Iterator[tuple[float, NDArray[np.uint8]]]:
    """Yield the frames of a video, upright and in RGB, with their times in seconds."""
    with VideoReader(path, pixels="rgb") as reader:
        for frame in reader.frames():
            if reader.report.decoding_errors:
                break
            yield frame.timestamp_s, frame.image
        # Behind a frame that is missing the gaze would belong to other pictures.
        if reader.report.decoding_errors:
            raise VideoFileError(
                f"{path}: cannot be read as a video: it is damaged ({reader.report.first_error})"
            )


def squeeze(picture: NDArray[np.uint8], size_px: int) -> NDArray[np.uint8]:
    """Return a picture as a square."""
    import cv2

    small = cv2.resize(picture, (size_px, size_px), interpolation=cv2.INTER_AREA)
    return np.asarray(small, dtype=np.uint8)


_MARKS = {"generic": CLIPS_TABLE, "egtea": "cropped_clips", "ego4d": "full_scale.gaze"}
"""The mark of each layout."""


def is_egocentric(path: Path) -> bool:
    """Return whether a folder holds egocentric clips, by the marks of the layouts."""
    return any((path / mark).exists() for mark in _MARKS.values())


def open_egocentric(path: Path | str) -> EgocentricDataset:
    """Open a data set of egocentric clips, in the layout that its files show.

    Raises `InvalidInputError`: the folder has none of the layouts. `AnnotationFileError`: a table
    of gaze is damaged; names file, line, the found and the expected value.
    """
    folder = Path(path)
    readers = {"generic": _read_generic, "egtea": _read_egtea, "ego4d": _read_ego4d}
    for layout, mark in _MARKS.items():
        if (folder / mark).exists():
            clips = readers[layout](folder)
            if not clips:
                raise InvalidInputError(f"{folder}: holds no clips in the layout {layout}")
            return EgocentricDataset(folder, layout, tuple(_with_splits(clips)))
    raise InvalidInputError(
        f"{folder}: is no data set of egocentric clips; expected {CLIPS_TABLE} with {GAZE_TABLE}, "
        "cropped_clips/ (EGTEA Gaze+) or full_scale.gaze/ (Ego4D)"
    )


def check_clips(*datasets: EgocentricDataset) -> list[Finding]:
    """Look for videos that are broken or come twice, gaze of other frames, and untrained persons.

    Containers say how many frames they hold; only reading them all would count them.

    `datasets`: Such as training and test data, which must not share videos.
    """
    findings = [*_repeated_videos(datasets)]
    for dataset in datasets:
        findings += _check_videos(dataset)
    return findings


def _repeated_videos(datasets: Sequence[EgocentricDataset]) -> Iterator[Finding]:
    by_size: dict[int, list[tuple[Path, GazeClip]]] = {}
    for dataset in datasets:
        for clip in dataset.clips:
            if clip.path.is_file():
                by_size.setdefault(clip.path.stat().st_size, []).append((dataset.path, clip))
    seen: dict[str, tuple[Path, GazeClip]] = {}
    # Only files of one size can be copies, so that few are read.
    for place, clip in chain.from_iterable(same for same in by_size.values() if len(same) > 1):
        first_place, first = seen.setdefault(file_digest(clip.path), (place, clip))
        text = f"{clip.name} ({clip.person}, {clip.split}) is the same video as {first.name} "
        text += f"({first.person}, {first.split}) of {first_place}"
        if (first_place, first.person, first.split) != (place, clip.person, clip.split):
            text += "; scores on clips that a network was trained on are too good"
            yield Finding("error", "shared-video", place, 0, text)
        elif first is not clip:
            yield Finding("warning", "duplicate-video", place, 0, text)


def _check_videos(dataset: EgocentricDataset) -> list[Finding]:
    findings = []
    for clip in dataset.clips:
        try:
            with VideoReader(clip.path) as reader:
                declared = reader.info.declared_frames
        except VideoFileError as error:
            findings.append(Finding("error", "broken-video", clip.path, 0, f"{clip.name}: {error}"))
            continue
        if declared and not clip.fewest_frames <= declared <= clip.most_frames:
            text = f"{clip.name}: declares {declared} frames, its gaze is for {len(clip.gaze)}"
            findings.append(Finding("warning", "frame-count", clip.path, 0, text))
        untracked = float(np.mean(clip.kind == UNTRACKED))
        if untracked > _MOSTLY:
            text = f"{clip.name}: in {untracked:.0%} of its frames the gaze is not tracked"
            findings.append(Finding("warning", "untracked", clip.path, 0, text))
    for person in dataset.persons:
        splits = {clip.split for clip in dataset.clips if clip.person == person}
        if "train" not in splits:
            text = f"person {person} has no clips for train, only for {', '.join(sorted(splits))}"
            findings.append(Finding("warning", "no-training-clips", dataset.path, 0, text))
    return findings


_MOSTLY = 0.5


def _with_splits(clips: list[GazeClip]) -> Iterator[GazeClip]:
    """Assign splits to clips without one; frames of one video stay together."""
    by_person: dict[str, list[GazeClip]] = {}
    for clip in clips:
        by_person.setdefault(clip.person, []).append(clip)
    for of_person in by_person.values():
        groups = sorted({_group(clip) for clip in of_person})
        share = max(1, round(0.2 * len(groups))) if len(groups) >= _FEW_VIDEOS else 0
        names: dict[str, Split] = dict.fromkeys(groups, "train")
        names |= dict.fromkeys(groups[len(groups) - 2 * share : len(groups) - share], "validation")
        names |= dict.fromkeys(groups[len(groups) - share :] if share else [], "test")
        for clip in of_person:
            yield clip if clip.split else replace(clip, split=names[_group(clip)])


def arrange(
    dataset: EgocentricDataset, lists: Sequence[Path] = (), site_count: int = 0
) -> EgocentricDataset:
    """Return the videos in the splits of official lists, and with sites made of sessions.

    Parameters
    ----------
    lists : sequence of Path
        With "train" or "test" in their names, and a clip a line, by name or path, or pieces of one
        in the folder of its name; further words do not count. So EGTEA's ``test_split1.txt`` and
        the CSV files of GLC's code are read. The last fifth of a person's training clips is for
        validation. None: splits stay.
    site_count : int
        Sites that take the place of persons, and to which sessions are dealt. 0: persons stay.
    """
    clips: Sequence[GazeClip] = dataset.clips
    if lists:
        splits = _read_lists(lists)
        clips = [replace(c, split=splits[c.name]) for c in clips if c.name in splits]
        if {clip.split for clip in clips} != {"train", "test"}:
            raise InvalidInputError(
                f"{', '.join(map(str, lists))}: expected clips of {dataset.path} for train and test"
            )
    if site_count:
        clips = _deal_sessions(dataset.path, clips, site_count)
    if lists:
        clips = [*_with_validation(clips)]
    return EgocentricDataset(dataset.path, dataset.layout, tuple(clips))


def _read_lists(lists: Sequence[Path]) -> dict[str, Split]:
    """Return the splits of clips by their names, and of folders that have one split only."""
    listed: dict[str, set[Split]] = {}
    for path in lists:
        if ("train" in path.name) == ("test" in path.name):
            raise InvalidInputError(f"{path}: expected a name with 'train' or with 'test'")
        for line in read_text(path)[0].splitlines():
            for word in line.strip().strip('"').split()[:1]:
                file = PurePosixPath(word)
                for name in (file.name.removesuffix(".mp4"), file.parent.name):
                    listed.setdefault(name, set()).add("test" if "test" in path.name else "train")
    return {name: next(iter(splits)) for name, splits in listed.items() if len(splits) == 1}


def _deal_sessions(path: Path, clips: Sequence[GazeClip], count: int) -> list[GazeClip]:
    """Deal sessions to sites; those with test clips first, so that each site has some."""
    splits: dict[str, set[str]] = {}
    for clip in clips:
        splits.setdefault(_group(clip), set()).add(clip.split)
    if len(splits) < count:
        raise InvalidInputError(
            f"{path}: has {len(splits)} sessions, expected at least {count}, one for each site"
        )
    order = sorted(splits, key=lambda group: (sorted(splits[group]), group))
    sites = {group: f"site-{number % count + 1}" for number, group in enumerate(order)}
    return [replace(clip, person=sites[_group(clip)]) for clip in clips]


def _with_validation(clips: Sequence[GazeClip]) -> Iterator[GazeClip]:
    trained: dict[str, list[str]] = {}
    for clip in clips:
        trained.setdefault(clip.person, []).extend([clip.name] * (clip.split == "train"))
    last = {name for names in trained.values() for name in names[len(names) - len(names) // 5 :]}
    for clip in clips:
        yield replace(clip, split="validation") if clip.name in last else clip


def _group(clip: GazeClip) -> str:
    """Return the group that splits keep together: the session of a clip, or the clip itself."""
    return clip.path.parent.name if _EGTEA_CLIP.search(clip.path.stem) else clip.name


def checked_gaze(gaze: Float64, kind: NDArray[np.uint8]) -> tuple[Float64, NDArray[np.uint8]]:
    """Mark gaze outside the picture, or none, as untracked, and put it into the middle."""
    with np.errstate(invalid="ignore"):
        inside = (gaze >= 0).all(1) & (gaze <= 1).all(1)
    gone = ~inside | (kind == UNTRACKED)
    gaze, kind = gaze.copy(), kind.copy()
    kind[gone], gaze[gone] = UNTRACKED, 0.5
    return gaze, kind


def _number(text: str, path: Path, line: int, what: str, most: float = math.inf) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        limit = "a number of at least 0" if most == math.inf else f"0 to {most:g}"
        raise AnnotationFileError(path, line, f"{what} is {text.strip()[:40]!r}, expected {limit}")
    return value


_MOST_FRAMES = 10_000_000


def _read_generic(folder: Path) -> list[GazeClip]:
    table = folder / GAZE_TABLE
    gaze: dict[str, dict[int, tuple[float, float, int]]] = {}
    for line, row in rows_of(table, ("clip", "frame", "x", "y", "kind")):
        if row["kind"] not in KINDS:
            expected = ", ".join(KINDS)
            raise AnnotationFileError(table, line, f"kind {row['kind']!r}, expected {expected}")
        kind = KINDS.index(row["kind"])
        frame = int(_number(row["frame"], table, line, "frame", _MOST_FRAMES))
        x, y = 0.5, 0.5
        if kind != UNTRACKED:
            x, y = (_number(row[name], table, line, name, 1) for name in ("x", "y"))
        frames = gaze.setdefault(row["clip"], {})
        if frame in frames:
            raise AnnotationFileError(table, line, f"frame {frame} of {row['clip']} comes twice")
        frames[frame] = (x, y, kind)
    truth: dict[tuple[str, int], tuple[float, float]] = {}
    if (table := folder / TRUTH_TABLE).is_file():
        for line, row in rows_of(table, ("clip", "frame", "x", "y")):
            frame = int(_number(row["frame"], table, line, "frame", _MOST_FRAMES))
            x, y = (_number(row[name], table, line, name, 1) for name in ("x", "y"))
            truth[row["clip"], frame] = (x, y)
    clips: dict[str, GazeClip] = {}
    listed = folder / CLIPS_TABLE
    for line, row in rows_of(listed, ("clip", "file", "person", "split")):
        name = row["clip"]
        if name in clips or not row["person"]:
            problem = f"the clip {name} comes twice" if name in clips else f"{name} has no person"
            raise AnnotationFileError(listed, line, problem)
        if row["split"] not in (*SPLITS, ""):
            expected = ", ".join(SPLITS)
            raise AnnotationFileError(listed, line, f"split {row['split']!r}, expected {expected}")
        path = find_named(folder, row["file"]).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise AnnotationFileError(listed, line, f"{row['file']!r} lies outside the folder")
        known = gaze.get(name, {})
        if sorted(known) != list(range(len(known))) or not known:
            raise AnnotationFileError(
                listed, line, f"{name}: {GAZE_TABLE} has {len(known)} frames, expected all "
                "from 0 to the last",
            )  # fmt: skip
        values = np.array([known[number] for number in range(len(known))], dtype=np.float64)
        points, kinds = checked_gaze(values[:, :2], values[:, 2].astype(np.uint8))
        true = [truth.get((name, number), (np.nan, np.nan)) for number in range(len(known))]
        clips[name] = GazeClip(
            name, path, row["person"], row["split"], points, kinds,  # type: ignore[arg-type]
            len(known), len(known), np.array(true, dtype=np.float64),
        )  # fmt: skip
    return list(clips.values())


def _read_egtea(folder: Path) -> list[GazeClip]:
    clips = []
    for session in sorted(path for path in (folder / "cropped_clips").iterdir() if path.is_dir()):
        table = folder / "gaze_data" / f"{session.name}.txt"
        gaze, kind = read_begaze(table)
        for path in sorted(session.glob("*.mp4")):
            match = _EGTEA_CLIP.search(path.stem)
            if match is None:
                raise AnnotationFileError(path, 0, "expected a name that ends in -Ffirst-Flast.mp4")
            first, last = int(match[1]), int(match[2])
            if not first < last <= len(gaze):
                raise AnnotationFileError(
                    table, 0, f"{path.name}: has frames {first} to {last}, and the gaze of the "
                    f"session ends at {len(gaze)}",
                )  # fmt: skip
            # Cuts of the data set differ in including a clip's last frame.
            upto = min(last + 1, len(gaze))
            points, kinds = checked_gaze(gaze[first:upto], kind[first:upto])
            person = session.name.partition("-R")[0]
            clips.append(
                GazeClip(path.stem, path, person, "", points, kinds, last - first,  # type: ignore[arg-type]
                         last - first + 1)
            )  # fmt: skip
    return clips


def read_begaze(path: Path) -> tuple[Float64, NDArray[np.uint8]]:
    """Read a text file of BeGaze: gaze and kind of each frame of a session at 24 frames a second.

    The tracker has more samples than the video frames: of a frame that has fixations their mean
    counts, else that of its other tracked samples.
    """
    if not path.is_file():
        raise AnnotationFileError(path, 0, "found no such file")
    lines = read_text(path)[0].splitlines()
    if len(lines) <= EGTEA_HEADER_LINES:
        raise AnnotationFileError(
            path, len(lines), f"ends in its header of {EGTEA_HEADER_LINES} lines"
        )
    first_version = "Number of Samples" in lines[9]
    samples: dict[int, list[tuple[int, float, float]]] = {}
    for number, line in enumerate(lines[EGTEA_HEADER_LINES:], start=EGTEA_HEADER_LINES + 1):
        if not line.strip():
            continue
        values = line.split("\t") if "\t" in line else line.split()
        fewest = 7 if first_version else 26
        if len(values) < fewest:
            raise AnnotationFileError(
                path, number, f"found {len(values)} values, expected {fewest}; the file is cut off"
            )
        texts = values[3:5] if first_version else values[5:7]
        try:
            x, y = (float(text) for text in texts)
        except ValueError as error:
            raise AnnotationFileError(path, number, f"gaze {texts}, expected pixels") from error
        frame = (
            int(_number(values[5], path, number, "frame", _MOST_FRAMES))
            if first_version
            else _frame_of(values[-2], path, number)
        )
        word = (values[6] if first_version else values[-1]).strip().lower()
        kind = FIXATION if word == "fixation" else MOVING if word == "saccade" else UNTRACKED
        samples.setdefault(frame, []).append((kind, x / EGTEA_SIZE_PX[0], y / EGTEA_SIZE_PX[1]))
    count = max(samples) + 1
    gaze, kinds = np.full((count, 2), 0.5), np.full(count, UNTRACKED, dtype=np.uint8)
    for frame, readings in samples.items():
        best = min(kind for kind, _, _ in readings)
        kinds[frame] = best
        gaze[frame] = np.mean([(x, y) for kind, x, y in readings if kind == best], axis=0)
    return gaze, kinds


def _frame_of(text: str, path: Path, line: int) -> int:
    """Return the frame of a time code HH:MM:SS:FF."""
    match = re.fullmatch(r"\s*(\d{1,3}):(\d\d):(\d\d):(\d\d)\s*", text)
    if match is None:
        raise AnnotationFileError(path, line, f"time {text[:40]!r}, expected HH:MM:SS:FF")
    hours, minutes, seconds, frames = (int(part) for part in match.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * EGTEA_RATE_HZ + frames


def _read_ego4d(folder: Path) -> list[GazeClip]:
    persons: Mapping[str, str] = {}
    if (folder / "persons.csv").is_file():
        rows = rows_of(folder / "persons.csv", ("uid", "person"))
        persons = {row["uid"]: row["person"] for _, row in rows}
    clips = []
    for path in sorted((folder / "full_scale.gaze").glob("*.mp4")):
        table = folder / "gaze" / f"{path.stem}.csv"
        samples: dict[int, list[tuple[float, float]]] = {}
        columns = ("world_index", "confidence", "norm_pos_x", "norm_pos_y")
        for line, row in rows_of(table, columns):
            frame = int(_number(row["world_index"], table, line, "world_index", _MOST_FRAMES))
            sure = _number(row["confidence"], table, line, "confidence", 1)
            here = samples.setdefault(frame, [])
            if sure >= _LEAST_CONFIDENCE:
                try:
                    # Its origin is the lower left corner.
                    here.append((float(row["norm_pos_x"]), 1 - float(row["norm_pos_y"])))
                except ValueError as error:
                    problem = "norm_pos_x and norm_pos_y are not numbers"
                    raise AnnotationFileError(table, line, problem) from error
        if not samples:
            raise AnnotationFileError(table, 1, "holds no gaze")
        count = max(samples) + 1
        gaze, kind = np.full((count, 2), np.nan), np.full(count, UNTRACKED, dtype=np.uint8)
        for frame, readings in samples.items():
            if readings:
                gaze[frame], kind[frame] = np.mean(readings, axis=0), FIXATION
        points, kinds = checked_gaze(gaze, kind)
        person = persons.get(path.stem, path.stem)
        # The tracker may stop before the camera; it cannot go on after it.
        clips.append(
            GazeClip(path.stem, path, person, "", points, kinds, count, _MOST_FRAMES)  # type: ignore[arg-type]
        )
    return clips
