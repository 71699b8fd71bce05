"""Means of smashed data: their sites and their pairs of samples."""

import numpy as np
import pytest

from site_agent.split.frozen import MeansPlan, SmashedData
from site_agent.split.plan import SplitPlan

COUNTS = {"site-0": 90, "site-1": 61, "site-2": 40, "site-3": 19}


def data_of(site: str) -> SmashedData:
    """Return smashed data of one number, with gaze in another range at each site."""
    draw, count = np.random.default_rng(int(site[-1])), COUNTS[site]
    gaze = draw.normal(size=(count, 2)).astype(np.float32) * (1 + int(site[-1]))
    return SmashedData(np.ones((count, 1), np.float32), np.zeros((count, 2), np.float32), gaze)


def shared_rows(pairs: str) -> tuple[MeansPlan, list[SmashedData]]:
    training = {"batch_size": 4, "epochs": 2}
    plan = SplitPlan.model_validate(
        {"variant": "mean-smashed", "pairs": pairs, "training": training}
    )
    means = MeansPlan.of(plan, 1, COUNTS)
    return means, [means.give(site, data_of(site)) for site in COUNTS]


@pytest.mark.parametrize("pairs", ["shuffled", "by-gaze"])
def test_a_mean_is_over_at_least_three_sites(pairs: str) -> None:
    means, rows = shared_rows(pairs)
    sites = np.sum([item.smashed[:, 0] for item in rows], axis=0)
    assert len(sites) == means.rows
    assert sites.min() >= 3
    assert np.array_equal(sites, np.tile(means.sites, 2))
    total = SmashedData(
        *(np.sum([vars(x)[n] for x in rows], axis=0) for n in ("smashed", "head", "gaze"))
    )
    assert np.array_equal(means.mean(total).smashed, np.ones((means.rows, 1)))


def test_sites_that_sort_by_gaze_keep_its_spread_in_the_means() -> None:
    spread = {}
    for pairs in ("shuffled", "by-gaze"):
        means, rows = shared_rows(pairs)
        gaze = np.sum([item.gaze for item in rows], axis=0) / np.tile(means.sites, 2)[:, np.newaxis]
        spread[pairs] = gaze.std()
    assert spread["by-gaze"] > 1.5 * spread["shuffled"]


def test_each_pass_pairs_other_samples() -> None:
    for pairs in ("shuffled", "by-gaze"):
        means, rows = shared_rows(pairs)
        gaze = np.sum([item.gaze for item in rows], axis=0)
        first, second = (set(map(tuple, part)) for part in np.split(gaze, 2))
        assert len(first & second) < means.rows / 4
