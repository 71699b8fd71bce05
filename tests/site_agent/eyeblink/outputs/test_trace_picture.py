"""The marks in the picture of the whole trace."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from site_agent.eyeblink.outputs.trace_picture import trace_figure
from site_agent.eyeblink.session import AnalysedSession
from site_agent.pictures.plot_style import CS_COLOUR, US_COLOUR, save_png


def drawn(session: AnalysedSession, path: Path) -> np.ndarray:
    save_png(trace_figure(session), path)
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def pixels_of(picture: np.ndarray, colour: str) -> int:
    rgb = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)])
    return int((np.abs(picture.astype(int) - rgb).max(axis=2) < 12).sum())


def test_stimuli_are_marked_where_there_are_trials(
    conditioned: AnalysedSession, tmp_path: Path
) -> None:
    with_trials = drawn(conditioned, tmp_path / "trials.png")
    without = drawn(replace(conditioned, conditioning=None), tmp_path / "none.png")
    for colour in (CS_COLOUR, US_COLOUR):
        assert pixels_of(with_trials, colour) > 200
        assert pixels_of(without, colour) == 0
