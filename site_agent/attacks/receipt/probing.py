"""One probe: from an artifact and two groups of persons to a receipt.

The persons of ``--data`` trained the artifact, those of ``--holdout`` did not; groups that share a
person or a picture are refused, because attacks would then seem to fail. The kind of artifact
decides the rows of the table of attacks (`site_agent.attacks.table`). The receipt gathers them with
a description of the artifact, the assumed attacker and the compute; its verdict is that of the
worst attack (`pool_server.wire.cards`). `pages.receipt_page` makes a page of it, and ``poolctl
upload --receipt`` sends it along.
"""

import os
import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import cycle
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from aggregators.formats import file_digest
from aggregators.methods.networks import read_network_contribution
from aggregators.methods.round_options import LocalTraining, describe_protection
from aggregators.models import StateDict
from pool_server.wire.cards import AttackFinding, EpsilonBounds, PrivacyReceipt, ReceiptMode
from site_agent.attacks import leaks, membership
from site_agent.attacks.receipt import SmashedProbeSettings
from site_agent.attacks.receipt.leaf_sums import attack_leaf_sums
from site_agent.attacks.receipt.networks import (
    MOST_SAMPLES,
    GazeSides,
    attack_update,
    split_persons,
    thin,
    train,
    training_of,
)
from site_agent.attacks.receipt.smashed_data import attack_release
from site_agent.attacks.receipt.sub_models import FaceSides, attack_sub_model
from site_agent.attacks.separation import MemberScores
from site_agent.attacks.table import attempt
from site_agent.datasets.gaze.records import sample_marks
from site_agent.datasets.records import image_marks
from site_agent.errors import InvalidInputError
from site_agent.networks.files import read_network
from site_agent.refinement import read_base
from site_agent.work import Progress, no_progress

WHAT_LEFT: Mapping[ReceiptMode, str] = {
    "sub-model": "A trained model: its weights, or its trees and its mean shape. No image.",
    "leaf-sums": "Of each leaf of a landmark model, the change after the site's fit and the number "
    "of samples that reach it. No image.",
    "update": "The differences of a network's parameters after the site's training, the number of "
    "samples, and how it trained. No image.",
    "secure-sum": "The sum of the contributions of all sites of a round, and who they are. The "
    "site's own contribution was seen by nobody.",
    "smashed-data": "What the first stages of a network make of each image, once for each pass.",
}
ATTACKERS: Mapping[ReceiptMode, str] = {
    "sub-model": "Anybody with the right to download the model, with pictures of the persons in "
    "question.",
    "leaf-sums": "The pool or another reader of the contribution, with the base; for the camera "
    "base, the author of the base.",
    "update": "The pool or another reader of the contribution, with the base, pictures of the "
    "persons in question, and of public persons where the site gave some.",
    "secure-sum": "Any party of the round, with the base and pictures of the persons in question.",
    "smashed-data": "The main server of a split training, with pictures of other persons; attacker "
    "C also has the client part, and so needs the part aggregator.",
}


@dataclass(frozen=True, eq=False)
class ProbedReceipt:
    """A receipt, and pictures for its page: PNG files by their captions."""

    receipt: PrivacyReceipt
    pictures: Mapping[str, bytes] = field(default_factory=dict)


def probe(
    artifact: Path,
    mode: ReceiptMode,
    sides: FaceSides | GazeSides,
    *,
    base: Path | None = None,
    shadows: int = 0,
    release: SmashedProbeSettings = SmashedProbeSettings(),
    seed: int = 0,
    progress: Progress = no_progress,
) -> ProbedReceipt:
    """Attack an artifact with the samples of a site and of held-out persons.

    `artifact`: Of smashed data, the whole network. `base`: Of contributions. `shadows`: Networks to
    train for likelihood ratios of each sample, which takes long; 0: none. `release`: Of smashed
    data.

    Raises `InvalidInputError`: a person or picture is on both sides or public, or artifact, base
    and samples do not fit each other. `FormatError`: a file is something else.
    """
    require_held_out(sides)
    started = time.monotonic()
    pictures: Mapping[str, bytes] = {}
    protection, bounds = "", None
    if isinstance(sides, FaceSides):
        persons = sides.members.persons, sides.others.persons
        if mode == "sub-model":
            findings, pictures = attack_sub_model(artifact, sides, seed)
        else:
            findings = attack_leaf_sums(artifact, read_base(_given(base)), sides, seed)
        attacks = _gather(findings, progress)
    else:
        persons = sides.members.person, sides.others.person
        network = read_network(artifact if mode == "smashed-data" else _given(base))
        if mode == "smashed-data":
            progress(None, "three attackers")
            findings, pictures, protection = attack_release(network, release, sides, seed)
            attacks = _gather(findings, progress)
        else:
            findings = attack_update(artifact, _given(base), network, sides, seed, shadows)
            attacks = _gather(findings, progress)
            sent = read_network_contribution(artifact)
            training = training_of(sent)
            labs = round(sent.samples / len(sides.members)) if mode == "secure-sum" else 1
            bounds = audit_epsilon(network, sides, training, seed, labs=max(1, labs))
            protection = describe_protection(training, secure=mode == "secure-sum")
            protection = f"{protection[0].upper()}{protection[1:]}; as the contribution says."
            if training.dp_epsilon is not None and training.dp_unit == "sample":
                protection += " Epsilon covers samples, not whether a person took part."
    receipt = make_receipt(artifact, mode, attacks, persons, seed=seed, started=started)
    receipt.bounds, receipt.protection = bounds, protection or receipt.protection
    return ProbedReceipt(receipt, pictures)


