"""One seed of a privacy study: rounds are held, and every leak of them is attacked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregators.models import StateDict
from site_agent.attacks import (
    ALL_SITES,
    LEAKS,
    Leak,
    LeakedRound,
    LeakName,
    Losses,
    RecordedRound,
    Reidentification,
    ShadowLosses,
    UpdateComparison,
    apply_update,
    by_person,
    leak_of,
    leak_of_network,
    membership_scores,
    membership_signals,
    predict_from_updates,
    record_rounds,
    reference_losses,
    reidentify,
    scores_by_losses,
    separation,
)
from site_agent.attacks.dualview import (
    Embedding,
    EyePrior,
    GazeGrid,
    InversionSettings,
    Victims,
    fit_embedding,
    fit_prior,
    infer_densities,
    kl_divergence,
    nearest_public,
    psnr,
    reconstruct,
    ssim,
)
from site_agent.datasets.gaze import GazeSamples, angular_errors_deg, join_samples
from site_agent.federated.local_training import train_contribution
from site_agent.federated.plan import FederationPlan, make_plan
from site_agent.networks import new_network
from site_agent.runs.progress import Progress
from site_agent.studies.privacy.persons import Person, PrivacySettings, StudyPersons

_PUBLIC_PICTURES, _OVERFITTED, _OVERFITTED_EPOCHS = 300, 12, 100
_SHUFFLES = 200


@dataclass(frozen=True, eq=False)
class SeedResult:
    """What one seed has shown.

    Attributes
    ----------
    scores : dict
        Plain data; see `run_seed`.
    pictures : mapping of str to uint8, shape (victims, n, 36, 60)
        Reconstructions by leak.
    """

    scores: dict[str, Any]
    pictures: Mapping[str, NDArray[np.uint8]]


@dataclass(frozen=True, eq=False)
class Federation:
    """The rounds of one seed, and what attacks on all leaks have in common."""

    everyone: StudyPersons
    settings: PrivacySettings
    seed: int

    @cached_property
    def plan(self) -> FederationPlan:
        chosen = self.settings
        options = {
            "epochs": chosen.epochs,
            "batch_size": chosen.batch_size,
            "learning_rate": chosen.learning_rate,
            "seed": self.seed,
        }
        return make_plan("fedavg", options, rounds=chosen.rounds)

    @cached_property
    def base(self) -> StateDict:
        return new_network(self.settings.architecture, self.seed)

    @property
    def sites(self) -> list[str]:
        return list(self.everyone.victims)

    @cached_property
    def recorded(self) -> list[RecordedRound]:
        return record_rounds(self.base, _training(self.everyone.victims), self.plan)

    @cached_property
    def shadow(self) -> list[RecordedRound]:
        return record_rounds(self.base, _training(self.everyone.public), self.plan)

    @cached_property
    def shadow_networks(self) -> dict[str, StateDict]:
        first = self.shadow[0]
        return {name: apply_update(first.base, sent) for name, sent in first.updates.items()}

    @cached_property
    def public(self) -> GazeSamples:
        own = join_samples([person.trains for person in self.everyone.public.values()])
        picks = np.linspace(0, len(own) - 1, min(_PUBLIC_PICTURES, len(own)))
        return own[picks.round().astype(int)]

    @cached_property
    def prior(self) -> EyePrior:
        return fit_prior(self.public.patches)

    @cached_property
    def embedding(self) -> Embedding:
        judges = self.everyone.judges.values()
        return fit_embedding(join_samples([person.trains[::2] for person in judges]))

    @cached_property
    def public_losses(self) -> Losses:
        return Losses(self.public)

    @cached_property
    def same_sessions(self) -> UpdateComparison:
        own = {name: person.others for name, person in self.everyone.victims.items()}
        return UpdateComparison(own, self.plan.training)

    @cached_property
    def judged(self) -> tuple[Losses, NDArray[np.bool_]]:
        """Members, and others of the same sessions, with which of them are members."""
        return _collect_judged(self.everyone.victims, self.settings.judged_samples)

    @cached_property
    def shadow_judged(self) -> tuple[Losses, NDArray[np.bool_]]:
        return _collect_judged(self.everyone.public, max(2, self.settings.judged_samples // 2))

    @cached_property
    def people(self) -> tuple[Losses, set[str]]:
        """Pictures with which nobody trained, of victims and of outsiders."""
        count = self.settings.judged_samples
        groups = (self.everyone.victims, self.everyone.outsiders)
        samples = [each.others[:count] for group in groups for each in group.values()]
        return Losses(join_samples(samples)), set(self.everyone.victims)


def run_seed(
    everyone: StudyPersons, settings: PrivacySettings, seed: int, progress: Progress
) -> SeedResult:
    """Hold the rounds of one seed and attack each of their leaks.

    Returns
    -------
    SeedResult
        With scores under ``leaks`` (by leak: ``reidentified``, ``by losses``, ``elsewhere``,
        ``samples``, ``persons``, ``attributes``, ``dualview``), ``sweep`` (by number of sites) and
        ``controls``.
    """
    progress(0.0, "holding the rounds of the victims")
    held = Federation(everyone, settings, seed)
    leaks = {name: leak_of(name, held.recorded) for name in LEAKS}
    progress(0.2, "holding the rounds of shadow sites")
    assert held.shadow
    scores: dict[str, Any] = {"leaks": {}}
    pictures: dict[str, NDArray[np.uint8]] = {}
    for number, (name, leak) in enumerate(leaks.items()):
        progress(0.4 + 0.12 * number, f"attacking the leak {name}")
        found = _attack(held, leak, name)
        found["dualview"], pictures[name] = attack_by_dualview(held, leak)
        scores["leaks"][name] = found
    progress(0.9, "attacking sums of fewer sites")
    scores["sweep"] = {str(count): _attack_sum(held, count) for count in settings.sweep}
    scores["controls"] = _controls(held, leaks["plain"])
    return SeedResult(scores, pictures)


def _attack(held: Federation, leak: Leak, name: LeakName) -> dict[str, Any]:
    sites = held.sites
    found: dict[str, Any] = {
        "reidentified": _plain(reidentify(held.same_sessions.scores(leak), sites, held.seed))
    }
    if name == "plain":
        own = {site: each.elsewhere for site, each in held.everyone.victims.items()}
        if all(len(samples) > 1 for samples in own.values()):
            compared = UpdateComparison(own, held.plan.training).scores(leak)
            found["elsewhere"] = _plain(reidentify(compared, sites, held.seed))
    if not leak.rounds:
        nothing = np.zeros(2)
        even = asdict(separation(nothing, nothing == np.arange(2), resamples=0))
        found["by losses"] = found["reidentified"]
        found["samples"] = found["persons"] = {"loss now": even}
        found["attributes"] = dict.fromkeys(_attributes(held), even)
        return found
    losses, members = held.judged
    shadow_losses, shadow_members = held.shadow_judged
    shadow = ShadowLosses(shadow_losses.of_leak(leak_of(name, held.shadow)), shadow_members)
    table = losses.of_leak(leak)
    references = reference_losses(held.shadow, losses, seed=held.seed)
    attacks = membership_scores(table, shadow=shadow, references=references)
    groups = losses.samples.person
    found["samples"] = {
        attack: asdict(separation(values, members, groups=groups, seed=held.seed))
        for attack, values in attacks.items()
    }
    found |= _attack_persons(held, leak)
    values = _attributes(held)
    shadow_values = np.array(
        [[each.attributes[key] for key in values] for each in held.everyone.public.values()]
    )
    if values:
        guessed = predict_from_updates(leak, sites, held.shadow_networks, shadow_values)
        found["attributes"] = {
            key: asdict(separation(guessed[:, column], truth, seed=held.seed))
            for column, (key, truth) in enumerate(values.items())
        }
    return found


def _attack_persons(held: Federation, leak: Leak) -> dict[str, Any]:
    losses, victims = held.people
    table = losses.of_leak(leak)
    persons = losses.samples.person
    means, names = by_person(table, persons)
    references = reference_losses(held.shadow, losses, seed=held.seed)
    by_reference = np.stack([references[:, persons == name].mean(axis=1) for name in names], axis=1)
    attacks = membership_scores(means, references=by_reference)
    members = np.array([name in victims for name in names])
    known = reidentify(scores_by_losses(table, persons, held.sites), held.sites, held.seed)
    return {
        "by losses": _plain(known),
        "persons": {
            attack: asdict(separation(values, members, seed=held.seed))
            for attack, values in attacks.items()
        },
    }


def _attributes(held: Federation) -> dict[str, NDArray[np.bool_]]:
    """Return whether each victim is above the median of all persons, by attribute."""
    truths = {}
    victims, public = held.everyone.victims.values(), held.everyone.public.values()
    for key in next(iter(victims)).attributes:
        middle = np.median([each.attributes[key] for each in (*victims, *public)])
        if key == "glasses":
            middle = 0.5
        truth = np.array([each.attributes[key] > middle for each in victims])
        if truth.any() and not truth.all():
            truths[key] = truth
    return truths


def _attack_sum(held: Federation, count: int) -> dict[str, Any]:
    """Attack the first round of federations of `count` of the victims, of which sums leaked."""
    first = held.recorded[0]
    order = [str(name) for name in np.random.default_rng(held.seed).permutation(held.sites)]
    after: dict[str, StateDict] = {}
    for start in range(0, len(order), count):
        group = order[start : start + count]
        network = apply_update(first.base, *(first.updates[site] for site in group))
        after |= dict.fromkeys(group, network)
    leak = Leak(f"sum of {count}", (LeakedRound(first.base, after),))
    losses, members = held.judged
    table = losses.of_leak(leak)
    own = membership_signals(table)["change"]
    return {
        "reidentified": _plain(reidentify(held.same_sessions.scores(leak), held.sites, held.seed)),
        "samples": asdict(separation(own, members, groups=losses.samples.person)),
    }


def _controls(held: Federation, plain: Leak) -> dict[str, float]:
    """Return the AUC on a deliberately overfitted network, and the mean one by random labels."""
    person = next(iter(held.everyone.victims.values()))
    known = person.trains[:: max(1, len(person.trains) // _OVERFITTED)][:_OVERFITTED]
    training = held.plan.training.model_copy(
        update={"epochs": _OVERFITTED_EPOCHS, "batch_size": _OVERFITTED}
    )
    made = train_contribution(
        held.base, "0" * 64, known, training, site=ALL_SITES, round_number=1, guarded=False
    )
    leak = leak_of_network(held.base, apply_update(held.base, made))
    table = Losses(join_samples([known, person.others])).of_leak(leak)
    members = np.arange(table.before.shape[1]) < len(known)
    signals = membership_signals(table)
    losses, true = held.judged
    change = membership_signals(losses.of_leak(plain))["change"]
    draw = np.random.default_rng(held.seed)
    shuffled = [
        separation(change, draw.permutation(true), resamples=0).auc for _ in range(_SHUFFLES)
    ]
    return {
        "overfitted": separation(signals["loss now"], members, resamples=0).auc,
        "random labels": float(np.mean(shuffled)),
    }


def _training(persons: Mapping[str, Person]) -> dict[str, GazeSamples]:
    return {name: person.trains for name, person in persons.items()}


def _collect_judged(persons: Mapping[str, Person], count: int) -> tuple[Losses, NDArray[np.bool_]]:
    inside = [person.trains[:: max(1, len(person.trains) // count)] for person in persons.values()]
    inside = [samples[:count] for samples in inside]
    outside = [person.others[:count] for person in persons.values()]
    samples = join_samples([*inside, *outside])
    return Losses(samples), np.arange(len(samples)) < sum(map(len, inside))


def _plain(found: Reidentification) -> dict[str, float]:
    return {
        "matched": found.matched,
        "top_1": found.top_1,
        "p_value": found.p_value,
        "chance": found.chance,
    }


# DualView on one leak: pictures and gaze distributions, with their scores.
def attack_by_dualview(held: Federation, leak: Leak) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Return the scores of both views, and the pictures of the first."""
    pictures = _pictures(held, leak)
    others = [each.others for each in held.everyone.victims.values()]
    similar = held.embedding.similarities(pictures, others)
    found = reidentify(similar, held.sites, held.seed)
    shape = (len(pictures), pictures.shape[1], *pictures.shape[2:])
    nearest = np.array([nearest_public(own, held.public) for own in pictures]).reshape(shape)
    mean = np.broadcast_to(held.prior.decode(np.zeros((1, held.prior.components))), shape)
    scores = {
        "top_1": found.top_1,
        "matched": found.matched,
        "p_value": found.p_value,
        **_likeness(held, pictures, ""),
        **_likeness(held, nearest, "nearest public "),
        **_likeness(held, mean, "mean public "),
        **_second_view(held, leak),
    }
    return scores, pictures


