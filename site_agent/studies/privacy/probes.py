"""The probes of a privacy study: rounds are held with a seed, and a leak of them is attacked."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from aggregators.models import StateDict
from site_agent.attacks import dualview, leaks, membership, reidentification
from site_agent.attacks.receipt.networks import needs_of
from site_agent.attacks.separation import Float64, separation
from site_agent.datasets.gaze.records import PATCH_SHAPE, GazeSamples, angular_errors_deg
from site_agent.federated.local_training import train_at_site
from site_agent.federated.plan import FederationPlan, make_plan
from site_agent.networks import modules as networks
from site_agent.studies.privacy.persons import Person, StudyPersons, load_persons
from site_agent.studies.protocol_file import StepJob
from site_agent.work import Progress

_PUBLIC_PICTURES, _OVERFITTED, _OVERFITTED_EPOCHS = 300, 12, 100
_SHUFFLES = 200
_SUM = "sum "
_FIRST_ROUND = slice(1)
_EVEN = {"attack": "loss now", "auc": 0.5, "balanced_accuracy": 0.5, "true_positives": 0.01}


@dataclass(frozen=True, eq=False)
class Federation:
    """The rounds of one seed, with the common ground of attacks on all leaks."""

    everyone: StudyPersons
    settings: Any
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
        return networks.new_network(self.settings.architecture, self.seed)

    @property
    def sites(self) -> list[str]:
        return list(self.everyone.victims)

    @cached_property
    def recorded(self) -> list[leaks.RecordedRound]:
        return leaks.record_rounds(self.base, _training(self.everyone.victims), self.plan)

    @cached_property
    def shadow(self) -> list[leaks.RecordedRound]:
        return leaks.record_rounds(self.base, _training(self.everyone.public), self.plan)

    @cached_property
    def shadow_networks(self) -> dict[str, StateDict]:
        first = self.shadow[0]
        return {name: leaks.apply_update(first.base, sent) for name, sent in first.updates.items()}

    @cached_property
    def public(self) -> GazeSamples:
        samples = GazeSamples.join([person.trains for person in self.everyone.public.values()])
        picks = np.linspace(0, len(samples) - 1, min(_PUBLIC_PICTURES, len(samples)))
        return samples[picks.round().astype(int)]

    @cached_property
    def dual(self) -> dualview.DualView:
        persons = [person.trains for person in self.everyone.public.values()]
        return dualview.DualView(self.public, persons, self.shadow_networks)

    @cached_property
    def embedding(self) -> dualview.Embedding:
        judges = self.everyone.judges.values()
        return dualview.fit_embedding(GazeSamples.join([person.trains[::2] for person in judges]))

    @cached_property
    def public_losses(self) -> leaks.Losses:
        return leaks.Losses(self.public)

    @cached_property
    def same_sessions(self) -> reidentification.UpdateComparison:
        others = {name: person.others for name, person in self.everyone.victims.items()}
        return reidentification.UpdateComparison(others, self.plan.training)

    @cached_property
    def judged(self) -> membership.Candidates:
        """Members, and others of the same sessions."""
        return _collect_judged(self.everyone.victims, self.settings.judged_samples)

    @cached_property
    def shadow_judged(self) -> membership.Candidates:
        return _collect_judged(self.everyone.public, max(2, self.settings.judged_samples // 2))

    @cached_property
    def people(self) -> membership.Candidates:
        """Pictures with which nobody trained, of victims and of outsiders."""
        groups = [
            GazeSamples.join(
                [person.others[: self.settings.judged_samples] for person in group.values()]
            )
            for group in (self.everyone.victims, self.everyone.outsiders)
        ]
        return membership.Candidates.of(*groups)

    def leak(self, way: str) -> leaks.Leak:
        """Return the leak of a way of sharing, or of sums over some sites (``sum 3``)."""
        if way in leaks.LEAKS:
            return leaks.leak_of(way, self.recorded)
        first, count = self.recorded[0], int(way.removeprefix(_SUM))
        order = [str(name) for name in np.random.default_rng(self.seed).permutation(self.sites)]
        after: dict[str, StateDict] = {}
        for start in range(0, len(order), count):
            group = order[start : start + count]
            network = leaks.apply_update(first.base, *(first.updates[site] for site in group))
            after |= dict.fromkeys(group, network)
        return leaks.Leak(way, (leaks.LeakedRound(first.base, after),))


def attack(job: StepJob, progress: Progress) -> list[dict[str, Any]]:
    """Attack a way of sharing with a probe; return its rows."""
    progress(0.0, "holding rounds, and attacking")
    held = hold_federation(job.data, json.dumps(vars(job.settings)), job.factors.seed)
    if job.step.name == "checked":
        return _attack_controls(held)
    way = getattr(job.factors, "way", "") or f"{_SUM}{job.factors.sites}"
    if job.factors.probe == "dualview":
        row, pictures = _attack_by_dualview(held, way)
        np.savez_compressed(job.folder / f"{held.seed}.{way}.npz", pictures=pictures)
        return [row | {"pictures": way}]
    return _PROBES[job.factors.probe](held, way)


@lru_cache(maxsize=1)
def hold_federation(folder: Path, settings: str, seed: int, samples: int = 0) -> Federation:
    """Return the rounds of a seed; the jobs of a worker that come one after another share them.

    `samples`: Of each site; 0: all.
    """
    everyone = load_persons(folder)
    if samples:
        everyone = everyone.train_less(samples)
    return Federation(everyone, SimpleNamespace(**json.loads(settings)), seed)


def _attack_updates(held: Federation, way: str) -> list[dict[str, Any]]:
    """Match sites to persons by the attacker's own training with their pictures."""
    leak, sites = held.leak(way), held.sites
    matched = reidentification.reidentify(held.same_sessions.scores(leak), sites, held.seed)
    rows = [_row("reidentified", matched)]
    elsewhere = {site: person.elsewhere for site, person in held.everyone.victims.items()}
    if way == "plain" and all(len(samples) > 1 for samples in elsewhere.values()):
        compared = reidentification.UpdateComparison(elsewhere, held.plan.training).scores(leak)
        matched = reidentification.reidentify(compared, sites, held.seed)
        rows.append(_row("elsewhere", matched))
    return rows


