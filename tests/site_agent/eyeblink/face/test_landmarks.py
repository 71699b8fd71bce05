"""Eyes of one frame, and warnings about models that keep the lids half open."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregators import merge
from aggregators.formats import file_digest
from aggregators.predictors import LandmarkPredictor
from site_agent.errors import InvalidInputError
from site_agent.eyeblink import session
from site_agent.eyeblink.face.boxes import FaceSettings
from site_agent.eyeblink.face.finding import FoundFace
from site_agent.eyeblink.face.landmarks import (
    HeadPose,
    check_eyes,
    eye_sample,
    head_pose,
    pose_confidence,
)
from site_agent.eyeblink.openness.signal import Calibration
from site_agent.eyeblink.records import FaceBox, FaceSource, Gap
from site_agent.eyeblink.session import FaceModels, closed_share_of, model_doubts, range_doubts
from site_agent.pictures.video_reading import Frame
from tests.site_agent.faces.test_prediction import small_predictor

FRAME = Frame(7, 0.25, np.zeros((200, 200), dtype=np.uint8))


def face_at(x: float, y: float, yaw_deg: float = 0.0, pitch_deg: float = 0.0) -> FoundFace:
    """Return a face of eyes, nose and mouth, turned about its neck."""
    points = np.zeros((68, 3))
    angles = np.radians([180, 240, 300, 0, 60, 120])
    ring = np.stack([10 * np.cos(angles), 4 * np.sin(angles), 0 * angles], axis=1)
    points[36:42] = ring + np.array([-25, 0, 0])
    points[42:48] = ring + np.array([25, 0, 0])
    points[30] = [0, 28, 31]
    points[48], points[54] = [-15, 51, 0], [15, 51, 0]
    yaw, pitch = np.radians(yaw_deg), np.radians(pitch_deg)
    turn = np.array(
        [[np.cos(yaw), 0, np.sin(yaw)], [0, 1, 0], [-np.sin(yaw), 0, np.cos(yaw)]]
    ) @ np.array([[1, 0, 0], [0, np.cos(pitch), np.sin(pitch)], [0, -np.sin(pitch), np.cos(pitch)]])
    flat = (points @ turn.T)[:, :2] + [x, y]
    return FoundFace(FaceBox(x - 50, y - 40, x + 50, y + 60), 1.0, FaceSource.DETECT, flat)


def test_no_face_is_a_gap_and_never_an_open_eye() -> None:
    sample = eye_sample(FRAME, None)
    assert sample.gap is Gap.NO_FACE
    assert math.isnan(sample.ear_left)
    assert sample.confidence == 0.0


def test_both_eyes() -> None:
    sample = eye_sample(FRAME, face_at(100, 100))
    expected = 2 * 4 * math.sin(math.radians(60)) / 20
    assert sample.ear_left == pytest.approx(expected)
    assert sample.ear_right == pytest.approx(expected)
    assert sample.confidence == 1.0
    assert sample.gap is Gap.NONE


def test_an_eye_out_of_the_picture_is_left_out() -> None:
    one = eye_sample(FRAME, face_at(20, 100))
    assert math.isnan(one.ear_right)
    assert one.ear_left > 0
    assert one.gap is Gap.NONE
    none = eye_sample(FRAME, face_at(-60, 100))
    assert none.gap is Gap.EYES_OUTSIDE
    assert none.confidence == 0.0


@pytest.mark.parametrize("yaw_deg", [-60, 0, 30])
def test_yaw_is_estimated(yaw_deg: float) -> None:
    pose = head_pose(face_at(100, 100, yaw_deg=yaw_deg).landmarks)
    assert pose.yaw_deg == pytest.approx(yaw_deg, abs=12)


@pytest.mark.parametrize("pitch_deg", [-25, 0, 25])
def test_pitch_is_estimated(pitch_deg: float) -> None:
    pose = head_pose(face_at(100, 100, pitch_deg=pitch_deg).landmarks)
    assert pose.pitch_deg == pytest.approx(pitch_deg, abs=12)


def test_confidence_falls_as_the_face_turns_away() -> None:
    turned = [pose_confidence(HeadPose(yaw, 0.0)) for yaw in (0, 30, 60, 80)]
    assert turned[0] == turned[1] == 1.0
    assert turned[1] > turned[2] > turned[3]
    nodded = [pose_confidence(HeadPose(0.0, pitch)) for pitch in (0, 30, 40)]
    assert nodded[0] > nodded[1] > nodded[2]


def test_a_model_trained_in_the_order_of_text_is_refused() -> None:
    model = small_predictor(68)
    check_eyes(LandmarkPredictor(model), "a.dat")
    as_text = sorted(range(68), key=lambda number: str(number + 1))
    sorted_model = replace(model, initial_shape=model.initial_shape[as_text])
    with pytest.raises(InvalidInputError, match=r"a\.dat: .*as text .* are not the eyes"):
        check_eyes(LandmarkPredictor(sorted_model), "a.dat")


def test_confidence_falls_where_the_starts_disagree() -> None:
    face = face_at(100, 100)
    sure, unsure, lost = (
        eye_sample(FRAME, replace(face, disagreement=apart)).confidence
        for apart in (0.01, 0.06, 0.2)
    )
    assert sure == 1.0
    assert 0.3 < unsure < 0.8
    assert lost == pytest.approx(0.1)


def test_an_unrefined_merge_is_doubted(eyes_file: Path, tmp_path: Path) -> None:
    assert model_doubts(eyes_file, None, 12) == ()
    (doubt,) = model_doubts(eyes_file, "site-a/face-68@1", 68)
    assert doubt.startswith("site-a/face-68@1 places all landmarks")
    merged = tmp_path / "merged.dat"
    merge("wba-cascade", [eyes_file, eyes_file], output=merged)
    (doubt,) = model_doubts(merged, None, 12)
    assert "merge (wba-cascade) that was not refined" in doubt
    assert "poolctl train ert --for blinks" in doubt


def test_the_licence_of_the_stock_model_is_told(
    eyes_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FaceModels.open(eyes_file, None, FaceSettings(), {}).doubts == ()
    monkeypatch.setattr(session, "STOCK_SHA256", file_digest(eyes_file))
    (doubt,) = FaceModels.open(eyes_file, None, FaceSettings(), {}).doubts
    assert "research only" in doubt


def test_a_small_range_is_doubted() -> None:
    assert range_doubts(Calibration(0.30, 0.07, reliable=True)) == []
    (doubt,) = range_doubts(Calibration(0.27, 0.17, reliable=True))
    assert "from 0.27 to 0.17 only" in doubt
    assert "misses blinks" in doubt


def test_the_models_closed_eye_says_what_a_small_range_means() -> None:
    """A model that shows closed eyes at 0.08 was never seen to; one at 0.17 is at its end."""
    (doubt,) = range_doubts(Calibration(0.27, 0.17, reliable=True, model_share=0.3))
    assert "closed eyes at 0.08" in doubt
    assert "closed_from=model" in doubt
    assert range_doubts(Calibration(0.27, 0.17, reliable=True, model_share=0.6)) == []


def test_the_closed_eye_is_that_of_an_evaluation_on_other_faces(
    eyes_file: Path, tmp_path: Path
) -> None:
    model = tmp_path / "eyes.dat"
    model.write_bytes(eyes_file.read_bytes())
    assert closed_share_of(model) is None
    beside = tmp_path / "eyes.dat.evaluation.json"
    kept = {"model_digest": file_digest(model), "metrics": {"ear_range": 0.8}}
    beside.write_text(json.dumps(kept))
    assert closed_share_of(model) == pytest.approx(0.4)
    beside.write_text(json.dumps({**kept, "training_images": 3}))
    assert closed_share_of(model) is None
    beside.write_text(json.dumps({**kept, "model_digest": "0" * 64}))
    assert closed_share_of(model) is None
