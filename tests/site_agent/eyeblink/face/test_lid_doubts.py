"""Warnings about landmark models that keep the lids half open."""

from __future__ import annotations

from pathlib import Path

from aggregators import merge
from site_agent.eyeblink.openness.signal import Calibration
from site_agent.eyeblink.session import model_doubts, range_doubts


def test_an_unrefined_merge_is_doubted(eyes_file: Path, tmp_path: Path) -> None:
    assert model_doubts(eyes_file, None, 12) == ()
    (doubt,) = model_doubts(eyes_file, "site-a/face-68@1", 68)
    assert doubt.startswith("site-a/face-68@1 places all landmarks")
    merged = tmp_path / "merged.dat"
    merge("wba-cascade", [eyes_file, eyes_file], output=merged)
    (doubt,) = model_doubts(merged, None, 12)
    assert "merge (wba-cascade) that was not refined" in doubt
    assert "poolctl train ert --for blinks" in doubt


def test_a_small_range_is_doubted() -> None:
    assert range_doubts(Calibration(0.30, 0.07, reliable=True)) == []
    (doubt,) = range_doubts(Calibration(0.27, 0.17, reliable=True))
    assert "from 0.27 to 0.17 only" in doubt
