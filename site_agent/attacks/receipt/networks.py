"""Attacks on a network's contribution: one site's, or a sum that stands for it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from aggregators.formats import file_digest
from aggregators.methods.networks import read_network_contribution
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from pool_server.wire.cards import AttackFinding
from site_agent.attacks import dualview, gradients, leaks, membership, reidentification
from site_agent.attacks.membership import PREFIX, rows_of_layers
from site_agent.attacks.separation import Float64, MemberScores, separation
from site_agent.attacks.table import GUESSING, Attack, Scores, Share, Trial, read_sent
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import InvalidInputError
from site_agent.federated.leak_checks import audit_base
from site_agent.federated.local_training import train_at_site

MOST_SAMPLES = 1500
"""Of each side; more make intervals little narrower."""
_CONTROL_SAMPLES, _REFERENCES, _MOST_CANDIDATES, _CANDIDATE_SAMPLES = 24, 4, 24, 60
_FEWEST_SHADOWS = 8
"""Public persons that teach the attacker; with 4, even the control is not found."""
_OVERFITTING = LocalTraining(epochs=60, batch_size=8, learning_rate=0.02, learning_rate_decay=0)
_ONE_STEP = LocalTraining(epochs=1, batch_size=65_536, momentum=0)
_FAR_RAD = 0.6
_NULLS, _FEW_SAMPLES, _DECODED_SAMPLES, _SHADOWED_SAMPLES = 3, 2, 4, 16
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
class Attacker:
    """The knowledge of an attacker of networks, prepared once for all rows of the table."""

    base: StateDict
    sides: GazeSides
    training: LocalTraining
    seed: int
    samples: int
    """Stated by the artifact."""
    shadows: int

    def case(self, network: StateDict, **changed: Any) -> "Case":
        """Return a network as a case; `changed`: of the artifact's fields."""
        fields: dict[str, Any] = {"base": self.base, "train": self.train}
        fields |= {"members": self.sides.members, "others": self.sides.others}
        return Case(self, network, **(fields | changed))

    def train(self, samples: GazeSamples, name: str) -> StateDict:
        return train(self.base, samples, self.training, name)

    def overfit(self, samples: GazeSamples, name: str) -> StateDict:
        return train(self.base, samples, _OVERFITTING, name, guarded=False)

    @cached_property
    def objections(self) -> str:
        """Objections of the audit of bases to this one."""
        return "; ".join(audit_base(self.base, self.sides.members))

    @cached_property
    def camera(self) -> StateDict | None:
        """The base as a camera; None for networks without a dense layer."""
        public = self.sides.others if self.sides.public is None else self.sides.public
        return gradients.build_imprint(self.base, public, self.seed)

    @cached_property
    def chances(self) -> Mapping[str, float]:
        """AUC of each attack in updates that have seen no picture of the site.

        Each is trained with half of the held-out persons; the site's samples and the other half
        then are equally unknown to it. Below 0.5 counts as 0.5.
        """
        members, others = self.sides.members, self.sides.others
        names, rng = np.unique(others.person), np.random.default_rng(self.seed)
        aucs: dict[str, list[float]] = {}
        for number in range(_NULLS):
            inside = np.isin(others.person, rng.permutation(names)[: len(names) // 2])
            unseen = self.everybody.choose(np.append(np.ones(len(members), dtype=bool), ~inside))
            network = self.train(others[inside], f"unrelated {number}")
            for name, scores in self.memberships(network, unseen).items():
                auc = separation(scores.scores, scores.is_member, resamples=0).auc
                aucs.setdefault(name, []).append(auc)
        return {name: max(GUESSING, float(np.mean(values))) for name, values in aucs.items()}

    @cached_property
    def everybody(self) -> membership.Candidates:
        return membership.Candidates.of(self.sides.members, self.sides.others)

    def memberships(
        self, network: StateDict, candidates: membership.Candidates
    ) -> dict[str, MemberScores]:
        """Return the scores of samples by each attack on membership."""
        networks, shadow = self._references
        references = np.array([candidates.losses.of(reference) for reference in networks])
        leak = leaks.leak_of_network(self.base, network)
        return membership.probe_membership(leak, candidates, shadow=shadow, references=references)

    @cached_property
    def suspects(self) -> tuple[NDArray[np.str_], list[GazeSamples], list[StateDict]]:
        """Persons of both sides, the site's first: names, pictures, the attacker's updates."""
        members, others = self.sides.members, self.sides.others
        half = _MOST_CANDIDATES // 2
        groups = [np.unique(samples.person)[:half] for samples in (members, others)]
        names = np.concatenate(groups)
        pictures = split_persons(GazeSamples.join([members, others]), names)
        made = [self.train(mine, f"as {name}") for name, mine in zip(names, pictures, strict=True)]
        return names, pictures, made

    def likenesses(self, network: StateDict) -> Float64:
        """Return the similarity of a network's pictures to the suspects: (persons,)."""
        dual, embedding = self._dualview
        leak = leaks.Leak("artifact", (leaks.LeakedRound(self.base, {"site": network}),))
        pictures = dual.reconstruct(leak, ["site"], dualview.InversionSettings(seed=self.seed))
        likeness: Float64 = embedding.similarities(pictures, self.suspects[1])[0]
        return likeness

    @cached_property
    def _dualview(self) -> tuple[dualview.DualView, dualview.Embedding]:
        public = self.sides.public
        assert public is not None
        names = np.unique(public.person)[:_MOST_CANDIDATES]
        known = split_persons(public, names)
        shadow = {
            name: self.train(mine, f"shadow {name}")
            for name, mine in zip(names, known, strict=True)
        }
        return dualview.DualView(public, known, shadow), dualview.fit_embedding(public)

    @cached_property
    def _references(self) -> tuple[list[StateDict], membership.ShadowLosses | None]:
        """Networks that were trained with halves of the public persons."""
        public = self.sides.public
        if public is None:
            return [], None
        names, rng = np.unique(public.person), np.random.default_rng(self.seed)
        networks, halves = [], []
        for number in range(_REFERENCES):
            chosen = rng.choice(names, max(1, len(names) // 2), replace=False)
            halves.append(np.isin(public.person, chosen))
            networks.append(self.train(public[halves[-1]], f"reference {number}"))
        known = leaks.Losses(public).of_leak(leaks.leak_of_network(self.base, networks[0]))
        return networks, membership.ShadowLosses(known, halves[0])


@dataclass(frozen=True, eq=False)
class Case:
    """A network under attack, with the samples that trained it and others."""

    attacker: Attacker
    network: StateDict
    base: StateDict
    members: GazeSamples
    others: GazeSamples
    train: membership.Train
    sent: Changes | None = None

    @cached_property
    def memberships(self) -> dict[str, MemberScores]:
        attacker = self.attacker
        if self.members is attacker.sides.members:
            return attacker.memberships(self.network, attacker.everybody)
        candidates = membership.Candidates.of(self.members, self.others)
        return attacker.memberships(self.network, candidates)

    @cached_property
    def changes(self) -> Changes:
        if self.sent is not None:
            return self.sent
        before, after = self.base.tensors, self.network.tensors
        return {name: np.subtract(after[name], before[name]) for name in self.base.infos}

    @cached_property
    def readings(self) -> Mapping[bool, Any]:
        """The readings of the members' features, without and with differences of rows."""
        return {
            camera: gradients.read_inputs(self.base, self.changes, self.members, camera=camera)
            for camera in (False, True)
        }

    @cached_property
    def clarity(self) -> str:
        shown = self.readings[True]
        made = gradients.decode_pictures(self.base, shown, self.members).values()
        if not made:
            return "no picture was read"
        return (
            f"the {len(made)} clearest of {len(shown)} pictures have {min(made):.0f} to "
            f"{max(made):.0f} dB"
        )


# Positive controls: cases built to leak.
def _memorised(case: Case) -> Case:
    members, others = (
        _label_at_random(thin(samples, _CONTROL_SAMPLES), case.attacker.seed)
        for samples in (case.members, case.others)
    )
    network = case.attacker.overfit(members, "control")
    return case.attacker.case(network, members=members, others=others)


def _one_step(case: Case, base: StateDict | None = None, count: int = _FEW_SAMPLES) -> Case:
    base, few = base or case.base, thin(case.members, count)
    network = train(base, few, _ONE_STEP, "control of one step", guarded=False)
    return case.attacker.case(network, base=base, members=few)


def _overfitted(case: Case) -> Case:
    overfit, members = case.attacker.overfit, thin(case.members, _SHADOWED_SAMPLES)
    others = thin(case.others, len(members))
    network = overfit(members, "control")
    return case.attacker.case(network, members=members, others=others, train=overfit)


def _one_person(case: Case) -> Case:
    one = case.attacker.suspects[1][0]
    network = case.attacker.train(one, "control of one person")
    return case.attacker.case(network, members=one)


def _audit(case: Case) -> Scores:
    objections = (
        case.attacker.objections
        if case.base is case.attacker.base
        else audit_base(case.base, case.members)
    )
    return {"audit of the base": float(bool(objections))}


def _of_samples(*names: str) -> Callable[[Case], Scores]:
    """Return the attacks on the membership of samples with names that begin so."""
    return lambda case: {
        f"membership: {name}": scores
        for name, scores in case.memberships.items()
        if name.startswith(names)
    }


def _of_persons(case: Case) -> Scores:
    return {
        f"membership of persons: {name}": case.memberships[name].by_person()
        for name in ("loss now", "change")
    }


def _unrelated(case: Case, name: str) -> float:
    return case.attacker.chances[name.removeprefix("membership: ")]


def _by_shadows(case: Case) -> Scores:
    attacker = case.attacker
    if not attacker.shadows:
        return {}
    attacks = membership.probe_by_shadows(
        leaks.leak_of_network(case.base, case.network), case.members, case.others, case.train,
        count=attacker.shadows, seed=attacker.seed,
    )  # fmt: skip
    return {f"membership: {name}": scores for name, scores in attacks.items()}


def _pictures(name: str, *, camera: bool) -> Callable[[Case], Scores]:
    def score(case: Case) -> Scores:
        if case.attacker.camera is None:
            return {}
        return {name: Share(len(case.readings[camera]), len(case.members))}

    return score


def _pictures_of_others(case: Case, *, camera: bool) -> float:
    others = case.others
    shown = gradients.read_inputs(case.base, case.changes, others, camera=camera)
    return len(shown) / len(others)


def _by_updates(case: Case) -> Scores:
    made = case.attacker.suspects[2]
    scores = reidentification.update_cosines(case.base, [case.network], made, centre=made)[0]
    return _identities(case, "updates", scores)


def _by_dualview(case: Case) -> Scores:
    public = case.attacker.sides.public
    if public is None or len(np.unique(public.person)) < _FEWEST_SHADOWS:
        return {}
    return _identities(case, "pictures by DualView", case.attacker.likenesses(case.network))


def _identities(case: Case, way: str, scores: Float64) -> Scores:
    names = case.attacker.suspects[0]
    trained = np.isin(names, case.members.person)
    return {f"re-identification by {way}": MemberScores(scores, trained, names)}


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


def _span_note(case: Case, name: str) -> str:
    units = rows_of_layers(case.base)[name.removeprefix(f"membership: {PREFIX}")]
    return span_note(case.attacker.samples, units)


_PICTURE, _PERSON = "base, pictures with gaze", "base, pictures of each candidate"
_MEMORISED = "the control is a network that has learnt samples with random labels by heart"
_CANDIDATES = (
    "candidates are all persons; the attacker has pictures of each; the control is an update of "
    "one person"
)
_NO_OBJECTION = "the audit of bases objects to nothing"
_INVERSION, _IMPRINT = "one-step inversion: rows of the update", "imprint: the base as a camera"
ATTACKS: tuple[Attack[Case], ...] = (
    Attack(
        name="audit of the base", needs="base", score=_audit,
        measure="1 if the audit objects, 0 otherwise", chance=0.0, reveals="base",
        control=lambda case: replace(case, base=case.attacker.camera or case.base),
        note=lambda case, _: case.attacker.objections or "the audit objects to nothing",
    ),
    Attack(
        name="the two sides at the base (no attack)", needs="", chance=None, reveals="",
        score=lambda case: {
            "the two sides at the base (no attack)": case.memberships["loss at base"]
        },
        note="of the base, which has seen neither side; no attack",
    ),
    Attack(
        name="membership: span of a dense layer", needs=_PICTURE, score=_of_samples(PREFIX),
        chance=_unrelated, control=_one_step, note=_span_note,
    ),
    Attack(
        name="membership: gradient alignment", needs=_PICTURE, chance=_unrelated,
        score=_of_samples("gradient alignment"), control=_one_step,
        note="the control is an update of one step on 2 samples",
    ),
    Attack(
        name="membership: gradient regression", needs="base, all pictures of both sides",
        score=_of_samples("gradient regression"), chance=_unrelated, control=_one_step,
        note="needs all pictures of both sides; of a sum, an attacker with those of the other "
        "sites, too, does better; control as of alignment",
    ),
    Attack(
        name="membership: losses", needs=f"{_PICTURE}; public persons for two of the four",
        score=_of_samples("loss now", "change", "shadow model", "public references"),
        chance=_unrelated, control=_memorised, note=_MEMORISED,
    ),
    Attack(
        name="membership of persons", needs=_PERSON, score=_of_persons, reveals="persons",
        control=_memorised, note=_MEMORISED,
    ),
    Attack(
        name=_INVERSION, needs="base", score=_pictures(_INVERSION, camera=False),
        measure="share of the training pictures", reveals="pictures",
        control=partial(_one_step, count=_DECODED_SAMPLES),
        chance=lambda case, _: _pictures_of_others(case, camera=False),
        note=lambda case, _: case.clarity,
    ),
    Attack(
        name=_IMPRINT, needs="base, or its authorship", score=_pictures(_IMPRINT, camera=True),
        measure="share of the training pictures",
        control=lambda case: _one_step(case, case.attacker.camera, _DECODED_SAMPLES),
        chance=lambda case, _: _pictures_of_others(case, camera=True), reveals="pictures",
        note=lambda case, _: f"{case.clarity}; {case.attacker.objections or _NO_OBJECTION}",
    ),
    Attack(
        name="membership: LiRA and RMIA", needs="base, pictures of both sides, 32 trainings",
        score=_by_shadows, control=_overfitted,
        note=lambda case, _: f"likelihood ratios from {case.attacker.shadows} shadow networks, "
        "half of them with each sample",
    ),
    Attack(
        name="re-identification by updates", needs=_PERSON, score=_by_updates,
        control=_one_person, reveals="persons", note=_CANDIDATES,
    ),
    Attack(
        name="re-identification by pictures by DualView", needs=f"{_PERSON}, 8 public persons",
        score=_by_dualview, control=_one_person, reveals="persons", note=_CANDIDATES,
    ),
)  # fmt: skip


def needs_of(attack: str) -> str:
    """Return the needs of an attack of `membership.probe_membership`, as its row says."""
    rows = {row.name.removeprefix("membership: "): row.needs for row in ATTACKS}
    rows[PREFIX] = _PICTURE
    return next((rows[name] for name in rows if attack.startswith(name)), rows["losses"])


def attack_update(  # noqa: PLR0917
    artifact: Path, base_path: Path, base: StateDict, sides: GazeSides, seed: int, shadows: int = 0
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
    public = None if sides.public is None else thin(sides.public, MOST_SAMPLES)
    sides = GazeSides(thin(sides.members, MOST_SAMPLES), thin(sides.others, MOST_SAMPLES), public)
    # The attacker trains without noise, and what he makes is no release of the site.
    training = training_of(sent).model_copy(update={"dp_epsilon": None})
    attacker = Attacker(base, sides, training, seed, sent.samples, shadows)
    changes = {name: change_of(sent, base, name) for name in base.infos}
    case = attacker.case(_apply_sent(base, sent), sent=changes)
    yield from Trial(case, seed).judge(ATTACKS)


def _label_at_random(samples: GazeSamples, seed: int) -> GazeSamples:
    """Return samples with far gaze in random directions, which can only be learnt by heart."""
    angles = np.random.default_rng(seed).uniform(0, 2 * np.pi, len(samples))
    return replace(samples, gaze=_FAR_RAD * np.stack([np.cos(angles), np.sin(angles)], axis=1))


def training_of(sent: NetworkContribution) -> LocalTraining:
    """Return how the site trained, or the defaults where the contribution does not say."""
    try:
        return LocalTraining.model_validate(dict(sent.settings))
    except ValidationError:
        return LocalTraining()


def train(
    base: StateDict,
    samples: GazeSamples,
    training: LocalTraining,
    name: str,
    *,
    guarded: bool = True,
) -> StateDict:
    """Return the network that a site of that name trains from a base."""
    made = train_at_site(
        base, "0" * 64, samples, training, site=name, round_number=1, guarded=guarded
    ).contribution
    return leaks.apply_update(base, made)


def _apply_sent(base: StateDict, sent: NetworkContribution) -> StateDict:
    if sent.holds == "differences":
        return leaks.apply_update(base, sent)
    return StateDict(dict(sent.network.tensors), dict(base.infos), base.metadata)


def change_of(sent: NetworkContribution, base: StateDict, name: str) -> Float64:
    values = np.asarray(sent.network.tensors[name], dtype=np.float64)
    before = np.asarray(base.tensors[name], dtype=np.float64)
    return values if sent.holds == "differences" else values - before


def split_persons(samples: GazeSamples, names: NDArray[np.str_]) -> list[GazeSamples]:
    return [thin(samples[samples.person == name], _CANDIDATE_SAMPLES) for name in names]


def thin(samples: GazeSamples, most: int) -> GazeSamples:
    """Return at most this many samples, spread evenly."""
    if len(samples) <= most:
        return samples
    return samples[np.linspace(0, len(samples) - 1, most).astype(int)]
