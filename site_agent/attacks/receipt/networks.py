"""Attacks on a network's contribution, and on a secure sum of contributions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import cycle
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from aggregators.formats import file_digest
from aggregators.methods.networks import read_network_contribution
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from pool_server.wire.cards import AttackFinding, EpsilonBounds
from pool_server.wire.evaluations import Score
from site_agent.attacks import dualview, gradients, leaks, reidentification
from site_agent.attacks.membership import (
    Candidates,
    ShadowLosses,
    predict_from_updates,
    probe_by_shadows,
    probe_membership,
)
from site_agent.attacks.receipt.bounds import epsilon_at_least
from site_agent.attacks.receipt.findings import auc_of, membership, read_sent, share_of
from site_agent.attacks.separation import Float64, MemberScores, separation
from site_agent.attacks.span import PREFIX, rows_of_layers
from site_agent.datasets.gaze.records import GazeSamples, join_samples
from site_agent.errors import InvalidInputError, SiteAgentError
from site_agent.federated.leak_checks import audit_base
from site_agent.federated.local_training import train_contribution

MOST_SAMPLES = 1500
"""Of each side; more make intervals little narrower."""
_CONTROL_SAMPLES, _REFERENCES, _MOST_CANDIDATES, _CANDIDATE_SAMPLES = 24, 4, 24, 60
_MOST_LABS = 50
"""In a sum that is played again."""
_FEWEST_SHADOWS = 8
"""Public persons that teach the attacker; with 4, even the control is not found."""
_CANDIDATES = (
    "candidates are all persons; the attacker has pictures of each; the control is an update of "
    "one person"
)
_OVERFITTING = LocalTraining(epochs=60, batch_size=8, learning_rate=0.02, learning_rate_decay=0)
_ONE_STEP = LocalTraining(epochs=1, batch_size=65_536, momentum=0)
_FAR_RAD = 0.6
_NULLS, _FEW_SAMPLES, _DECODED_SAMPLES = 3, 2, 4
_MEMORISED = "the control is a network that has learnt samples with random labels by heart"
_LOSS_ATTACKS = {"loss now", "change"}
_GRADIENT_ATTACKS = {
    "gradient alignment": "the control is an update of one step on 2 samples",
    "gradient regression": "needs all pictures of both sides; of a sum, an attacker with those of "
    "the other sites, too, does better; control as of alignment",
}


T = TypeVar("T")
Changes = Mapping[str, NDArray[np.generic]]
"""Differences by entry of a network."""


@dataclass(frozen=True, eq=False)
class GazeSides:
    """Samples of the members, which trained, and of others."""

    members: GazeSamples
    others: GazeSamples
    public: GazeSamples | None = None
    """Additional pictures of the attacker, of persons on neither side."""


@dataclass(frozen=True, eq=False)
class _Attacker:
    """An attacker of a network: knowledge and attacks."""

    base: StateDict
    sides: GazeSides
    training: LocalTraining
    seed: int

    def memberships(self, network: StateDict, candidates: Candidates) -> dict[str, MemberScores]:
        """Return the scores of samples by each attack on membership."""
        networks, shadow = self._references
        references = np.array([candidates.losses.of(reference) for reference in networks])
        leak = leaks.leak_of_network(self.base, network)
        return probe_membership(leak, candidates, shadow=shadow, references=references)

    def chances(self, candidates: Candidates) -> dict[str, float]:
        """Return the AUC of each attack in updates that have seen no picture of the site.

        Each is trained with half of the held-out persons; the site's samples and the other half
        then are equally unknown to it. Below 0.5 counts as 0.5.
        """
        members, others = self.sides.members, self.sides.others
        names, rng = np.unique(others.person), np.random.default_rng(self.seed)
        aucs: dict[str, list[float]] = {}
        for number in range(_NULLS):
            inside = np.isin(others.person, rng.permutation(names)[: len(names) // 2])
            unseen = candidates.choose(np.append(np.ones(len(members), dtype=bool), ~inside))
            network = self.train(others[inside], f"unrelated {number}")
            for name, scores in self.memberships(network, unseen).items():
                auc = separation(scores.scores, scores.is_member, resamples=0).auc
                aucs.setdefault(name, []).append(auc)
        return {name: max(0.5, float(np.mean(values))) for name, values in aucs.items()}

    def train(self, samples: GazeSamples, name: str) -> StateDict:
        return _train(self.base, samples, self.training, name)

    def candidates(self, network: StateDict) -> dict[str, tuple[MemberScores, MemberScores]]:
        """Score persons by each attack on the identity of the members.

        Returns
        -------
        dict of str to (found, control)
            The control is the update of one person's pictures.
        """
        members, others = self.sides.members, self.sides.others
        own_names = np.unique(members.person)[: _MOST_CANDIDATES // 2]
        names = np.concatenate([own_names, np.unique(others.person)[: _MOST_CANDIDATES // 2]])
        pictures = _by_person(join_samples([members, others]), names)
        made = [self.train(mine, f"as {name}") for name, mine in zip(names, pictures, strict=True)]
        one = self.train(pictures[0], "control of one person")
        seen = [network, one]
        scores = {"updates": reidentification.update_cosines(self.base, seen, made, centre=made)}
        public = self.sides.public
        if public is not None and len(np.unique(public.person)) >= _FEWEST_SHADOWS:
            scores["pictures by DualView"] = self._likenesses(seen, pictures, public)
        is_own = np.arange(len(names)) < len(own_names)
        return {
            attack: (
                MemberScores(rows[0], is_own, names),
                MemberScores(rows[1], names == names[0], names),
            )
            for attack, rows in scores.items()
        }

    def _likenesses(
        self, seen: Sequence[StateDict], gallery: list[GazeSamples], public: GazeSamples
    ) -> Float64:
        """Return the similarity of networks' pictures to persons: (networks, persons)."""
        names = np.unique(public.person)[:_MOST_CANDIDATES]
        known = _by_person(public, names)
        shadow = {
            name: self.train(mine, f"shadow {name}")
            for name, mine in zip(names, known, strict=True)
        }
        prior, embedding = dualview.fit_prior(public.patches), dualview.fit_embedding(public)
        codes = np.array([prior.encode(mine.patches).mean(axis=0) for mine in known])
        settings = dualview.InversionSettings(seed=self.seed)
        rows = []
        for network in seen:
            leak = leaks.Leak("artifact", (leaks.LeakedRound(self.base, {"site": network}),))
            victims = dualview.Victims(
                ["site"], predict_from_updates(leak, ["site"], shadow, codes)
            )
            pictures = dualview.reconstruct(leak, victims, prior, public, settings)
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
            networks.append(self.train(mine, f"reference {number}"))
        known = leaks.Losses(public).of_leak(leaks.leak_of_network(self.base, networks[0]))
        return networks, ShadowLosses(known, halves[0])


