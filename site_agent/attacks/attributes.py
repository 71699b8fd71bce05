"""Attributes of the persons at a site, from its update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aggregators.models import StateDict
from site_agent.attacks.leaks import ALL_SITES, Float64, Leak
from site_agent.attacks.regression import kernel_ridge
from site_agent.attacks.reidentification import update_cosines

PENALTY = 0.1


def predict_from_updates(
    leak: Leak, sites: Sequence[str], shadow: Mapping[str, StateDict], values: Float64
) -> Float64:
    """Predict numbers that describe each site, by regression over updates of shadow sites.

    Kernel ridge regression over the cosines between updates of the first round. Melis et al.
    2019 infer properties from updates likewise.

    Parameters
    ----------
    leak : Leak
        With at least one round. If only a combined network leaked, all sites get its prediction.
    shadow : mapping of str to StateDict
        Networks that were trained from the leak's first base, each on another public person.
    values : float64, shape (shadow sites, columns)
        What is known of those persons, such as 1 for glasses and 0 for none.

    Returns
    -------
    float64, shape (sites, columns)
    """
    first = leak.rounds[0]
    known = list(shadow.values())
    seen = list(first.after.values())
    among = update_cosines(first.before, known, known, centre=known)
    between = update_cosines(first.before, seen, known, centre=known)
    predicted = kernel_ridge(among, between, values, PENALTY)
    order = list(first.after)
    place = [order.index(site if site in first.after else ALL_SITES) for site in sites]
    chosen: Float64 = predicted[place]
    return chosen
