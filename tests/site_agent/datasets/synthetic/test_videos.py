"""Blink videos: times in the container, truth next to it, lids that really move."""

import csv
import json
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import pytest

from site_agent.datasets.synthetic.canvas import Camera, expose
from site_agent.datasets.synthetic.eyes import Blink, closure_curve, random_blinks
from site_agent.datasets.synthetic.head_model import Expression, Pose
from site_agent.datasets.synthetic.persons import person
from site_agent.datasets.synthetic.portraits import (
    Portrait,
    background,
    draw_portrait,
    eye_aspect_ratios,
)
from site_agent.datasets.synthetic.rendering import paint_head
from site_agent.datasets.synthetic.videos import Film, VideoScene, write_blink_video
from site_agent.errors import InvalidInputError


def rows_of(truth: Path) -> list[dict[str, str]]:
    with truth.with_suffix(".csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def decoded(path: Path) -> tuple[np.ndarray, list[np.ndarray]]:
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    return np.array([frame.time for frame in frames]), [f.to_ndarray(format="gray") for f in frames]


def test_video_truth_and_pixels_agree(tmp_path: Path) -> None:
    blinks = [Blink(0.5, 0.6, 0.8), Blink(1.2, 1.3, 1.5, 0.6)]
    truth = write_blink_video(tmp_path / "v.mp4", 2.0, 30, 1, 4, blinks=blinks, size=(320, 240))
    content = json.loads(truth.read_text())
    assert truth.name == "v_truth.json"
    assert content["video"] == "v.mp4"
    assert content["settings"]["person"] == 4
    assert [blink["complete"] for blink in content["blinks"]] == [True, False]
    assert content["blinks"][1]["amplitude"] == 0.6
    rows = rows_of(truth)
    times, images = decoded(tmp_path / "v.mp4")
    assert len(rows) == content["frames"] == len(images) == 60
    stated = np.array([float(row["timestamp_s"]) for row in rows])
    assert np.abs(times - stated).max() < 1e-5
    closure = np.array([float(row["closure"]) for row in rows])
    ear = np.array([float(row["ear"]) for row in rows])
    assert np.allclose(closure, closure_curve(blinks, stated), atol=1e-4)
    assert np.corrcoef(closure, ear)[0, 1] < -0.99
    moved = [np.abs(a.astype(int) - b).mean() for a, b in pairwise(images)]
    assert max(moved) < 12  # neither cuts nor garbage


def test_variable_frame_rate_and_lost_frames_are_real(tmp_path: Path) -> None:
    truth = write_blink_video(
        tmp_path / "v.mp4", 3.0, 25, 2, variable_frame_rate=True, lost_frames=0.2, size=(192, 128)
    )
    times, _ = decoded(tmp_path / "v.mp4")
    stated = np.array([float(row["timestamp_s"]) for row in rows_of(truth)])
    assert 45 <= len(times) < 75
    assert times[0] == 0.0
    assert np.abs(times - stated).max() < 1e-5
    assert np.diff(times).std() > 0.005


def test_same_seed_same_video(tmp_path: Path) -> None:
    made = [
        write_blink_video(tmp_path / name / "v.mp4", 0.5, 20, 3, size=(128, 96)) for name in "ab"
    ]
    assert made[0].read_bytes() == made[1].read_bytes()
    first, second = (decoded(truth.with_name("v.mp4"))[1] for truth in made)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_film_shows_each_moment_as_a_portrait_does() -> None:
    """Nothing kept between frames may be seen: neither old lids nor traces of the head."""
    scene = VideoScene(camera=Camera(blur_px=0.6, noise=0.0))
    someone, size = person(3), (160, 120)
    room = background(np.random.default_rng(1), size, "room")
    film = Film(room, scene.camera, np.random.default_rng(2))
    kept = paint_head(someone, Expression(), 24.0)
    for closure, yaw_deg, x, gaze in (
        (0.0, 0.0, 80.0, (0.0, 0.0)),
        (1.0, 0.0, 80.0, (0.0, 0.0)),
        (0.5, 8.0, 60.0, (0.5, 0.0)),
        (0.0, 0.1, 90.0, (0.0, 0.0)),
        (0.0, 0.0, -200.0, (0.0, 0.0)),
    ):
        moment = Portrait(
            someone,
            (x, 55.0),
            24.0,
            Pose(yaw_deg),
            closure_left=closure,
            closure_right=closure,
            gaze=gaze,
        )
        picture, ears = film.take(moment, kept, scene.light)
        alone = room.copy()
        landmarks = draw_portrait(alone, moment, scene.light, with_body=False)
        expected = expose(alone, scene.camera, np.random.default_rng(0))
        assert np.abs(picture.astype(int) - expected).max() <= 1, (closure, yaw_deg, x)
        assert ears == eye_aspect_ratios(landmarks)


def test_blinks_are_those_of_people() -> None:
    rng = np.random.default_rng(0)
    blinks = random_blinks(600, rng)
    assert 90 < len(blinks) < 220
    closing = np.array([blink.peak_s - blink.onset_s for blink in blinks])
    opening = np.array([blink.offset_s - blink.peak_s for blink in blinks])
    assert closing.min() >= 0.08
    assert closing.max() <= 0.12
    assert opening.min() >= 0.15
    assert opening.max() <= 0.25
    assert 0.05 < np.mean([not blink.complete for blink in blinks]) < 0.4
    starts = np.diff([blink.onset_s for blink in blinks])
    assert starts.min() < 0.8  # doubles
    assert all(a.offset_s < b.onset_s for a, b in pairwise(blinks))
    times = np.arange(0, 120, 0.001)
    closure = closure_curve(blinks, times)
    assert closure.min() == 0.0
    assert closure.max() <= 1.0
    assert np.abs(np.diff(closure)).max() < 0.03  # no jumps
    assert closure_curve(blinks, np.array([blinks[0].peak_s]))[0] == blinks[0].amplitude


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"seconds": 0}, "0 s"),
        ({"frame_rate_hz": 5000}, "frame rate 5000"),
        ({"lost_frames": 0.9}, "lost_frames is 0.9"),
        ({"size": (321, 240)}, "321 x 240; expected even numbers"),
    ],
)
def test_refuses_impossible_wishes(tmp_path: Path, arguments: dict, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        write_blink_video(tmp_path / "v.mp4", **arguments)
    assert not list(tmp_path.iterdir())