def _attack_samples(held: Federation, way: str) -> list[dict[str, Any]]:
    """Attack the membership of samples."""
    leak, shadow = held.leak(way), None
    if not leak.rounds:
        return [{"unit": "samples", **_EVEN}]
    if way in leaks.LEAKS:
        known = held.shadow_judged
        seen = leaks.leak_of(way, held.shadow)
        shadow = membership.ShadowLosses(known.losses.of_leak(seen), known.is_member)
    return _probe(held, leak, held.judged, shadow)


def _attack_persons(held: Federation, way: str) -> list[dict[str, Any]]:
    """Attack the membership of persons by pictures that did not train."""
    leak, sites = held.leak(way), held.sites
    if not leak.rounds:
        nothing = reidentification.reidentify(np.zeros((len(sites), len(sites))), sites, held.seed)
        return [_row("by losses", nothing), {"unit": "persons", **_EVEN}]
    losses = held.people.losses
    by_losses = reidentification.scores_by_losses(
        losses.of_leak(leak), losses.samples.person, sites
    )
    matched = reidentification.reidentify(by_losses, sites, held.seed)
    rows = _probe(held, leak, held.people, None, by_person=True)
    return [_row("by losses", matched), *rows]


def _probe(
    held: Federation,
    leak: leaks.Leak,
    candidates: membership.Candidates,
    shadow: membership.ShadowLosses | None,
    *,
    by_person: bool = False,
) -> list[dict[str, Any]]:
    references = membership.reference_losses(held.shadow, candidates.losses, seed=held.seed)
    attacks = membership.probe_membership(leak, candidates, shadow=shadow, references=references)
    rows = []
    for name, scores in attacks.items():
        judged = scores.by_person() if by_person else scores
        separated = separation(
            judged.scores, judged.is_member, groups=judged.persons, seed=held.seed
        )
        low, high = separated.intervals.get("auc", (None, None))
        rows.append(
            {
                "unit": "persons" if by_person else "samples", "attack": name,
                "needs": needs_of("membership of persons" if by_person else name),
                "auc": separated.auc, "low": low, "high": high,
                "balanced_accuracy": separated.balanced_accuracy,
                "true_positives": separated.true_positives_at_1_percent,
            }
        )  # fmt: skip
    return rows


def _attack_attributes(held: Federation, way: str) -> list[dict[str, Any]]:
    """Predict attributes of the persons from updates."""
    leak, truths = held.leak(way), _attributes(held)
    if not leak.rounds or not truths:
        return [{"attribute": name, "auc": _EVEN["auc"]} for name in truths]
    known = np.array(
        [[person.attributes[key] for key in truths] for person in held.everyone.public.values()]
    )
    guessed = membership.predict_from_updates(leak, held.sites, held.shadow_networks, known)
    return [
        {"attribute": name, "auc": separation(guessed[:, column], truth, seed=held.seed).auc}
        for column, (name, truth) in enumerate(truths.items())
    ]


