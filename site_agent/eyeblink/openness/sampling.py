"""From frames to traces: one face, or all of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import numpy as np

from site_agent.eyeblink.face.crowd import FaceCrowd
from site_agent.eyeblink.face.finding import FaceCounts, Follower
from site_agent.eyeblink.face.landmarks import eye_sample, sample_eyes
from site_agent.eyeblink.openness.judging import without_unjudged
from site_agent.eyeblink.records import EyeTrace, FaceSource, TraceBuilder
from site_agent.eyeblink.video.frames import Frame, FrameSource
from site_agent.eyeblink.video.read_ahead import read_ahead

Progress = Callable[[float, str], None]

PROGRESS_EVERY_FRAMES = 30
FRAMES_AHEAD = 16
SHORTEST_VISIT_S = 1.0
"""A face that was seen for less is taken for an error of the detector."""


def sample_face(source: FrameSource, follower: Follower, progress: Progress | None) -> EyeTrace:
    """Measure the eyes of the face that a follower keeps, in every frame."""
    builder = TraceBuilder()
    with closing(read_ahead(source.frames, FRAMES_AHEAD)) as frames:
        for sample in sample_eyes(_reported(frames, source, progress), follower):
            builder.add(sample)
    return without_unjudged(builder.build(), builder.eyes_places())


def count_remarks(counts: FaceCounts, rule: str) -> list[str]:
    """Return warnings about the choice of the face."""
    remarks = []
    if counts.surveys_with_several:
        remarks.append(
            f"up to {counts.most_faces} faces were visible at once (in "
            f"{counts.surveys_with_several} of {counts.surveys} searches); analysed is the "
            f"face {rule!r}: choose another with --set face=NUMBER, or all of them with --all-faces"
        )
    if counts.other_places:
        remarks.append(
            f"{counts.other_places} times the face came back in another place than where it was "
            "lost: it may be another person's (--set face_track=true stays with the first one)"
        )
    return remarks


def sample_crowd(
    source: FrameSource, crowd: FaceCrowd, progress: Progress | None
) -> tuple[list[EyeTrace], int]:
    """Measure the eyes of every face.

    Returns
    -------
    traces : list of EyeTrace
        From the left of the picture to the right; each trace has all frames, with gaps where
        the person was not seen.
    left_out : int
        Faces that were seen for less than a second.
    """
    builders: list[TraceBuilder] = []
    times_s: array[float] = array("d")
    with closing(read_ahead(source.frames, FRAMES_AHEAD)) as frames:
        for frame in _reported(frames, source, progress):
            persons = crowd.step(frame.image, frame.timestamp_s)
            while len(builders) < len(persons):
                builders.append(_before(times_s))
            for person, builder in zip(persons, builders, strict=True):
                builder.add(eye_sample(frame, person.current))
            times_s.append(frame.timestamp_s)
    traces = [without_unjudged(each.build(), each.eyes_places()) for each in builders]
    kept = [trace for trace in traces if _seen_s(trace) >= SHORTEST_VISIT_S]
    return sorted(kept, key=_usual_place), len(traces) - len(kept)


def _before(times_s: Sequence[float]) -> TraceBuilder:
    """Return a trace in which nobody was seen yet."""
    builder = TraceBuilder()
    nothing = np.empty((0, 0), dtype=np.uint8)
    for index, time_s in enumerate(times_s):
        builder.add(eye_sample(Frame(index, time_s, nothing), None))
    return builder


def _seen_s(trace: EyeTrace) -> float:
    if trace.face is None or len(trace.frames) < 2:
        return 0.0
    seen = np.mean(trace.face.sources != FaceSource.MISSING)
    return float(seen) * trace.duration_s


def _usual_place(trace: EyeTrace) -> float:
    if trace.face is None:
        return 0.0
    boxes = trace.face.boxes
    return float(np.nanmedian(boxes[:, 0] + boxes[:, 2]))


def _reported(
    frames: Iterator[Frame], source: FrameSource, progress: Progress | None
) -> Iterator[Frame]:
    """Yield the frames and report the progress."""
    info = source.info
    total = info.declared_frames
    if total is None and info.duration_s and info.declared_rate_hz:
        total = round(info.duration_s * info.declared_rate_hz)
    for frame in frames:
        yield frame
        if progress is not None and frame.index % PROGRESS_EVERY_FRAMES == 0:
            share = min(1.0, frame.index / total) if total else 0.0
            progress(0.95 * share, f"frame {frame.index}")
