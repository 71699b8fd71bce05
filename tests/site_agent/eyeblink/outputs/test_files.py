"""Tables and their descriptions, pictures, overlays, and the NWB file."""

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from site_agent.eyeblink.conditioning.trial_measures import TrialMeasures
from site_agent.eyeblink.face.finding import FoundFace
from site_agent.eyeblink.outputs.overlay import write_overlay
from site_agent.eyeblink.outputs.registry import OUTPUTS, write_outputs
from site_agent.eyeblink.outputs.tables import BLINKS, FRAMES, TRIALS, UNITS
from site_agent.eyeblink.outputs.trace_picture import trace_figure
from site_agent.eyeblink.records import FaceBox, FaceSource
from site_agent.eyeblink.session import AnalysedSession
from site_agent.pictures.plot_style import CS_COLOUR, US_COLOUR, save_png
from site_agent.pictures.video_reading import Frame
from tests.site_agent.eyeblink.drawn_traces import rows_of, trace_of

ESSENTIAL = [output for output in OUTPUTS if output.essential]
"""Pictures take most of the time, and nothing here is about them."""


def refuse(constant: str) -> float:
    raise AssertionError(constant)


@pytest.mark.parametrize("table", [FRAMES, BLINKS, TRIALS], ids=lambda table: table.name)
def test_every_column_is_described(table) -> None:
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert table.key in names
    for column in table.columns:
        assert len(column.description) > 8, column
        assert not column.unit or column.unit in UNITS, column
        if column.name.endswith(("_s", "_ms", "_px")):
            unit = column.name.rpartition("_")[2]
            expected = "FEC/s" if column.name.endswith("per_s") else unit
            assert column.unit == expected, column
    assert set(table.levels) <= set(names)


def test_trials_table(conditioned: AnalysedSession, tmp_path: Path) -> None:
    files = write_outputs(conditioned, tmp_path / "out", outputs=ESSENTIAL).files
    rows = rows_of(files["trials"])
    assert conditioned.conditioning is not None
    results = conditioned.conditioning.trials
    assert [row["trial"] for row in rows] == [result.measures.trial for result in results]
    assert list(rows[0]) == list(TRIALS.header)
    for row, result in zip(rows, results, strict=True):
        assert row["valid"] == ("true" if result.valid else "false")
        assert row["cr"] == {True: "true", False: "false", None: ""}[result.cr]
        if row["cs_onset_s"]:
            assert float(row["cs_onset_s"]) == pytest.approx(result.measures.cs_onset_s, abs=1e-6)
    names = {field.name for field in fields(TrialMeasures)}
    assert set(TRIALS.header) - names <= {"valid", "rejections", "cr"}


def test_session_summary(conditioned: AnalysedSession, tmp_path: Path) -> None:
    files = write_outputs(conditioned, tmp_path / "out", outputs=ESSENTIAL).files
    content = json.loads(files["session"].read_text(encoding="utf-8"), parse_constant=refuse)
    blinks = [blink for blink in conditioned.blinks if blink.kind == "blink"]
    assert content["blinks"]["blinks"] == len(blinks) > 10
    assert content["blinks"]["complete"] + content["blinks"]["partial"] == len(blinks)
    assert sum(minute["blinks"] for minute in content["blinks"]["rate"]) == len(blinks)
    assert content["blinks"]["seen_s"] == pytest.approx(conditioned.trace.duration_s - 1.0, abs=0.1)
    assert content["conditioning"]["summary"]["n_trials"] == 16
    assert len(content["conditioning"]["sensitivity"]) == 5
    assert content["start"]["time"] == "2024-05-06T07:08:00+00:00"
    assert content["calibration"]["span_ear"] == pytest.approx(conditioned.calibration.span)


def test_the_data_package_finds_wrong_data(conditioned: AnalysedSession, tmp_path: Path) -> None:
    frictionless = pytest.importorskip("frictionless", reason="frictionless is not installed")
    files = write_outputs(conditioned, tmp_path / "out", outputs=ESSENTIAL).files
    package = json.loads(files["datapackage"].read_text(encoding="utf-8"))
    assert [resource["name"] for resource in package["resources"]] == ["frames", "blinks", "trials"]
    report = frictionless.validate(str(files["datapackage"]))
    assert report.valid, report.flatten(["rowNumber", "fieldNumber", "type", "note"])[:5]
    blinks = files["blinks"].read_text(encoding="utf-8").replace("blink,", "wink,", 1)
    files["blinks"].write_text(blinks, encoding="utf-8")
    assert not frictionless.validate(str(files["datapackage"])).valid


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
        tick_s = stream.time_base or 0
    assert (frames[0].width, frames[0].height) == (640, 480)
    assert len(frames) == 25
    times_s = [float(frame.pts * tick_s) for frame in frames if frame.pts is not None]
    assert times_s == pytest.approx(list(session.trace.timestamps_s), abs=2e-5)
    with_face, without = (frames[place].to_ndarray(format="gray") for place in (1, 5))
    assert np.ptp(with_face[100:340, 100:440]) > 100
    assert np.ptp(without[100:340, 100:440]) < 20
