"""Scores of saliency maps, against values that were computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from site_agent.evaluation.saliency import (
    FrameScores,
    gaze_targets,
    reference_maps,
    score_maps,
    summarise_frames,
)

RANDOM = np.random.default_rng(5)


def test_an_oracle_hits_every_gaze_and_covers_nothing_else() -> None:
    gaze = RANDOM.uniform(0.2, 0.8, (40, 2))
    maps = gaze_targets(gaze, 64, 64)
    scores = summarise_frames(score_maps(maps, gaze))
    assert (scores.recall, scores.precision, scores.auc) == (1.0, 1.0, 1.0)
    # The peak is the middle of the gaze's pixel, of 1/64 of 60 degrees: half a diagonal at most.
    assert scores.aae_deg < 0.8


def test_a_map_that_is_right_half_of_the_time() -> None:
    gaze = np.array([[0.25, 0.25], [0.75, 0.75]])
    maps = gaze_targets(np.array([[0.25, 0.25], [0.25, 0.25]]), 64, 64)
    scores = summarise_frames(score_maps(maps, gaze))
    assert scores.recall == 0.5
    assert (scores.precision, scores.precision_of_hits) == (0.5, 1.0)
    assert scores.f1 == 0.5
    # A pixel's middle is half a pixel beside the gaze; at 60 degrees the focal length is 0.866.
    expected = np.degrees(np.arctan(np.hypot(0.25, 0.25) / 0.8660254))
    assert scores.aae_deg == pytest.approx(expected, abs=0.9)


def test_pixel_f1_by_hand() -> None:
    gaze = np.array([[0.5, 0.5]])
    truth = gaze_targets(gaze, 64, 64)[0] > 0.001
    half = truth.copy()
    rows = np.flatnonzero(truth.any(1))
    half[rows[len(rows) // 2] :] = False
    share = half.sum() / truth.sum()
    [found] = score_maps(half[None].astype(float), gaze, pixel_threshold=1.0).pixel_f1
    assert found == pytest.approx(2 * share / (1 + share))


def test_batches_change_nothing() -> None:
    gaze = RANDOM.uniform(0, 1, (64, 2))
    maps = RANDOM.uniform(0, 1, (64, 32, 32))
    whole = score_maps(maps, gaze)
    parts = [score_maps(maps[at : at + 1], gaze[at : at + 1]) for at in range(64)]
    joined = FrameScores.join(parts)
    assert summarise_frames(whole) == summarise_frames(joined)


def test_the_person_mean_beats_the_centre_for_somebody_who_looks_down() -> None:
    gaze = np.clip(RANDOM.normal((0.5, 0.7), 0.08, (200, 2)), 0, 1)
    maps = reference_maps(gaze[:100], 32, 32)
    scores = {
        name: summarise_frames(score_maps(np.repeat(each[None], 100, 0), gaze[100:])).auc
        for name, each in maps.items()
    }
    assert scores["person-mean"] > scores["centre"] > scores["uniform"] == 0.5
