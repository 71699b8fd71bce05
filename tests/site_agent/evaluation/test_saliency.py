"""Scores of saliency maps, against values that were computed by hand."""

import numpy as np
import pytest

from site_agent.evaluation.saliency import (
    DISC_RADIUS,
    FrameScores,
    angle_between_deg,
    gaze_targets,
    join_as_glc,
    reference_maps,
    score_as_glc,
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
    # A pixel's middle is half a pixel off the gaze; at 60 degrees the focal length is 0.866.
    expected = np.degrees(np.arctan(np.hypot(0.25, 0.25) / 0.8660254))
    assert scores.aae_deg == pytest.approx(expected, abs=0.9)


def test_uniform_maps_exclude_nothing() -> None:
    gaze = RANDOM.uniform(0.3, 0.7, (10, 2))
    scores = summarise_frames(score_maps(np.ones((10, 64, 64)), gaze))
    assert (scores.recall, scores.auc) == (1.0, 0.5)
    assert scores.precision == pytest.approx(np.pi * DISC_RADIUS**2, rel=0.03)


def test_auc_is_the_share_of_pixels_that_are_less_salient() -> None:
    """Four pixels 4 > 3 > 2 > 1 and the gaze on the second: one of the three others is as hot."""
    maps = np.array([[[4.0, 3.0], [2.0, 1.0]]])
    [auc] = score_maps(maps, np.array([[0.9, 0.1]])).auc
    assert auc == pytest.approx(1 - (1 / 3) / 2)


def test_glcs_scores_soften_maps_and_compare_their_centre_of_mass() -> None:
    gaze = np.array([[0.25, 0.25], [0.75, 0.5]])
    maps = gaze_targets(gaze, 64, 64)
    exact = join_as_glc([score_as_glc(maps, gaze)])
    # Of the 19 x 19 pixels of a target, those above 0.001 are the true ones.
    share = (maps[0] > 0.001).sum() / 19**2
    assert exact.f1 == pytest.approx(2 * share / (1 + share), abs=0.02)
    assert exact.auc == pytest.approx(1.0, abs=0.001)
    # A map of two equal spots looks between them, where neither gaze is.
    both = np.broadcast_to(maps.mean(0), maps.shape)
    between = join_as_glc([score_as_glc(both, gaze)])
    assert between.auc < 0.95 < summarise_frames(score_maps(both, gaze)).auc
    # A uniform map has no region, and the middle of the frame as its centre.
    even = join_as_glc([score_as_glc(np.full((2, 64, 64), 1 / 64**2), gaze)])
    assert even.f1 == 0


def test_batches_change_nothing() -> None:
    gaze = RANDOM.uniform(0, 1, (64, 2))
    maps = RANDOM.uniform(0, 1, (64, 32, 32))
    whole = score_maps(maps, gaze)
    parts = [score_maps(maps[at : at + 1], gaze[at : at + 1]) for at in range(64)]
    joined = FrameScores.join(parts)
    assert summarise_frames(whole) == summarise_frames(joined)


def test_angles_follow_the_camera() -> None:
    left, right = np.array([[0.0, 0.5]]), np.array([[1.0, 0.5]])
    assert angle_between_deg(left, right, 60.0)[0] == pytest.approx(60.0)
    top, bottom = np.array([[0.5, 0.0]]), np.array([[0.5, 1.0]])
    assert angle_between_deg(top, bottom, 90.0)[0] == pytest.approx(90.0)


def test_targets_are_bells_that_sum_to_one() -> None:
    gaze = np.array([[0.5, 0.5], [0.0, 1.0], [0.5, 0.5], [1.4, 0.5]])
    maps = gaze_targets(gaze, 64, 64, np.array([True, True, False, True]))
    np.testing.assert_allclose(maps.sum((1, 2)), 1, rtol=1e-5)
    bell = maps[0] / maps[0].max()
    assert (bell[32, 32], bell[32, 42]) == (1.0, 0.0), "19 x 19 around the gaze"
    assert bell[32, 35] == pytest.approx(np.exp(-0.5 * (3 / 3.2) ** 2), rel=1e-5)
    assert maps[1].argmax() == 63 * 64, "the lower left corner"
    for untracked in maps[2:]:
        assert np.ptp(untracked) == 0


def test_the_person_mean_beats_the_centre_for_somebody_who_looks_down() -> None:
    gaze = np.clip(RANDOM.normal((0.5, 0.7), 0.08, (200, 2)), 0, 1)
    maps = reference_maps(gaze[:100], 32, 32)
    scores = {
        name: summarise_frames(score_maps(np.repeat(map_[None], 100, 0), gaze[100:])).auc
        for name, map_ in maps.items()
    }
    assert scores["person-mean"] > scores["centre"] > scores["uniform"] == 0.5


def test_no_frames_have_no_scores() -> None:
    nothing = summarise_frames(score_maps(np.ones((0, 8, 8)), np.ones((0, 2))))
    assert nothing.frames == 0
    assert np.isnan(nothing.recall)
