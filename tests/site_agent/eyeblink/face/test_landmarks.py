"""Eyes of one frame: where they cannot be measured, and how far they can be trusted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from site_agent.eyeblink.face.finding import FoundFace
from site_agent.eyeblink.face.landmarks import estimate_pose, eye_sample
from site_agent.eyeblink.records import FaceBox, FaceSource, Gap
from site_agent.eyeblink.video.frames import Frame

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


@pytest.mark.parametrize("yaw_deg", [-60, 0, 30])
def test_yaw_is_estimated(yaw_deg: float) -> None:
    pose = estimate_pose(face_at(100, 100, yaw_deg=yaw_deg).landmarks)
    assert pose.yaw_deg == pytest.approx(yaw_deg, abs=12)


def test_confidence_falls_where_the_starts_disagree() -> None:
    face = face_at(100, 100)
    sure, unsure, lost = (
        eye_sample(FRAME, replace(face, disagreement=apart)).confidence
        for apart in (0.01, 0.06, 0.2)
    )
    assert sure == 1.0
    assert 0.3 < unsure < 0.8
    assert lost == pytest.approx(0.1)
