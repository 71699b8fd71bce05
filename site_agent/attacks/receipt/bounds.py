"""The lower bound on epsilon of a receipt: an audit in one run (Steinke et al. 2023).

A fair coin decides for each sample of the site whether it trains, with the settings of the
contribution; an attack then guesses the coins about which it is surest. Under (epsilon,
delta)-differential privacy the number of right guesses is bounded by a binomial, so that more of
them refute a smaller epsilon. The upper bound is that of the accountant.
"""

from collections.abc import Mapping

import numpy as np
from scipy.stats import binom

from site_agent.attacks.separation import MemberScores

CONFIDENCE = 0.95
_SHARES = (1.0, 0.5, 0.25)
"""Of the samples: an attack guesses about these."""
_CANDIDATES = np.arange(0.01, 20.0, 0.01)


def epsilon_at_least(attacks: Mapping[str, MemberScores], delta: float) -> tuple[float, str]:
    """Return the largest epsilon that an attack refutes, and the attack; 0 if none does.

    `attacks`: On samples that fair coins chose as members. All attacks and numbers of guesses are
    tried, so that the error probability is divided by their number (Bonferroni).
    """
    error = (1 - CONFIDENCE) / max(1, len(attacks) * len(_SHARES))
    best, strongest = 0.0, ""
    for name, attack in attacks.items():
        order = np.argsort(attack.scores, kind="stable")
        is_member = attack.is_member[order]
        for share in _SHARES:
            side = max(1, int(share * len(order)) // 2)
            right = int((~is_member[:side]).sum() + is_member[-side:].sum())
            epsilon = refuted_epsilon(right, 2 * side, len(order), delta, error)
            if epsilon > best:
                best, strongest = epsilon, name
    return best, strongest


def refuted_epsilon(right: int, guesses: int, samples: int, delta: float, error: float) -> float:
    """Return the largest epsilon under which this number of right guesses is too unlikely.

    Theorem 5.2 of Steinke et al., on a grid of epsilons; rounded down.
    """
    epsilons = _CANDIDATES[:, None]
    rate = 1 / (1 + np.exp(-epsilons))
    # tail[i]: probability of at least right - i right guesses.
    tail = binom.sf(right - np.arange(right + 1) - 1, guesses, rate)
    steps = (tail[:, 1:] - tail[:, :1]) / np.arange(1, right + 1) if right else np.zeros((1, 1))
    probability = tail[:, 0] + 2 * samples * delta * steps.max(axis=1)
    refuted = _CANDIDATES[probability <= error]
    return round(float(refuted.max()), 2) if len(refuted) else 0.0