def _given(base: Path | None) -> Path:
    if base is None:
        raise InvalidInputError("contributions are attacked with their base: --base FILE")
    return base


def require_held_out(sides: FaceSides | GazeSides) -> None:
    """Refuse held-out or public samples that show persons of the site, or fewer than two persons.

    Raises `InvalidInputError`.
    """
    if isinstance(sides, FaceSides):
        trained, other = set(sides.members.persons), set(sides.others.persons)
        marks = image_marks(sides.members.dataset), image_marks(sides.others.dataset)
    else:
        trained, other = set(sides.members.person), set(sides.others.person)
        marks = sample_marks(sides.members.patches), sample_marks(sides.others.patches)
    hint = (
        "hold out persons, not only other pictures of the same persons; if others share their "
        "names, rename them in one of the data sets"
    )
    if both := sorted(trained & other):
        names = ", ".join(both[:5])
        raise InvalidInputError(
            f"{len(both)} persons are in --data and in --holdout: {names}", hint=hint
        )
    if common := set(marks[0]) & set(marks[1]):
        raise InvalidInputError(
            f"{len(common)} pictures are in --data and in --holdout, under other persons' names",
            hint=hint,
        )
    if len(other) < 2:
        raise InvalidInputError(
            f"--holdout has {len(other)} persons; expected at least 2", hint=hint
        )
    if isinstance(sides, FaceSides) or sides.public is None:
        return
    public = set(sides.public.person)
    if both := sorted(public & (trained | other)):
        raise InvalidInputError(
            f"{len(both)} persons of --reference are in --data or --holdout: {', '.join(both[:5])}"
        )
    if len(public) < 2:
        raise InvalidInputError(f"--reference has {len(public)} persons; expected at least 2")


def _gather(findings: Iterable[AttackFinding], progress: Progress) -> list[AttackFinding]:
    attacks = []
    for finding in findings:
        attacks.append(finding)
        # Attacks decide as they go which of them apply, so the share done is not known.
        progress(None, finding.name)
    return attacks


def make_receipt(
    artifact: Path,
    mode: ReceiptMode,
    attacks: list[AttackFinding],
    persons: tuple[NDArray[np.str_], NDArray[np.str_]],
    *,
    seed: int,
    started: float,
) -> PrivacyReceipt:
    """Return the receipt of attacks; `persons`: of each sample of the site, and of the others."""
    members, others = persons
    compute = f"{os.cpu_count()} cores ({platform.machine()}), poolctl {version('poolctl')}"
    return PrivacyReceipt(
        measured_on=datetime.now(UTC).date(),
        mode=mode,
        artifact_digest=file_digest(artifact),
        what_left=WHAT_LEFT[mode],
        attacker=ATTACKERS[mode],
        attacks=attacks,
        seed=seed,
        seconds=round(time.monotonic() - started, 1),
        compute=compute,
        persons=len(set(members)),
        samples=len(members),
        held_out_persons=len(set(others)),
        held_out_samples=len(others),
    )


_CONFIDENCE = 0.95
_SHARES = (1.0, 0.5, 0.25)
"""Shares of the samples on which an attack guesses."""
_CANDIDATES = np.arange(0.01, 20.0, 0.01)
_MOST_LABS = 50
"""The most labs in a simulated sum."""


def audit_epsilon(
    base: StateDict, sides: GazeSides, training: LocalTraining, seed: int, *, labs: int = 1
) -> EpsilonBounds:
    """Bound the epsilon of a training from both sides: by its accountant, and by an audit.

    The audit in one run (Steinke et al. 2023) trains once more, with noise as the site did, on
    samples (or persons) that fair coins choose; an attack then guesses the coins about which it is
    surest. Under (epsilon, delta)-differential privacy the number of right guesses is bounded by a
    binomial, so that more of them refute a smaller epsilon. It is no release.

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
    error = (1 - _CONFIDENCE) / max(1, len(attacks) * len(_SHARES))
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