def _pictures(held: Federation, leak: Leak) -> NDArray[np.uint8]:
    settings = InversionSettings(
        restarts=held.settings.restarts, steps=held.settings.steps, seed=held.seed
    )
    starts = np.zeros((len(held.sites), held.prior.components))
    if leak.rounds:
        codes = [
            held.prior.encode(each.trains.patches).mean(axis=0)
            for each in held.everyone.public.values()
        ]
        starts = predict_from_updates(leak, held.sites, held.shadow_networks, np.array(codes))
    return reconstruct(leak, Victims(held.sites, starts), held.prior, held.public, settings)


def _likeness(held: Federation, pictures: NDArray[np.uint8], prefix: str) -> dict[str, float]:
    """Return mean PSNR and SSIM against the true picture whose gaze is nearest."""
    asked = _asked_gaze(held.public, pictures.shape[1])
    noise, structure = [], []
    for own, person in zip(pictures, held.everyone.victims.values(), strict=True):
        for picture, gaze in zip(own, asked, strict=True):
            distance = np.square(person.trains.gaze - gaze).sum(axis=1)
            truth = person.trains.patches[distance.argmin()]
            noise.append(psnr(picture, truth))
            structure.append(ssim(picture, truth))
    return {f"{prefix}psnr": float(np.mean(noise)), f"{prefix}ssim": float(np.mean(structure))}


