"""The picture of the whole trace: what is marked, and that nothing covers another."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image

from site_agent.eyeblink.outputs.trace_picture import (
    CS_COLOUR,
    DIGIT_OF_ROW,
    US_COLOUR,
    number_levels,
    write_trace_picture,
)
from site_agent.eyeblink.session import AnalysedSession


def drawn(session: AnalysedSession, path: Path) -> np.ndarray:
    write_trace_picture(session, path)
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def pixels_of(picture: np.ndarray, colour: str) -> int:
    wanted = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)])
    return int((np.abs(picture.astype(int) - wanted).max(axis=2) < 12).sum())


def test_stimuli_are_marked_where_there_are_trials(
    conditioned: AnalysedSession, tmp_path: Path
) -> None:
    with_trials = drawn(conditioned, tmp_path / "trials.png")
    without = drawn(replace(conditioned, conditioning=None), tmp_path / "none.png")
    for colour in (CS_COLOUR, US_COLOUR):
        assert pixels_of(with_trials, colour) > 200
        assert pixels_of(without, colour) == 0


def test_numbers_of_close_blinks_do_not_cover_each_other() -> None:
    times_s = np.cumsum(np.random.default_rng(0).uniform(0.05, 1.0, 120)).tolist()
    names = [str(number) for number in range(1, 121)]
    levels = number_levels(times_s, names, 30.0)
    written = list(zip(times_s, names, levels, strict=True))
    for level in {level for level in levels if level is not None}:
        ends = [
            (time_s - 0.5 * len(name) * width, time_s + 0.5 * len(name) * width)
            for time_s, name, height in written
            if height == level
            for width in [DIGIT_OF_ROW * 30.0]
        ]
        assert all(first[1] <= second[0] for first, second in pairwise(ends))
    assert sum(level is not None for level in levels) > 80
    assert number_levels([1.0, 2.5], ["36", "37"], 30.0) == [levels[0], levels[0]]
    near = number_levels([1.0, 1.2], ["36", "37"], 30.0)
    assert None not in near
    assert near[0] != near[1]
