"""Re-identification without a generator: which persons trained a leaked network?

The attacker has pictures of every candidate with their gaze, but not those that trained. Two
attacks give a score to each pair of a site and a candidate:

- by losses, ``score(j, p) = loss_base(p) - loss_j(p)``: how much the training of site j lowered
  the loss on the pictures of p;
- by updates: how alike the update of site j is to the one that the attacker gets when he trains
  the same base with the pictures of p. It is the stronger one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from site_agent.attacks.leaks import ALL_SITES, Leak, LeakLosses, apply_update
from site_agent.attacks.separation import Float64
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.local_training import train_at_site

_DRAWS, _PERMUTATIONS = 200, 10_000


@dataclass(frozen=True, eq=False)
class Reidentification:
    """The person for which each site was taken."""

    sites: tuple[str, ...]
    matched: float
    """Share of the sites that the best one-to-one matching gives their own person, 0 to 1; where
    scores tie, the mean over ties broken at random."""
    p_value: float
    """Probability of at least this share by chance: each site given a random person."""
    scores: Float64
    """Of shape (sites, persons). Column j is the person of site j."""

    @property
    def chance(self) -> float:
        return 1 / len(self.sites)


def reidentify(scores: Float64, sites: Sequence[str], seed: int = 0) -> Reidentification:
    """Match sites to persons by any scores; rows are sites, and column j is the person of site j.

    Means of rows and columns are taken out first: a site that trained well, and a person with easy
    pictures, say nothing of each other.
    """
    scores = np.asarray(scores, dtype=np.float64)
    centred = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    # Scores of a combined network are equal for all sites but for rounding.
    centred = np.where(np.abs(centred) < 1e-9 * (1 + np.abs(scores).max()), 0.0, centred)
    rng = np.random.default_rng(seed)
    site_order = np.arange(len(sites))
    matched = []
    for _ in range(_DRAWS):
        tied = centred + 1e-9 * (1 + np.abs(centred).max()) * rng.random(centred.shape)
        _, persons = linear_sum_assignment(-tied)
        matched.append(float(np.mean(persons == site_order)))
    random = rng.permuted(np.tile(site_order, (_PERMUTATIONS, 1)), axis=1)
    chance = (random == site_order).mean(axis=1)
    # With ties, the mean p-value over the matchings that break them.
    as_good = [np.count_nonzero(chance >= share) for share in matched]
    p_value = (1 + np.mean(as_good)) / (1 + _PERMUTATIONS)
    return Reidentification(tuple(sites), float(np.mean(matched)), float(p_value), centred)


def scores_by_losses(
    losses: LeakLosses, persons: NDArray[np.str_], sites: Sequence[str]
) -> Float64:
    """Return score(j, p) for sites and the persons of the same names.

    `losses`: On pictures of the persons with which no site trained. `persons` (str, shape (n,)):
    The person on each picture. `sites`: A site is named like its person. If only a combined network
    leaked, all sites have its scores.

    Returns float64, shape (sites, sites).
    """
    gains = losses.gains
    means = np.array([gains[:, persons == name].mean(axis=1) for name in sites]).T
    if losses.sites == (ALL_SITES,):
        return np.repeat(means, len(sites), axis=0)
    order = [losses.sites.index(site) for site in sites]
    return means[order]


class UpdateComparison:
    """Compares updates of sites with those that the attacker gets from pictures of candidates.

    Each base is trained once, however many leaks are compared.

    `candidates`: Pictures of each person, at least 2; a site is named like its person. `training`:
    How sites train.
    """

    def __init__(self, candidates: Mapping[str, GazeSamples], training: LocalTraining) -> None:
        self._candidates, self._training = candidates, training
        self._made: dict[tuple[int, int], tuple[StateDict, list[StateDict]]] = {}

    def scores(self, leak: Leak) -> Float64:
        """Return the similarity of each site's update to that of each candidate.

        The cosine of each tensor of weights, less the mean over sites and over candidates, is
        summed over tensors and rounds. They are 0 where no network of a single site leaked.

        Returns float64, shape (candidates, candidates): Rows are sites.
        """
        names = list(self._candidates)
        total = np.zeros((len(names), len(names)))
        for number, leaked in enumerate(leak.rounds, 1):
            if ALL_SITES not in leaked.after:
                seen = [leaked.after[name] for name in names]
                total += update_cosines(leaked.before, seen, self._train(leaked.before, number))
        return total

    def _train(self, base: StateDict, number: int) -> list[StateDict]:
        # The base is kept with its updates: the id of an object that is gone may be used again.
        key = (id(base), number)
        if key not in self._made:
            self._made[key] = (
                base,
                [
                    apply_update(
                        base,
                        train_at_site(
                            base, "0" * 64, samples, self._training,
                            site=f"as {name}", round_number=number,
                        ).contribution,
                    )
                    for name, samples in self._candidates.items()
                ],
            )  # fmt: skip
        return self._made[key][1]


def update_cosines(
    before: StateDict,
    rows: Sequence[StateDict],
    columns: Sequence[StateDict],
    *,
    centre: Sequence[StateDict] = (),
) -> Float64:
    """Return cosines between the updates of two sets of networks, summed over weight tensors.

    `centre`: The mean of their updates is taken off all. Without it, each set's own mean is taken
    off, so that cosines are 0 where the networks of a set are all equal.

    Returns float64, shape (rows, columns).
    """
    total = np.zeros((len(rows), len(columns)))
    for name, info in before.infos.items():
        if len(info.shape) > 1:
            left, right = _updates(before, rows, name), _updates(before, columns, name)
            common = _updates(before, centre, name).mean(axis=0) if centre else None
            total += _directions(left, common) @ _directions(right, common).T
    return total


def _updates(before: StateDict, networks: Sequence[StateDict], name: str) -> NDArray[np.float32]:
    base = np.asarray(before.tensors[name], dtype=np.float32).ravel()
    return np.array([np.asarray(network.tensors[name]).ravel() - base for network in networks])


def _directions(
    updates: NDArray[np.float32], common: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    if common is None:
        common = updates.mean(axis=0)
        if np.array_equal(updates, np.broadcast_to(updates[0], updates.shape)):
            return np.zeros_like(updates)
    centred = updates - common
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    directions: NDArray[np.float32] = centred / np.maximum(lengths, np.finfo(np.float32).tiny)
    return directions
