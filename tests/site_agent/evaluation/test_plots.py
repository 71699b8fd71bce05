"""Curves of several models: nothing lies on the frame, and legends tell models apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from site_agent.evaluation import normaliser_for
from site_agent.evaluation.landmark_scores import (
    FaceErrors,
    LandmarkScores,
    summarise_landmarks,
)
from site_agent.evaluation.plots import plot_cumulative_errors
from site_agent.evaluation.report import short_names


def scores_of(error: float) -> LandmarkScores:
    faces = [FaceErrors(f"{i}.png", i, 0, 50.0, np.full(2, error)) for i in range(9)]
    return summarise_landmarks(faces, ("a", "b"), normaliser_for(("a", "b")), resamples=20)


def test_the_curve_of_a_model_without_errors_is_seen(tmp_path: Path) -> None:
    worse, blue = ("worse", scores_of(0.05)), (0, 114, 178)
    plot_cumulative_errors([worse, ("perfect", scores_of(1e-4))], tmp_path / "p.png", title="t")
    with Image.open(tmp_path / "p.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    rows, columns = np.nonzero((pixels == blue).all(axis=2))
    frame = (pixels == 0).all(axis=2)
    top = int(np.flatnonzero(frame.sum(axis=1) > 500)[0])
    left = int(np.flatnonzero(frame.sum(axis=0) > 300)[0])
    assert rows.min() > top + 4
    assert columns.min() > left + 4
    assert np.bincount(rows).max() > 200  # along the top, dashes and all
    assert np.bincount(columns).max() > 100  # and up from no faces to all


def test_legends_leave_out_folders_where_files_are_told_apart() -> None:
    assert short_names(["../big.dat", "/data/a.dat", "site-a/face", "b.dat"]) == {
        "../big.dat": "big.dat",
        "/data/a.dat": "a.dat",
        "site-a/face": "site-a/face",
        "b.dat": "b.dat",
    }
    same = ["../a/x.dat", "../b/x.dat"]
    assert short_names(same) == {name: name for name in same}