def _asked_gaze(public: GazeSamples, count: int) -> NDArray[np.float64]:
    """Return the gaze of the pictures that `reconstruct` makes."""
    spread = np.argsort(public.gaze[:, 0], kind="stable")
    ranks = (np.arange(count) + 0.5) / count * len(spread)
    asked: NDArray[np.float64] = public.gaze[spread[ranks.astype(int)]]
    return asked


def _second_view(held: Federation, leak: Leak) -> dict[str, float]:
    """Return the divergence from the true distributions, and the error of their means."""
    grid = GazeGrid()
    public = held.everyone.public
    densities = np.array([grid.density(each.trains.gaze) for each in public.values()])
    truths = [each.trains.gaze for each in held.everyone.victims.values()]
    if not leak.rounds:
        inferred = np.repeat(densities.mean(axis=0)[None], len(truths), axis=0)
    else:
        losses, gaze = held.public_losses, held.public.gaze
        first = Leak(leak.name, (LeakedRound(held.base, leak.rounds[0].after),))
        shadow = Leak("shadow", (LeakedRound(held.base, held.shadow_networks),))
        seen, known = losses.of_leak(first), losses.of_leak(shadow)
        found = infer_densities(
            grid.changes(seen.gains, gaze), grid.changes(known.gains, gaze), densities, held.seed
        )
        place = [seen.sites.index(s if s in seen.sites else ALL_SITES) for s in held.sites]
        inferred = found[place]
    centres = np.array([own @ grid.centres for own in inferred])
    true_centres = np.array([own.mean(axis=0) for own in truths])
    return {
        "mae_deg": float(angular_errors_deg(centres, true_centres).mean()),
        "kl": float(
            np.mean(
                [
                    kl_divergence(grid.density(own), guess)
                    for own, guess in zip(truths, inferred, strict=True)
                ]
            )
        ),
    }
