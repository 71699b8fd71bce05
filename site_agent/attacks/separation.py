"""Success of attacks: how well their scores separate members from others, with intervals."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.errors import InvalidInputError
from site_agent.evaluation import Interval, bootstrap_intervals

Float64 = NDArray[np.float64]
RESAMPLES = 200


@dataclass(frozen=True)
class Separation:
    """Separation of members from others by scores; chance is 0.5, 0.5 and 0.01."""

    auc: float
    """Probability that a member scores higher than another, ties counted half."""
    balanced_accuracy: float
    """Of the guess that all above the median score are members."""
    true_positives_at_1_percent: float
    """Share of the members found where 1 % of the others are taken for members."""
    intervals: Mapping[str, Interval]
    """(low, high): 95 % bootstrap intervals of the three."""
    members: int
    others: int


@dataclass(frozen=True, eq=False)
class MemberScores:
    """The scores that an attack gives to samples.

    `scores` (float64, shape (n,)): Higher for those that the attack takes for members. `is_member`
    (bool, shape (n,)). `persons` (str, shape (n,)): Intervals resample whole persons.
    """

    scores: Float64
    is_member: NDArray[np.bool_]
    persons: NDArray[np.str_]

    def by_person(self) -> "MemberScores":
        """Return the mean score of each person."""
        names = np.unique(self.persons)
        means = np.array([self.scores[self.persons == name].mean() for name in names])
        member = np.array([self.is_member[self.persons == name].any() for name in names])
        return MemberScores(means, member, names)


def separation(
    scores: Float64,
    is_member: NDArray[np.bool_],
    *,
    groups: NDArray[np.str_] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Separation:
    """Return how well scores separate members from others.

    `scores` (float64, shape (n,)): Higher for members. `groups` (str, shape (n,)): Samples of one
    person are not independent: intervals resample whole groups.

    Raises `InvalidInputError`: there are no members, or nobody else.
    """
    is_member = np.asarray(is_member, dtype=bool)
    members, others = int(is_member.sum()), int((~is_member).sum())
    if not members or not others:
        raise InvalidInputError(f"found {members} members and {others} others, expected some")
    _, group = np.unique(np.arange(len(scores)) if groups is None else groups, return_inverse=True)

    def measures(counts: NDArray[np.int64]) -> dict[str, float]:
        return _measures(scores, is_member, counts[group].astype(np.float64))

    values = measures(np.ones(int(group.max()) + 1, dtype=np.int64))
    intervals = bootstrap_intervals(measures, int(group.max()) + 1, resamples=resamples, seed=seed)
    return Separation(**values, intervals=intervals, members=members, others=others)


def _measures(scores: Float64, is_member: NDArray[np.bool_], counts: Float64) -> dict[str, float]:
    levels, place = np.unique(scores, return_inverse=True)
    member = np.bincount(place, counts * is_member, len(levels))
    other = np.bincount(place, counts * ~is_member, len(levels))
    members, others = member.sum(), other.sum()
    if not members or not others:
        names = ("auc", "balanced_accuracy", "true_positives_at_1_percent")
        return dict.fromkeys(names, float("nan"))
    # From the highest score down: shares of members and of others at or above it.
    true = np.cumsum(member[::-1]) / members
    false = np.cumsum(other[::-1]) / others
    below = 1 - false + other[::-1] / others / 2
    auc = float((member[::-1] / members * below).sum())
    above = scores > np.median(scores)
    hit = (counts * (above & is_member)).sum() / members
    wrong = (counts * (above & ~is_member)).sum() / others
    return {
        "auc": auc,
        "balanced_accuracy": float((hit + 1 - wrong) / 2),
        "true_positives_at_1_percent": float(true[false <= 0.01].max(initial=0.0)),
    }
