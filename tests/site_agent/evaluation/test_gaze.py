"""Scores of gaze networks: against plain loops, and in files."""

from __future__ import annotations

import numpy as np
import pytest

from site_agent.datasets.gaze import GazeSamples, angular_errors_deg, join_samples
from site_agent.evaluation.gaze import score_gaze
from tests.site_agent.datasets.gaze.made import samples_of


@pytest.fixture
def samples() -> GazeSamples:
    return join_samples([samples_of("a", 24, 1), samples_of("b", 10, 2), samples_of("c", 40, 3)])


def test_scores_are_those_of_plain_means(samples: GazeSamples) -> None:
    found = samples.gaze + np.random.default_rng(0).normal(0, 0.05, samples.gaze.shape)
    scores = score_gaze(found, samples, resamples=50)
    errors = angular_errors_deg(found, samples.gaze)
    means = [float(errors[samples.person == name].mean()) for name in "abc"]
    assert [each.mean_error_deg for each in scores.persons] == pytest.approx(means)
    assert scores.mean_error_deg == pytest.approx(errors.mean())
    assert scores.median_error_deg == pytest.approx(np.median(errors))
    metrics = scores.metrics
    assert metrics["worst_person_error_deg"] == pytest.approx(max(means))
    assert metrics["person_range_deg"] == pytest.approx(max(means) - min(means))
    assert metrics["person_sd_deg"] == pytest.approx(np.std(means, ddof=1))
    low, high = scores.intervals["mean_error_deg"]
    # Whole persons are drawn: a mean lies between the persons' means, never outside.
    assert min(means) <= low <= scores.mean_error_deg <= high <= max(means) + 1e-9
