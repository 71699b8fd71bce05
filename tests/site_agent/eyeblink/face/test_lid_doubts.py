"""Warnings about landmark models that keep the lids half open."""

import json
from pathlib import Path

import pytest

from aggregators import merge
from aggregators.formats import file_digest
from site_agent.eyeblink import session
from site_agent.eyeblink.face.boxes import FaceSettings
from site_agent.eyeblink.openness.signal import Calibration
from site_agent.eyeblink.session import FaceModels, closed_share_of, model_doubts, range_doubts


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
