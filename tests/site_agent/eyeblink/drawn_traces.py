"""Traces of eye aspect ratios with known blinks, drawn from a few physiological numbers."""

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from site_agent.eyeblink.blinks.finding import Blink, BlinkSettings, judge_blinks
from site_agent.eyeblink.records import EyeTrace, Gap

Float64 = NDArray[np.float64]


def rows_of(table: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV table."""
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_trace(path: Path, times_s: Float64, ear: Float64) -> Path:
    """Write a table with more digits than ``frames.csv`` has; NaN is an empty cell."""
    rows = zip(times_s.tolist(), ear.tolist(), strict=True)
    lines = [
        f"{time_s:.9f},{'' if math.isnan(value) else f'{value:.9f}'}" for time_s, value in rows
    ]
    path.write_text("\n".join(["timestamp_s,ear", *lines]) + "\n")
    return path


def spans_of(blinks: Path) -> list[tuple[float, float]]:
    """Return onset and offset of each blink of a ``blinks.csv``."""
    return [(float(row["onset_s"]), float(row["offset_s"])) for row in rows_of(blinks)]


def true_spans(video: Path) -> list[tuple[float, float]]:
    """Return onset and offset of each blink that was drawn into a video."""
    truth = json.loads(video.with_name(f"{video.stem}_truth.json").read_text(encoding="utf-8"))
    return [(blink["onset_s"], blink["offset_s"]) for blink in truth["blinks"]]


@dataclass(frozen=True)
class Drawing:
    """Properties of a drawn recording; times in seconds, EAR as it is, amplitudes in FEC."""

    seconds: float = 90.0
    frame_rate_hz: float = 30.0
    open_ear: float = 0.30
    closed_ear: float = 0.06
    noise_ear: float = 0.008
    drift_ear: float = 0.02
    blinks_per_minute: float = 18.0
    amplitude_fec: tuple[float, float] = (0.7, 1.0)
    closing_s: tuple[float, float] = (0.07, 0.15)
    reopening_s: tuple[float, float] = (0.12, 0.30)
    glances: int = 4
    spikes: int = 0
    gaps: int = 0
    variable_rate: bool = False
    sharpness: float = 1.0
    """Power of the closure: landmarks that see only lids near closure make blinks brief."""


def trace_of(timestamps_s: Float64, ear: Float64) -> EyeTrace:
    """Return a trace of both eyes alike."""
    known = np.isfinite(ear)
    return EyeTrace(
        frames=np.arange(len(ear)),
        timestamps_s=timestamps_s,
        ear_left=ear,
        ear_right=ear,
        ear=ear,
        confidence=known.astype(np.float64),
        gaps=np.where(known, Gap.NONE, Gap.NO_FACE).astype(np.uint8),
    )


def draw_trace(seed: int, drawing: Drawing) -> tuple[EyeTrace, list[tuple[float, float]]]:
    """Return a trace and the (onset, offset) of its blinks."""
    rng = np.random.default_rng(seed)
    count = int(drawing.seconds * drawing.frame_rate_hz)
    times_s = np.arange(count) / drawing.frame_rate_hz
    if drawing.variable_rate:
        times_s = np.cumsum(rng.uniform(0.6, 1.4, count)) / drawing.frame_rate_hz
    intervals, closure = _draw_blinks(rng, times_s, drawing)
    for start_s in rng.uniform(0.0, drawing.seconds - 3.0, drawing.glances):
        length_s, depth = rng.uniform(0.6, 2.5), rng.uniform(0.15, 0.3)
        edges = [start_s, start_s + 0.4, start_s + 0.4 + length_s, start_s + 0.8 + length_s]
        closure = np.maximum(closure, depth * np.interp(times_s, edges, [0.0, 1.0, 1.0, 0.0]))
    level = drawing.open_ear + drawing.drift_ear * np.sin(times_s / 3.7 + rng.uniform(0.0, 6.0))
    ear = level - (level - drawing.closed_ear) * closure + rng.normal(0, drawing.noise_ear, count)
    ear[rng.integers(0, count, drawing.spikes)] -= rng.uniform(0.05, 0.15, drawing.spikes)
    for start in rng.integers(0, count - 40, drawing.gaps):
        ear[start : start + rng.integers(1, 30)] = np.nan
    return trace_of(times_s, ear), intervals


def _draw_blinks(
    rng: np.random.Generator, times_s: Float64, drawing: Drawing
) -> tuple[list[tuple[float, float]], Float64]:
    count = int(drawing.blinks_per_minute * drawing.seconds / 60.0)
    intervals: list[tuple[float, float]] = []
    closure = np.zeros(len(times_s))
    for onset_s in np.sort(rng.uniform(0.8, drawing.seconds - 1.2, count)):
        if intervals and onset_s - intervals[-1][0] < 0.9:
            continue
        peak_s = onset_s + rng.uniform(*drawing.closing_s)
        held_s = peak_s + rng.uniform(0.0, 0.06)
        offset_s = held_s + rng.uniform(*drawing.reopening_s)
        share = np.interp(times_s, [onset_s, peak_s, held_s, offset_s], [0.0, 1.0, 1.0, 0.0])
        smooth = (share**2 * (3.0 - 2.0 * share)) ** drawing.sharpness
        closure = np.maximum(closure, rng.uniform(*drawing.amplitude_fec) * smooth)
        intervals.append((float(onset_s), float(offset_s)))
    return intervals, closure


def find_blinks(trace: EyeTrace, settings: BlinkSettings = BlinkSettings()) -> list[Blink]:
    """Find the blinks and longer closures of a session, without left-out events."""
    return list(judge_blinks(trace, settings).blinks)