def attack_update(
    artifact: Path,
    base_path: Path,
    base: StateDict,
    sides: GazeSides,
    seed: int,
    *,
    shadows: int = 0,
) -> Iterator[AttackFinding]:
    """Attack a contribution to a network, or the sum of several.

    `shadows`: Networks that are trained for likelihood ratios of each sample; 0: none.

    Raises `InvalidInputError`: the artifact is no contribution to a network, or was made to another
    base.
    """
    sent = read_sent(artifact, read_network_contribution)
    if sent.base_digest != file_digest(base_path):
        raise InvalidInputError(
            f"{artifact}: made to the base {sent.base_digest[:12]}..., --base has another digest"
        )
    network = _apply_sent(base, sent)
    public = None if sides.public is None else _thin(sides.public, MOST_SAMPLES)
    sides = GazeSides(_thin(sides.members, MOST_SAMPLES), _thin(sides.others, MOST_SAMPLES), public)
    # The attacker trains without noise, and what he makes is no release of the site.
    training = training_of(sent).model_copy(update={"dp_epsilon": None})
    attacker = _Attacker(base, sides, training, seed)
    objections = audit_base(base, sides.members)
    yield _audit_finding(attacker, objections)
    yield from _attack_membership(attacker, network, sent.samples)
    changes = {name: _change(sent, base, name) for name in base.infos}
    yield from _read_pictures(attacker, changes, objections)
    if shadows:
        yield from _attack_by_shadows(attacker, network, shadows)
    persons, failure = _attempt(partial(attacker.candidates, network))
    for name, both in (persons or {}).items():
        yield membership(f"re-identification by {name}", *both, seed, _CANDIDATES, "persons")
    if failure:
        yield _not_judged("re-identification by updates", failure, "persons")


def _attempt(make: Callable[[], T]) -> tuple[T | None, str]:
    """Return the attacker's result, or the reason for its failure: bases may not be trainable."""
    try:
        return make(), ""
    except SiteAgentError as error:
        return None, f"could not be judged: {error}"[:600]


def _not_judged(
    name: str, failure: str, reveals: Literal["membership", "persons", "pictures"]
) -> AttackFinding:
    return AttackFinding(
        name=name, measure="none", found=Score(value=0.0), note=failure, reveals=reveals
    )


