"""Traces of eye aspect ratios from frames: one face, even times, smoothing.

An even time axis has 30 to 60 samples a second at every frame rate. Smoothing is on request;
the raw values are always kept, too.
"""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from site_agent.eyeblink import records
from site_agent.eyeblink.face.finding import FaceCounts, Follower
from site_agent.eyeblink.face.landmarks import sample_eyes
from site_agent.eyeblink.openness.signal import without_unjudged
from site_agent.eyeblink.video.seeking import read_ahead
from site_agent.pictures.video_reading import Frame, FrameSource
from site_agent.work import Progress

LONGEST_PAUSE_S = 5.0
"""A longer pause between two frames is shortened to this: nothing is looked for in it."""


@dataclass(frozen=True, eq=False)
class EvenTrace:
    """Mean EAR in bins of equal length, NaN in empty ones, and the bin of every sample."""

    step_s: float
    ear: records.Float64
    bin_of_sample: records.Int64

    def bins(self, duration_s: float) -> int:
        """Return the nearest number of bins to a duration; of two equally near ones the larger.

        Timestamps carry rounding errors: 50 ms are 1.4999999 or 1.5000001 bins of 33.3 ms
        depending on when the clock started, and must be the same number for both.
        """
        return math.floor(duration_s / self.step_s + 0.5 + 1e-6)


def evenly_spaced(
    timestamps_s: records.Float64, ear: records.Float64, longest_bin_s: float
) -> EvenTrace:
    """Put samples into bins of one or several frames, at most about `longest_bin_s` long.

    Many frames a second carry more noise each; the mean over a bin brings recordings of 30 and
    of 500 frames a second to the same footing. Slower recordings keep each frame as it is.
    Lost frames and variable frame rates leave empty bins, not shifted ones.
    """
    if len(timestamps_s) < 2:
        return EvenTrace(longest_bin_s, ear.copy(), np.zeros(len(ear), dtype=np.int64))
    steps_s = np.diff(timestamps_s)
    frame_s = float(np.median(steps_s))
    frames_per_bin = max(1, int(longest_bin_s / frame_s + 1e-6))
    step_s = frame_s * frames_per_bin
    time_s = np.concatenate([[0.0], np.cumsum(np.minimum(steps_s, LONGEST_PAUSE_S))])
    position = time_s / step_s
    # Half a frame of tolerance keeps jittering timestamps of a steady camera in separate bins.
    shift = 0.5 / frames_per_bin
    index = np.floor(position + shift).astype(np.int64)
    known = np.isfinite(ear)
    count = np.bincount(index[known], minlength=int(index[-1]) + 1)
    total = np.bincount(index[known], weights=ear[known], minlength=int(index[-1]) + 1)
    binned = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return EvenTrace(step_s, binned, index)


def percentile_of_known(
    values: records.Float64, percentile: float, otherwise: records.Float64
) -> records.Float64:
    """Return the percentile of the known values of each row of `values`, shape (m, n).

    `otherwise`, shape (m,), stands in where fewer than two are known.
    """
    if values.shape[0] == 0:
        return otherwise
    ordered = np.sort(values, axis=1)  # NaN last
    count = np.isfinite(ordered).sum(axis=1)
    position = np.maximum(count - 1, 0) * (percentile / 100.0)
    low = np.floor(position).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(count - 1, 0))
    rows = np.arange(len(ordered))
    low_value, high_value = ordered[rows, low], ordered[rows, high]
    value = low_value + (position - low) * (high_value - low_value)
    return np.where(count >= 2, value, otherwise)


PROGRESS_EVERY_FRAMES = 30
FRAMES_AHEAD = 16


def sample_face(source: FrameSource, follower: Follower, progress: Progress) -> records.EyeTrace:
    """Measure the eyes of the face that a follower keeps, in every frame."""
    builder = records.TraceBuilder()
    with closing(read_ahead(source.frames, FRAMES_AHEAD)) as frames:
        for sample in sample_eyes(_reported(frames, source, progress), follower):
            builder.add(sample)
    return without_unjudged(builder.build())


def count_remarks(counts: FaceCounts, rule: str) -> list[str]:
    """Return warnings about the choice of the face."""
    remarks = []
    if counts.surveys_with_several:
        remarks.append(
            f"up to {counts.most_faces} faces were visible at once (in "
            f"{counts.surveys_with_several} of {counts.surveys} searches); analysed is the "
            f"face {rule!r}: choose another with --set face=NUMBER"
        )
    if counts.other_places:
        remarks.append(
            f"{counts.other_places} times the face came back in another place than where it was "
            "lost: it may be another person's (--set face_track=true stays with the first one)"
        )
    return remarks


def _reported(frames: Iterator[Frame], source: FrameSource, progress: Progress) -> Iterator[Frame]:
    """Yield the frames and report the progress."""
    info = source.info
    total = info.declared_frames
    if total is None and info.duration_s and info.declared_rate_hz:
        total = round(info.duration_s * info.declared_rate_hz)
    for frame in frames:
        yield frame
        if frame.index % PROGRESS_EVERY_FRAMES == 0:
            share = min(1.0, frame.index / total) if total else 0.0
            progress(0.95 * share, f"frame {frame.index}")
