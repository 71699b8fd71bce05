"""The overlay video, from a recording with distinguishable frames."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest

from site_agent.eyeblink.face.finding import FoundFace
from site_agent.eyeblink.outputs.overlay import write_overlay
from site_agent.eyeblink.records import FaceBox, FaceSource
from site_agent.eyeblink.session import AnalysedSession
from site_agent.pictures.video_reading import Frame
from tests.site_agent.eyeblink.drawn_traces import trace_of


class DrawnFootage:
    """Grey frames with the landmarks of nobody."""

    def __init__(self, times_s: np.ndarray, size: tuple[int, int]) -> None:
        self._times_s, self._size = times_s, size

    def pictures(self) -> Iterator[tuple[Frame, FoundFace | None]]:
        width, height = self._size
        for index, time_s in enumerate(self._times_s):
            image = np.full((height, width, 3), 90, dtype=np.uint8)
            points = np.random.default_rng(0).uniform(0.3, 0.6, (68, 2)) * self._size
            box = FaceBox(0.2 * width, 0.2 * height, 0.7 * width, 0.7 * height)
            face = FoundFace(box, 1.0, FaceSource(1 + index % 2), points)
            yield Frame(index, float(time_s), image), None if index % 5 == 0 else face


def session_with(conditioned: AnalysedSession, size: tuple[int, int]) -> AnalysedSession:
    times_s = np.cumsum(np.random.default_rng(1).uniform(0.02, 0.08, 25)) - 0.02
    ear = np.where(np.arange(25) % 5 == 0, np.nan, 0.3)
    return replace(
        conditioned,
        trace=trace_of(times_s, ear),
        blinks=(),
        conditioning=None,
        footage=DrawnFootage(times_s, size),
        settings=replace(conditioned.settings, outputs=frozenset({"overlay"})),
    )


def test_every_frame_keeps_its_time(conditioned: AnalysedSession, tmp_path: Path) -> None:
    session = session_with(conditioned, (640, 480))
    path = tmp_path / "overlay.mp4"
    write_overlay(session, path)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = list(container.decode(stream))
    assert (frames[0].width, frames[0].height) == (640, 480)
    assert len(frames) == 25
    assert stream.time_base is not None
    times_s = [float(frame.pts * stream.time_base) for frame in frames if frame.pts is not None]
    assert times_s == pytest.approx(list(session.trace.timestamps_s), abs=2e-5)
    with_face, without = (frames[place].to_ndarray(format="gray") for place in (1, 5))
    assert np.ptp(with_face[100:340, 100:440]) > 100
    assert np.ptp(without[100:340, 100:440]) < 20