def _audit_finding(attacker: _Attacker, objections: Sequence[str]) -> AttackFinding:
    """Return the findings of the audit of bases; its control is a camera made of the base."""
    public = attacker.sides.others if attacker.sides.public is None else attacker.sides.public
    camera = gradients.build_imprint(attacker.base, public, attacker.seed)
    noticed = camera is not None and bool(audit_base(camera, attacker.sides.members))
    return AttackFinding(
        name="audit of the base",
        measure="1 if the audit objects, 0 otherwise",
        found=Score(value=float(bool(objections))),
        chance=0.0,
        control=Score(value=float(noticed)),
        note=("; ".join(objections) or "the audit objects to nothing")[:600],
        reveals="base",
    )


def _attack_membership(
    attacker: _Attacker, network: StateDict, trained_samples: int
) -> Iterator[AttackFinding]:
    base, sides, seed = attacker.base, attacker.sides, attacker.seed
    candidates = Candidates.of(sides.members, sides.others)
    attacks = attacker.memberships(network, candidates)
    memorised = _attempt(partial(_memorised_control, attacker))
    one_step = _attempt(partial(_one_step_control, attacker))
    chances, unknown_chance = _attempt(partial(attacker.chances, candidates))
    units = rows_of_layers(base)
    for name, scores in attacks.items():
        if name == "loss at base":
            yield AttackFinding(
                name="the two sides at the base (no attack)", measure="AUC",
                found=auc_of(scores, seed),
                note="of the base, which has seen neither side; no attack",
            )  # fmt: skip
            continue
        note = _GRADIENT_ATTACKS.get(name, _MEMORISED)
        if name.startswith(PREFIX):
            note = span_note(trained_samples, units[name.removeprefix(PREFIX)])
        by_gradients = name in _GRADIENT_ATTACKS or name.startswith(PREFIX)
        controls, failure = one_step if by_gradients else memorised
        control = None if controls is None else controls[name]
        chance = None if chances is None else chances[name]
        yield membership(
            f"membership: {name}", scores, control, seed, failure or unknown_chance or note,
            chance=chance,
        )  # fmt: skip
        if name in _LOSS_ATTACKS and control is not None:
            pair = scores.by_person(), control.by_person()
            yield membership(f"membership of persons: {name}", *pair, seed, note, "persons")


def span_note(samples: int, units: int) -> str:
    """Return the note on the span attack on a layer of that size."""
    return (
        f"the update holds {samples} samples, the layer {units} units: "
        + (
            "with fewer samples than units the span tells members from others, in sums too"
            if samples < units
            else "with more samples than units the span tells less"
        )
        + "; the control is an update of one step on 2 samples"
    )


def _memorised_control(attacker: _Attacker) -> dict[str, MemberScores]:
    """Return the scores of each attack in a network that has learnt some samples by heart."""
    memorised, others = (
        _label_at_random(_thin(samples, _CONTROL_SAMPLES), attacker.seed)
        for samples in (attacker.sides.members, attacker.sides.others)
    )
    leaky = _train(attacker.base, memorised, _OVERFITTING, "control", guarded=False)
    return attacker.memberships(leaky, Candidates.of(memorised, others))


def _one_step_control(attacker: _Attacker) -> dict[str, MemberScores]:
    """Return the scores of the attacks on gradients in an update of one step on few samples."""
    few = _thin(attacker.sides.members, _FEW_SAMPLES)
    stepped = _train(attacker.base, few, _ONE_STEP, "control of one step", guarded=False)
    leak = leaks.leak_of_network(attacker.base, stepped)
    return probe_membership(leak, Candidates.of(few, attacker.sides.others))


def _label_at_random(samples: GazeSamples, seed: int) -> GazeSamples:
    """Return samples with far gaze in random directions, which can only be learnt by heart."""
    angles = np.random.default_rng(seed).uniform(0, 2 * np.pi, len(samples))
    return replace(samples, gaze=_FAR_RAD * np.stack([np.cos(angles), np.sin(angles)], axis=1))


def _attack_by_shadows(
    attacker: _Attacker, network: StateDict, shadows: int
) -> Iterator[AttackFinding]:
    base, sides, seed = attacker.base, attacker.sides, attacker.seed

    def overfit(samples: GazeSamples, name: str) -> StateDict:
        return _train(base, samples, _OVERFITTING, name, guarded=False)

    def control() -> dict[str, MemberScores]:
        memorised = _thin(sides.members, _DECODED_SAMPLES * 4)
        leaky = leaks.leak_of_network(base, overfit(memorised, "control"))
        others = _thin(sides.others, len(memorised))
        return probe_by_shadows(leaky, memorised, others, overfit, count=shadows, seed=seed)

    leak = leaks.leak_of_network(base, network)
    attacks, failure = _attempt(
        lambda: probe_by_shadows(
            leak, sides.members, sides.others, attacker.train, count=shadows, seed=seed
        )
    )
    if attacks is None:
        yield _not_judged("membership: LiRA and RMIA", failure, "membership")
        return
    controls, failure = _attempt(control)
    note = f"likelihood ratios from {shadows} shadow networks, half of them with each sample"
    for name, attack in attacks.items():
        control_scores = None if controls is None else controls[name]
        yield membership(f"membership: {name}", attack, control_scores, seed, failure or note)