def _attributes(held: Federation) -> dict[str, NDArray[np.bool_]]:
    """Return whether each victim is above the median of all persons, by attribute."""
    truths = {}
    victims, public = held.everyone.victims.values(), held.everyone.public.values()
    for key in next(iter(victims)).attributes:
        middle = np.median([person.attributes[key] for person in (*victims, *public)])
        if key == "glasses":
            middle = 0.5
        truth = np.array([person.attributes[key] > middle for person in victims])
        if truth.any() and not truth.all():
            truths[key] = truth
    return truths


def _attack_controls(held: Federation) -> list[dict[str, Any]]:
    """Return AUCs on a deliberately overfitted network, and the mean one by random labels."""
    person = next(iter(held.everyone.victims.values()))
    known = person.trains[:: max(1, len(person.trains) // _OVERFITTED)][:_OVERFITTED]
    training = held.plan.training.model_copy(
        update={"epochs": _OVERFITTED_EPOCHS, "batch_size": _OVERFITTED}
    )
    made = train_at_site(
        held.base, "0" * 64, known, training, site=leaks.ALL_SITES, round_number=1, guarded=False
    ).contribution
    leak = leaks.leak_of_network(held.base, leaks.apply_update(held.base, made))
    overfitted = membership.probe_membership(leak, membership.Candidates.of(known, person.others))
    change = membership.probe_membership(held.leak("plain"), held.judged)["change"].scores
    draw = np.random.default_rng(held.seed)
    shuffled = [
        separation(change, draw.permutation(held.judged.is_member), resamples=0).auc
        for _ in range(_SHUFFLES)
    ]
    rows = [
        {"control": "overfitted", "attack": name,
         "auc": separation(scores.scores, scores.is_member, resamples=0).auc}
        for name, scores in overfitted.items() if name != "loss at base"
    ]  # fmt: skip
    by_chance = {"attack": "change", "auc": float(np.mean(shuffled))}
    return [*rows, {"control": "random labels", **by_chance}]


def _training(persons: Mapping[str, Person]) -> dict[str, GazeSamples]:
    return {name: person.trains for name, person in persons.items()}


def _collect_judged(persons: Mapping[str, Person], count: int) -> membership.Candidates:
    inside = [person.trains[:: max(1, len(person.trains) // count)] for person in persons.values()]
    outside = [person.others[:count] for person in persons.values()]
    return membership.Candidates.of(
        GazeSamples.join([samples[:count] for samples in inside]), GazeSamples.join(outside)
    )


def _row(how: str, match: reidentification.Reidentification) -> dict[str, Any]:
    return {"match": how, "matched": match.matched, "p_value": match.p_value}


# DualView on one leak: pictures and gaze distributions, with their scores.
def _attack_by_dualview(held: Federation, way: str) -> tuple[dict[str, Any], NDArray[np.uint8]]:
    """Return the scores of both views, and the pictures of the first."""
    leak = held.leak(way)
    settings = dualview.InversionSettings(
        restarts=held.settings.restarts, steps=held.settings.steps, seed=held.seed
    )
    pictures = held.dual.reconstruct(leak, held.sites, settings)
    shape = (len(pictures), pictures.shape[1], *pictures.shape[2:])
    nearest = np.array(
        [dualview.nearest_public(picture, held.public) for picture in pictures]
    ).reshape(shape)
    prior = held.dual.prior
    mean = np.broadcast_to(prior.decode(np.zeros((1, prior.components))), shape)
    scores = {
        **judge_pictures(held, pictures),
        **_likeness(held, nearest, "nearest_"),
        **_likeness(held, mean, "mean_"),
        **second_view(held, leak),
    }
    return scores, pictures


def judge_pictures(held: Federation, pictures: NDArray[np.uint8]) -> dict[str, Any]:
    """Return the persons re-identified by reconstructed pictures, and the likeness to true ones."""
    others = [person.others for person in held.everyone.victims.values()]
    similar = held.embedding.similarities(pictures, others)
    match = reidentification.reidentify(similar, held.sites, held.seed)
    return {**_row("by pictures", match), **_likeness(held, pictures, "")}


def _likeness(held: Federation, pictures: NDArray[np.uint8], prefix: str) -> dict[str, float]:
    """Return mean PSNR and SSIM against the true picture with the nearest gaze."""
    asked = held.public.gaze[dualview.spread_over_gaze(held.public, pictures.shape[1])]
    noise, structure = [], []
    for row, person in zip(pictures, held.everyone.victims.values(), strict=True):
        for picture, gaze in zip(row, asked, strict=True):
            distance = np.square(person.trains.gaze - gaze).sum(axis=1)
            truth = person.trains.patches[distance.argmin()]
            noise.append(dualview.psnr(picture, truth))
            structure.append(dualview.ssim(picture, truth))
    return {f"{prefix}psnr": float(np.mean(noise)), f"{prefix}ssim": float(np.mean(structure))}


def second_view(
    held: Federation, leak: leaks.Leak, rounds: slice = _FIRST_ROUND
) -> dict[str, float]:
    """Return the divergence from the true distributions, and the error of their means.

    `rounds`: Of the leak, with which the distributions are inferred.
    """
    grid = dualview.GazeGrid()
    public = held.everyone.public
    densities = np.array([grid.density(person.trains.gaze) for person in public.values()])
    truths = [person.trains.gaze for person in held.everyone.victims.values()]
    if not leak.rounds:
        inferred = np.repeat(densities.mean(axis=0)[None], len(truths), axis=0)
    else:

        def changes(of: leaks.Leak) -> tuple[list[str], Float64]:
            gaze, sides = held.public.gaze, list[Float64]()
            for round_ in of.rounds[rounds]:
                seen = held.public_losses.of_leak(leaks.Leak(of.name, (round_,)))
                sides.append(grid.changes(seen.gains, gaze))
            return list(of.rounds[0].after), np.concatenate(sides, axis=1)

        sites, seen = changes(leak)
        # A public person is attacked as if her own networks had leaked.
        _, known = changes(leaks.leak_of("plain", held.shadow))
        densities_found = dualview.infer_densities(seen, known, densities, held.seed)
        place = [sites.index(s if s in sites else leaks.ALL_SITES) for s in held.sites]
        inferred = densities_found[place]
    centres = np.array([density @ grid.centres for density in inferred])
    true_centres = np.array([gaze.mean(axis=0) for gaze in truths])
    return {
        "mae_deg": float(angular_errors_deg(centres, true_centres).mean()),
        "kl": float(
            np.mean(
                [
                    dualview.kl_divergence(grid.density(gaze), guess)
                    for gaze, guess in zip(truths, inferred, strict=True)
                ]
            )
        ),
    }


_PROBES: Mapping[str, Callable[[Federation, str], list[dict[str, Any]]]] = {
    "updates": _attack_updates,
    "samples": _attack_samples,
    "persons": _attack_persons,
    "attributes": _attack_attributes,
}
"""By name: an attack on one way of sharing; returns its rows."""


def draw_sheet(job: StepJob, _progress: Progress) -> dict[str, Any]:
    """Draw a row for each victim: true pictures, and those of each attack with the first seed."""
    everyone, pictures = load_persons(job.data), {}
    names = [row["pictures"] for rows in job.inputs.values() for row in rows if "pictures" in row]
    for way in names:
        with np.load(job.study / "pictures" / f"0.{way}.npz") as made:
            pictures[way] = made["pictures"]
    high, wide, left, top = PATCH_SHAPE[0] * 2, PATCH_SHAPE[1] * 2, 60, 24
    true = [
        person.trains.patches[np.argsort(person.trains.gaze[:, 0], kind="stable")]
        for person in everyone.victims.values()
    ]
    shown = pictures[names[0]].shape[1]
    places = (np.arange(shown) + 0.5) / shown
    rows = {"true": [pictures[(places * len(pictures)).astype(int)] for pictures in true]}
    rows |= {name: list(pictures[name]) for name in names}
    columns = [(name, index) for name in rows for index in range(shown)]
    size = (left + len(columns) * (wide + 2) + 8 * len(rows), top + len(true) * (high + 2))
    sheet = Image.new("RGB", size, (25, 25, 25))
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for column, (name, index) in enumerate(columns):
        x = left + column * (wide + 2) + 8 * (column // shown)
        if not index:
            pen.text((x, 4), name, fill=(235, 235, 235), font=font)
        for row, row_pictures in enumerate(rows[name]):
            picture = Image.fromarray(row_pictures[index]).resize(
                (wide, high), Image.Resampling.BICUBIC
            )
            sheet.paste(picture.convert("RGB"), (x, top + row * (high + 2)))
    for row, victim in enumerate(everyone.victims):
        pen.text(
            (4, top + row * (high + 2) + high // 2), victim[:7], fill=(235, 235, 235), font=font
        )
    sheet.save(job.folder / "pictures.png", format="PNG")
    return {}
