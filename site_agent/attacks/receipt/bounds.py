"""The lower bound on epsilon of a receipt: an audit in one run (Steinke et al. 2023).

A fair coin decides for each sample of the site whether it trains, with the settings of the
contribution; an attack then guesses the coins about which it is surest. Under (epsilon,
delta)-differential privacy the number of right guesses is bounded by a binomial, so that more of
them refute a smaller epsilon. The upper bound is that of the accountant.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from scipy.stats import binom

from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from pool_server.wire.cards import EpsilonBounds
from site_agent.attacks import leaks, membership
from site_agent.attacks.receipt.networks import MOST_SAMPLES, GazeSides, split_persons, thin, train
from site_agent.attacks.separation import MemberScores
from site_agent.attacks.table import attempt

CONFIDENCE = 0.95
_SHARES = (1.0, 0.5, 0.25)
"""Shares of the samples on which an attack guesses."""
_CANDIDATES = np.arange(0.01, 20.0, 0.01)
_MOST_LABS = 50
"""The most labs in a simulated sum."""


def audit_epsilon(
    base: StateDict, sides: GazeSides, training: LocalTraining, seed: int, *, labs: int = 1
) -> EpsilonBounds:
    """Bound the epsilon of a training from both sides: by its accountant, and by an audit.

    The audit trains once more, with noise as the site did, on samples (or persons) that coins
    choose. It is no release.

    `labs`: Number of labs in a sum; held-out persons play the others, in turn.
    """
    members = thin(sides.members, MOST_SAMPLES)
    unit = training.dp_unit if training.dp_epsilon is not None else "sample"
    names, group = (
        np.unique(members.person, return_inverse=True)
        if unit == "person"
        else (np.arange(len(members)), np.arange(len(members)))
    )
    inside = (np.random.default_rng(seed).random(len(names)) < 0.5)[group]
    bounds = EpsilonBounds(
        unit=unit, delta=training.dp_delta, at_most=training.dp_epsilon, at_least=0.0
    )
    few = min(np.count_nonzero(inside), np.count_nonzero(~inside)) < training.least_samples
    if few or labs > _MOST_LABS:
        return bounds

    def attack() -> dict[str, MemberScores]:
        network = train(base, members[inside], training, "audit of epsilon")
        if labs > 1:
            known = split_persons(sides.others, np.unique(sides.others.person))
            parts = [
                train(base, samples, training, f"lab {number}")
                for number, samples in zip(range(1, labs), cycle(known), strict=False)
            ]
            network = _mean_of([network, *parts])
        candidates = membership.Candidates.of(members[inside], members[~inside])
        return membership.probe_membership(leaks.leak_of_network(base, network), candidates)

    attacks, _ = attempt(attack)
    if unit == "person" and attacks:
        attacks = {name: scores.by_person() for name, scores in attacks.items()}
    at_least, strongest = epsilon_at_least(attacks or {}, training.dp_delta)
    return bounds.model_copy(update={"at_least": at_least, "attack": strongest})


def _mean_of(networks: Sequence[StateDict]) -> StateDict:
    first = networks[0]
    tensors = {
        name: np.array([network.tensors[name] for network in networks]).mean(
            axis=0, dtype=entry.dtype
        )
        for name, entry in first.tensors.items()
    }
    return StateDict(tensors, first.infos, first.metadata)


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
