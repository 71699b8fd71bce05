"""Membership: was a sample, or were samples of a person, among those that trained?

Signals are losses of the leaked networks (Yeom et al. 2018); logistic regression over them learns
from a shadow federation of public persons (Shokri et al. 2017); LiRA compares each loss with
those of networks that have not seen the sample (Carlini et al. 2022, offline). If networks of
single sites leaked, a sample is taken for a member if it is one of any site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aggregators.models import StateDict
from site_agent.attacks.leaks import (
    ALL_SITES,
    Float64,
    Leak,
    LeakLosses,
    Losses,
    RecordedRound,
    apply_update,
)
from site_agent.attacks.reidentification import update_cosines

_SMALLEST_DEVIATION = 1e-4
"""Of losses in radians, so that a sample of which references say the same is not decisive."""


@dataclass(frozen=True, eq=False)
class ShadowLosses:
    """Losses of a shadow federation on its own samples and on others."""

    losses: LeakLosses
    is_member: NDArray[np.bool_]


def by_person(losses: LeakLosses, persons: NDArray[np.str_]) -> tuple[LeakLosses, list[str]]:
    """Return the mean losses on the samples of each person, and the persons' names."""
    names = sorted({str(name) for name in persons})
    masks = [persons == name for name in names]
    before = np.stack([losses.before[:, mask].mean(axis=1) for mask in masks], axis=1)
    after = np.stack([losses.after[:, :, mask].mean(axis=2) for mask in masks], axis=2)
    return LeakLosses(losses.sites, before, after), names


def membership_signals(losses: LeakLosses) -> dict[str, Float64]:
    """Return the signals of each sample, shape (n,) each; higher for members.

    ``loss now`` is of the networks after the last round, ``loss at base`` of the first base, and
    ``change`` by how much a site's rounds lowered the loss, beyond what those of sites did on
    the mean; ``change in a round`` is the largest of any round, which only an attacker sees who
    has the networks of each round.
    """
    gains = losses.before[None] - losses.after
    if len(losses.sites) > 1:
        gains = gains - gains.mean(axis=0)
    return {
        "loss now": -losses.after[:, -1].min(axis=0),
        "loss at base": -losses.before[0],
        "change": gains.sum(axis=1).max(axis=0),
        "change in a round": gains.max(axis=(0, 1)),
    }


def likelihood_ratios(losses: LeakLosses, references: Float64) -> Float64:
    """Return LiRA's score of each sample: shape (n,), in standard deviations.

    Parameters
    ----------
    references : float64, shape (networks, n)
        Losses of networks that have not been trained with the samples, at least one. The networks
        of other sites serve as well, if they leaked.
    """
    last = losses.after[:, -1]
    scores = np.empty_like(last)
    for site, own in enumerate(last):
        out = np.concatenate([references, np.delete(last, site, axis=0)])
        deviation = np.maximum(out.std(axis=0), _SMALLEST_DEVIATION)
        if len(out) < 5:
            # Too few networks for a deviation of each sample.
            deviation = np.full_like(own, np.sqrt(np.mean(deviation**2)))
        scores[site] = (out.mean(axis=0) - own) / deviation
    best: Float64 = scores.max(axis=0)
    return best


def membership_scores(
    losses: LeakLosses,
    *,
    shadow: ShadowLosses | None = None,
    references: Float64 | None = None,
) -> dict[str, Float64]:
    """Return the score of each sample by every attack that the given knowledge allows.

    Parameters
    ----------
    shadow : ShadowLosses, optional
        For logistic regression; of the same kind of leak.
    references : float64, shape (networks, n), optional
        For LiRA; see `likelihood_ratios`.

    Returns
    -------
    dict of str to float64, shape (n,)
        By attack; higher for members.
    """
    signals = membership_signals(losses)
    scores = dict(signals)
    if shadow is not None:
        learnt = _columns(membership_signals(shadow.losses))
        fitted = fit_logistic(learnt, shadow.is_member)
        scores["shadow model"] = fitted.predict(_columns(signals))
    if references is not None and len(references):
        scores["LiRA"] = likelihood_ratios(losses, references)
    return scores


def reference_losses(
    recorded: Sequence[RecordedRound], losses: Losses, count: int = 6, seed: int = 0
) -> Float64:
    """Return losses of shadow federations on the samples, for LiRA.

    Each is the last round of `recorded` with another random half of its sites.

    Returns
    -------
    float64, shape (count, n)
    """
    last = recorded[-1]
    rng = np.random.default_rng(seed)
    sites = sorted(last.updates)
    found = []
    for _ in range(count):
        chosen = rng.choice(sites, max(1, len(sites) // 2), replace=False)
        network: StateDict = apply_update(last.base, *(last.updates[site] for site in chosen))
        found.append(losses.of(network))
    return np.array(found)


def _columns(signals: Mapping[str, Float64]) -> Float64:
    return np.stack([signals[name] for name in sorted(signals)], axis=1)


# Attributes of the persons at a site are predicted from its update, likewise by regression.
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


# Regression in a few lines rather than from a library: attacks learn from few shadow sites.


@dataclass(frozen=True, eq=False)
class Logistic:
    """A fitted logistic regression."""

    centre: Float64
    scale: Float64
    weights: Float64

    def predict(self, features: Float64) -> Float64:
        """Return the probability of each row, 0 to 1: shape (n,)."""
        scaled = (features - self.centre) / self.scale
        return _sigmoid(self.weights[0] + scaled @ self.weights[1:])


def fit_logistic(
    features: Float64, labels: NDArray[np.bool_], penalty: float = 1.0, steps: int = 25
) -> Logistic:
    """Fit a logistic regression with an L2 penalty by Newton's method, classes weighted alike.

    Parameters
    ----------
    features : float64, shape (n, columns)
    labels : bool, shape (n,)
        Some of either kind.
    """
    centre, scale = features.mean(axis=0), features.std(axis=0) + 1e-12
    rows = np.column_stack([np.ones(len(features)), (features - centre) / scale])
    target = labels.astype(np.float64)
    share = np.where(labels, 0.5 / target.mean(), 0.5 / (1 - target).mean())
    ridge = penalty * np.eye(rows.shape[1])
    ridge[0, 0] = 1e-9
    weights = np.zeros(rows.shape[1])
    for _ in range(steps):
        found = _sigmoid(rows @ weights)
        slope = rows.T @ (share * (found - target)) + ridge @ weights
        curve = (rows * (share * found * (1 - found))[:, None]).T @ rows + ridge
        weights = weights - np.linalg.solve(curve, slope)
    return Logistic(centre, scale, weights)


def kernel_ridge(known: Float64, between: Float64, values: Float64, penalty: float) -> Float64:
    """Return predictions of kernel ridge regression.

    Parameters
    ----------
    known : float64, shape (n, n)
        Kernel among the rows whose values are known.
    between : float64, shape (m, n)
        Kernel between the rows to predict and those.
    values : float64, shape (n, columns)
    penalty : float
        In means of the diagonal of `known`.

    Returns
    -------
    float64, shape (m, columns)
    """
    mean = values.mean(axis=0)
    ridge = penalty * np.trace(known) / len(known) * np.eye(len(known))
    predicted: Float64 = mean + between @ np.linalg.solve(known + ridge, values - mean)
    return predicted


def _sigmoid(values: Float64) -> Float64:
    return 1 / (1 + np.exp(-np.clip(values, -50, 50)))
