"""Attacks on a network's contribution, and on a secure sum of contributions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from aggregators.formats import file_digest
from aggregators.methods.networks import read_network_contribution
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from pool_server.wire.cards import AttackFinding
from pool_server.wire.evaluations import Score
from site_agent.attacks.dualview import (
    InversionSettings,
    Victims,
    fit_embedding,
    fit_prior,
    reconstruct,
)
from site_agent.attacks.leaks import Float64, Leak, LeakedRound, LeakLosses, Losses, apply_update
from site_agent.attacks.membership import ShadowLosses, membership_scores, predict_from_updates
from site_agent.attacks.receipt.findings import MemberScores, membership, share_of
from site_agent.attacks.reidentification import update_cosines
from site_agent.datasets.gaze import GazeSamples, join_samples
from site_agent.errors import InvalidInputError
from site_agent.federated.local_training import train_contribution

MOST_SAMPLES = 1500
"""Of each side; more make intervals little narrower."""
_CONTROL_SAMPLES, _REFERENCES, _MOST_CANDIDATES, _CANDIDATE_SAMPLES = 40, 4, 24, 60
_FEWEST_SHADOWS = 8
"""Public persons whose pictures teach the attacker; with 4, even the control is not found."""
_CANDIDATES = (
    "candidates are all persons; the attacker has pictures of each; the control is an update of "
    "one person"
)
_OVERFITTING = LocalTraining(epochs=120, batch_size=8, learning_rate=0.02, learning_rate_decay=0)


@dataclass(frozen=True, eq=False)
class GazeSides:
    """Whose pictures trained, and whose did not.

    Attributes
    ----------
    own, others : GazeSamples
    public : GazeSamples or None
        What the attacker has besides, of other persons again.
    """

    own: GazeSamples
    others: GazeSamples
    public: GazeSamples | None = None


@dataclass(frozen=True, eq=False)
class _Attacker:
    """An attacker of a network: knowledge and attacks."""

    base: StateDict
    sides: GazeSides
    training: LocalTraining
    seed: int

    def memberships(self, network: StateDict, own: GazeSamples) -> dict[str, MemberScores]:
        """Return the scores of all samples by each attack on membership."""
        samples = join_samples([own, self.sides.others])
        is_member = np.arange(len(samples)) < len(own)
        losses = Losses(samples)
        found = losses.of_leak(self._leak(network))
        networks, shadow = self._references
        references = np.array([losses.of(each) for each in networks]) if networks else None
        scores = membership_scores(found, shadow=shadow, references=references)
        # One round: the largest change of a round is the change.
        return {
            name: MemberScores(values, is_member, samples.person)
            for name, values in scores.items()
            if name != "change in a round"
        }

    def candidates(self, network: StateDict) -> dict[str, tuple[MemberScores, MemberScores]]:
        """Score persons by each attack that looks for whose pictures trained.

        Returns
        -------
        dict of str to (found, control)
            The control is the update of one person's pictures.
        """
        own, others = self.sides.own, self.sides.others
        own_names = np.unique(own.person)[: _MOST_CANDIDATES // 2]
        names = np.concatenate([own_names, np.unique(others.person)[: _MOST_CANDIDATES // 2]])
        pictures = _by_person(join_samples([own, others]), names)
        made = [
            _train(self.base, mine, self.training, f"as {name}")
            for name, mine in zip(names, pictures, strict=True)
        ]
        one = _train(self.base, pictures[0], self.training, "control of one person")
        seen = [network, one]
        scores = {"updates": update_cosines(self.base, seen, made, centre=made)}
        public = self.sides.public
        if public is not None and len(np.unique(public.person)) >= _FEWEST_SHADOWS:
            scores["pictures by DualView"] = self._likenesses(seen, pictures, public)
        is_own = np.arange(len(names)) < len(own_names)
        return {
            attack: (
                MemberScores(found[0], is_own, names),
                MemberScores(found[1], names == names[0], names),
            )
            for attack, found in scores.items()
        }

    def _likenesses(
        self, seen: Sequence[StateDict], gallery: list[GazeSamples], public: GazeSamples
    ) -> Float64:
        """Return how alike pictures made of networks are to persons: (networks, persons)."""
        names = np.unique(public.person)[:_MOST_CANDIDATES]
        known = _by_person(public, names)
        shadow = {
            name: _train(self.base, mine, self.training, f"shadow {name}")
            for name, mine in zip(names, known, strict=True)
        }
        prior, embedding = fit_prior(public.patches), fit_embedding(public)
        codes = np.array([prior.encode(mine.patches).mean(axis=0) for mine in known])
        settings = InversionSettings(seed=self.seed)
        rows = []
        for network in seen:
            leak = self._leak(network)
            victims = Victims(["site"], predict_from_updates(leak, ["site"], shadow, codes))
            pictures = reconstruct(leak, victims, prior, public, settings)
            rows.append(embedding.similarities(pictures, gallery)[0])
        return np.array(rows)

    @cached_property
    def _references(self) -> tuple[list[StateDict], ShadowLosses | None]:
        """Networks that were trained with halves of the public persons."""
        public = self.sides.public
        if public is None:
            return [], None
        names, rng = np.unique(public.person), np.random.default_rng(self.seed)
        networks, halves = [], []
        for number in range(_REFERENCES):
            chosen = rng.choice(names, max(1, len(names) // 2), replace=False)
            halves.append(np.isin(public.person, chosen))
            mine = public[halves[-1]]
            networks.append(_train(self.base, mine, self.training, f"reference {number}"))
        known: LeakLosses = Losses(public).of_leak(self._leak(networks[0]))
        return networks, ShadowLosses(known, halves[0])

    def _leak(self, network: StateDict) -> Leak:
        return Leak("artifact", (LeakedRound(self.base, {"site": network}),))


def attack_update(
    artifact: Path, base_path: Path, base: StateDict, sides: GazeSides, seed: int
) -> Iterator[AttackFinding]:
    """Attack a contribution to a network, or the sum of several.

    Raises
    ------
    InvalidInputError
        The contribution was made to another base.
    FormatError
        The artifact is no contribution to a network.
    """
    sent = read_network_contribution(artifact)
    if sent.base_digest != file_digest(base_path):
        raise InvalidInputError(
            f"{artifact}: made to the base {sent.base_digest[:12]}..., --base has another digest"
        )
    network = _apply_sent(base, sent)
    public = None if sides.public is None else _thin(sides.public, MOST_SAMPLES)
    sides = GazeSides(_thin(sides.own, MOST_SAMPLES), _thin(sides.others, MOST_SAMPLES), public)
    attacker = _Attacker(base, sides, _training_of(sent), seed)
    memorised = _thin(sides.own, _CONTROL_SAMPLES)
    leaky = _train(base, memorised, _OVERFITTING, "control", guarded=False)
    found = attacker.memberships(network, sides.own)
    control = attacker.memberships(leaky, memorised)
    notes = {"loss at base": "of the base, which has not seen them: how the two sides differ"}
    for name, scores in found.items():
        note = notes.get(name, "")
        yield membership(f"membership of samples: {name}", scores, control[name], seed, note)
    for name, scores in found.items():
        pair = scores.by_person(), control[name].by_person()
        yield membership(f"membership of persons: {name}", *pair, seed, notes.get(name, ""))
    for name, both in attacker.candidates(network).items():
        yield membership(f"re-identification by {name}", *both, seed, _CANDIDATES)


def attack_roster(
    contributions: Sequence[Path], base: StateDict, artifact_samples: int
) -> Iterator[AttackFinding]:
    """Measure how far a sum mixes the contributions that it is made of.

    Parameters
    ----------
    contributions : sequence of Path
        Those of all sites, known in a trial only.
    artifact_samples : int
        Of the sum.
    """
    sent = [read_network_contribution(path) for path in contributions]
    stated = sum(each.samples for each in sent)
    alone = filled = 0
    for name, info in base.infos.items():
        if info.dtype.startswith("F"):
            sites = np.count_nonzero([_change(each, base, name) != 0 for each in sent], axis=0)
            alone += int(np.count_nonzero(sites == 1))
            filled += int(np.count_nonzero(sites))
    yield AttackFinding(
        name="coordinates that one site alone fills",
        measure="share of all that are filled",
        found=share_of(alone, filled),
        chance=0.0,
        control=Score(value=1.0),
        note="the control is a sum of one site",
    )
    note = f"{stated} samples in the contributions, {artifact_samples} in the sum"
    yield AttackFinding(
        name="size of the roster", measure="sites", found=Score(value=len(sent)), note=note
    )


def _training_of(sent: NetworkContribution) -> LocalTraining:
    """Return how the site trained, or the defaults where the contribution does not say."""
    try:
        return LocalTraining.model_validate(dict(sent.settings))
    except ValidationError:
        return LocalTraining()


def _train(
    base: StateDict,
    samples: GazeSamples,
    training: LocalTraining,
    name: str,
    *,
    guarded: bool = True,
) -> StateDict:
    made = train_contribution(
        base, "0" * 64, samples, training, site=name, round_number=1, guarded=guarded
    )
    return apply_update(base, made)


def _apply_sent(base: StateDict, sent: NetworkContribution) -> StateDict:
    if sent.holds == "differences":
        return apply_update(base, sent)
    return StateDict(dict(sent.network.tensors), dict(base.infos), base.metadata)


def _change(sent: NetworkContribution, base: StateDict, name: str) -> Float64:
    values = np.asarray(sent.network.tensors[name], dtype=np.float64)
    before = np.asarray(base.tensors[name], dtype=np.float64)
    return values if sent.holds == "differences" else values - before


def _by_person(samples: GazeSamples, names: NDArray[np.str_]) -> list[GazeSamples]:
    return [_thin(samples[samples.person == name], _CANDIDATE_SAMPLES) for name in names]


def _thin(samples: GazeSamples, most: int) -> GazeSamples:
    """Return at most this many samples, spread evenly."""
    if len(samples) <= most:
        return samples
    return samples[np.linspace(0, len(samples) - 1, most).astype(int)]