def _read_pictures(
    attacker: _Attacker, changes: Changes, objections: Sequence[str]
) -> Iterator[AttackFinding]:
    """Read pictures from single rows, as after one step, and from differences of equal rows."""
    base, sides = attacker.base, attacker.sides
    public = sides.others if sides.public is None else sides.public
    camera_base = gradients.build_imprint(base, public, attacker.seed)
    if camera_base is None:
        return
    few = _thin(sides.members, _DECODED_SAMPLES)
    shown = gradients.read_inputs(base, changes, sides.members)
    made = gradients.decode_pictures(base, shown, sides.members).values()
    clarity = "no picture was read"
    if made:
        clarity = (
            f"the {len(made)} clearest of {len(shown)} pictures have {min(made):.0f} to "
            f"{max(made):.0f} dB"
        )
    audit = "; ".join(objections) or "the audit of bases objects to nothing"
    for camera, control_base, name, note in (
        (False, base, "one-step inversion: rows of the update", clarity),
        (True, camera_base, "imprint: the base as a camera", f"{clarity}; {audit}"[:600]),
    ):
        control, failure = _attempt(partial(_count_read_control, control_base, few, camera=camera))
        readings = (
            shown if camera else gradients.read_inputs(base, changes, sides.members, camera=False)
        )
        chance = gradients.read_inputs(base, changes, sides.others, camera=camera)
        yield AttackFinding(
            name=name, measure="share of the training pictures",
            found=share_of(len(readings), len(sides.members)),
            chance=len(chance) / len(sides.others),
            control=None if control is None else share_of(control, len(few)),
            note=failure or note, reveals="pictures",
        )  # fmt: skip


def _count_read_control(base: StateDict, few: GazeSamples, *, camera: bool) -> int:
    """Return how many of a few samples are read from an unguarded update of one step."""
    leaky = _train(base, few, _ONE_STEP, "control of one step", guarded=False)
    leaked = {entry: np.subtract(leaky.tensors[entry], base.tensors[entry]) for entry in base.infos}
    return len(gradients.read_inputs(base, leaked, few, camera=camera))


def audit_epsilon(
    base: StateDict, sides: GazeSides, training: LocalTraining, seed: int, *, labs: int = 1
) -> EpsilonBounds:
    """Bound the epsilon of a training from both sides: by its accountant, and by an audit.

    The audit trains once more, with noise as the site did, on samples (or persons) that coins
    choose; see `bounds`. It is no release.

    `labs`: Number of labs in a sum; held-out persons play the others, in turn.
    """
    members = _thin(sides.members, MOST_SAMPLES)
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
        network = _train(base, members[inside], training, "audit of epsilon")
        if labs > 1:
            known = _by_person(sides.others, np.unique(sides.others.person))
            parts = [
                _train(base, samples, training, f"lab {number}")
                for number, samples in zip(range(1, labs), cycle(known), strict=False)
            ]
            network = _mean_of([network, *parts])
        candidates = Candidates.of(members[inside], members[~inside])
        return probe_membership(leaks.leak_of_network(base, network), candidates)

    attacks, _ = _attempt(attack)
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


def attack_roster(
    contributions: Sequence[Path], base: StateDict, artifact_samples: int
) -> Iterator[AttackFinding]:
    """Measure how far a sum mixes the contributions that it is made of.

    `contributions`: Those of all sites, known in a trial only. `artifact_samples`: Of the sum.
    """
    sent = [read_network_contribution(path) for path in contributions]
    stated = sum(contribution.samples for contribution in sent)
    alone = filled = 0
    for name, info in base.infos.items():
        if info.dtype.startswith("F"):
            sites = np.count_nonzero(
                [_change(contribution, base, name) != 0 for contribution in sent], axis=0
            )
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


def training_of(sent: NetworkContribution) -> LocalTraining:
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
    return leaks.apply_update(base, made)


def _apply_sent(base: StateDict, sent: NetworkContribution) -> StateDict:
    if sent.holds == "differences":
        return leaks.apply_update(base, sent)
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
