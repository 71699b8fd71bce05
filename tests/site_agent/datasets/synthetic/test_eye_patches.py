"""Rendered eyes: the same bytes again, gaze that can be learned, and differences with knobs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets.gaze.check import check_gaze
from site_agent.datasets.gaze.records import GazeSamples, angular_errors_deg
from site_agent.datasets.synthetic.eye_patches.dataset import (
    RenderSettings,
    render_person,
    rendered_count,
    write_eye_dataset,
)
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.errors import InvalidInputError

SETTINGS = RenderSettings(persons=6, frames_per_person=60, skews=Skews(amount=1))


@pytest.fixture(scope="module")
def persons() -> list[GazeSamples]:
    return [render_person(SETTINGS, number) for number in SETTINGS.numbers]


def ridge_error_deg(train: GazeSamples, test: GazeSamples) -> float:
    """Return the mean error of a linear prediction from pixels and head angles."""

    def features(samples: GazeSamples) -> np.ndarray:
        pixels = samples.patches.reshape(len(samples), -1).astype(np.float64)
        pixels = (pixels - pixels.mean(1, keepdims=True)) / pixels.std(1, keepdims=True)
        return np.column_stack([pixels, 10 * samples.head, np.ones(len(samples))])

    known = features(train)
    weights = known.T @ np.linalg.solve(known @ known.T + 300 * np.eye(len(known)), train.gaze)
    return float(angular_errors_deg(features(test) @ weights, test.gaze).mean())


def test_gaze_can_be_learned_from_other_sessions(persons: list[GazeSamples]) -> None:
    samples = GazeSamples.join(persons)
    held_out = samples.session == "s00"
    train, test = samples[~held_out], samples[held_out]
    constant = np.broadcast_to(train.gaze.mean(axis=0), test.gaze.shape)
    assert ridge_error_deg(train, test) < 0.6 * angular_errors_deg(constant, test.gaze).mean()


def test_the_same_settings_give_the_same_bytes(persons: list[GazeSamples], tmp_path: Path) -> None:
    few = RenderSettings(persons=2, frames_per_person=10, both_eyes=True, skews=Skews(amount=1))
    contents = []
    for name in ("one", "two"):
        drawn = write_eye_dataset(tmp_path / name, few)
        assert drawn.counts["samples"] == 40
        files = [drawn.path, *sorted(drawn.path.parent.glob("images/*/*.png"))]
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]
    assert check_gaze([tmp_path / "one"]) == []
    # A person does not depend on who else is rendered.
    alone = render_person(replace(SETTINGS, persons=1, first_person=5), 5)
    assert (alone.patches == persons[5].patches).all()
    other = render_person(replace(SETTINGS, seed=1, frames_per_person=3), 5)
    assert not (other.patches == persons[5].patches[:3]).all()


def test_both_eyes_of_a_frame_look_at_the_same_point() -> None:
    samples = render_person(replace(SETTINGS, both_eyes=True, frames_per_person=30), 0)
    eyes = {}
    for eye, sign in (("left", 1), ("right", -1)):
        one = samples[samples.eye == eye]
        eyes[eye] = one.gaze * (sign, 1)
        assert sorted(zip(one.session, one.frame, strict=True)) == list(
            zip(one.session, one.frame, strict=True)
        )
    assert eyes["left"].shape == (30, 2)
    assert np.abs(eyes["left"] - eyes["right"]).max() < np.deg2rad(5)


def test_the_lids_and_the_iris_follow_the_gaze(persons: list[GazeSamples]) -> None:
    samples = GazeSamples.join(persons)
    middle = samples.patches[:, 8:30, 8:52].astype(np.float64)
    dark = np.maximum(middle.mean(axis=(1, 2), keepdims=True) - middle, 0)
    weight = dark.sum(axis=(1, 2))
    x = (dark.sum(axis=1) @ np.arange(44)) / weight
    y = (dark.sum(axis=2) @ np.arange(22)) / weight
    # Yaw is positive to the left of the picture, pitch upwards.
    assert np.corrcoef(x, samples.gaze[:, 0])[0, 1] < -0.5
    assert np.corrcoef(y, samples.gaze[:, 1])[0, 1] < -0.5


def test_knobs_of_the_differences_between_persons() -> None:
    uneven = [rendered_count(replace(SETTINGS, skews=Skews()), number) for number in range(300)]
    assert max(uneven) <= 20.5 * min(uneven)
    assert max(uneven) > 15 * min(uneven)
    assert np.mean(uneven) == pytest.approx(SETTINGS.frames_per_person, rel=0.15)
    even = RenderSettings(frames_per_person=6, skews=Skews(0, 0, 0, 1), glasses=0)
    first, second = render_person(even, 0), render_person(even, 1)
    spread = render_person(replace(even, skews=Skews(1, 0, 0, 1)), 1)
    assert abs(first.patches.mean() - second.patches.mean()) < 5
    np.testing.assert_array_equal(second.gaze, spread.gaze)
    for wrong in ({"persons": 0}, {"sessions": (5, 3)}):
        with pytest.raises(InvalidInputError, match="expected"):
            RenderSettings(**wrong)
    with pytest.raises(InvalidInputError, match="expected"):
        Skews(amount=0.5)
