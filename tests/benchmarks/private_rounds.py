"""Federated rounds with differential privacy: error, epsilon, and yield of the strongest attack.

    python -m tests.benchmarks.private_rounds [--seeds 3] [--rounds 10] [--secure]

15 drawn persons, one a site, with held-out sessions; the base has learned from six others. For
each epsilon: the mean error on the held-out sessions and its standard deviation over seeds; the
noise relative to the largest change that all sites can make; the epsilon that Opacus' accountant
gives for the releases of the sites; and how many members an attack finds in all rounds' updates
where it takes 1 % of the others for members (TPR), and the most that the epsilon allows:
``exp(epsilon) * 0.01 + delta``.

The attack is on the data that epsilon covers:

- ``sample``: a coin decides for each frame of a session whether it trains, so that members and
  others are of the same persons and sessions. The attacker has all frames and their labels, and
  looks for their gradients in the updates. Frames of a session resemble each other, so that a
  frame that did not train looks like its neighbour that did: this attack finds fewer members than
  one on unrelated pictures would, and the bound holds for both.
- ``person``: was the person there, or did the site send noise alone? The attacker repeats the
  person's training without noise and looks for the result in the updates, which for Gaussian noise
  is the most powerful test there is.

The row without noise is the control: there the attack has to succeed. Of secure rounds, only
the errors for persons are printed, as nobody sees single updates.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from site_agent.attacks.gradients import SampleGradients
from site_agent.attacks.leaks import apply_update, leak_of_network
from site_agent.attacks.separation import separation
from site_agent.attacks.table import Share, score_of
from site_agent.datasets.gaze.records import (
    GazeSamples,
    angular_errors_deg,
    held_out_sessions,
    join_samples,
)
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.federated.in_process import run_rounds
from site_agent.federated.local_training import count_honest, subtract_network
from site_agent.federated.plan import make_plan, seed_of
from site_agent.federated.private_training import (
    PrivacyPlan,
    epsilon_of,
    noise_ratio,
    plan_privacy,
    train_privately,
    trained_parameters,
)
from site_agent.networks.modules import from_module, new_network, predict_gaze, to_module
from site_agent.training.gaze.loop import repeatable, sgd, to_tensors, train_epoch

_SITES, _PUBLIC, _FRAMES, _EPOCHS, _ATTACKED = 15, 6, 120, 10, 4
_FALSE_ALARMS = 0.01

_ROWS: tuple[dict[str, Any], ...] = (
    *({"dp_unit": "sample", "dp_epsilon": epsilon} for epsilon in (3.0, 8.0, 1.0)),
    {},
    *({"dp_unit": "person", "dp_epsilon": epsilon} for epsilon in (3.0, 8.0, 1.0)),
)

Sites = Mapping[str, GazeSamples]
Scores = dict[str, tuple[list[float], list[bool]]]
"""Of each attack, the scores of candidates and which of them trained."""


def main() -> None:
    """Run the benchmark and print a row for each epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--secure", action="store_true")
    parser.add_argument("--row", type=int, action="append", help="only this row")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = RenderSettings(
        persons=_SITES + _PUBLIC, frames_per_person=_FRAMES, sessions=(3, 3), seed=77,
        skews=Skews(amount=1.0),
    )  # fmt: skip
    persons = [render_person(settings, number) for number in settings.numbers]
    held = [held_out_sessions(person) for person in persons[:_SITES]]
    pairs = list(zip(persons[:_SITES], held, strict=True))
    frames = {f"site-{number:02}": samples[~out] for number, (samples, out) in enumerate(pairs)}
    test = join_samples([samples[out] for samples, out in pairs if out.any()])
    bases = [_train_base(join_samples(persons[_SITES:]), seed) for seed in range(asked.seeds)]
    constant = join_samples(list(frames.values())).gaze.mean(0)
    always = angular_errors_deg(np.tile(constant, (len(test), 1)), test.gaze).mean()
    base_error = np.mean([_error(base, test) for base in bases])
    print(
        f"constant mean gaze {always:.2f} degrees, the bases {base_error:.2f}; "
        f"{asked.rounds} rounds"
    )
    print("| unit | epsilon | error (deg) | sd | noise / change | accounted "
          "| attack | members found at 1 % | at most | AUC |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for row in [_ROWS[number] for number in asked.row or range(len(_ROWS))]:
        if asked.secure and row.get("dp_unit") != "person":
            continue
        errors, scores = [], Scores()
        for seed, base in enumerate(bases):
            coins = np.random.default_rng([99, seed])
            trains = {name: coins.random(len(samples)) < 0.5 for name, samples in frames.items()}
            sites = {name: samples[trains[name]] for name, samples in frames.items()}
            training = make_plan("fedavg", {**row, "seed": seed}, rounds=asked.rounds).training
            attack = _Attack(training, frames, trains)
            errors.append(_error(attack.hold(base, sites, asked), test))
            for name, (values, members) in attack.scores().items():
                every = scores.setdefault(name, ([], []))
                every[0].extend(values)
                every[1].extend(members)
        cells = [row.get("dp_unit", "-"), f"{row.get('dp_epsilon', 'none')}"]
        cells += [f"{np.mean(errors):.2f}", f"{np.std(errors):.2f}"]
        cells += _noise(training, bases[0], sites, secure=asked.secure)
        cells += _worst(training, scores)
        print(f"| {' | '.join(cells)} |", flush=True)


class _Attack:
    """Holds rounds and looks for members in the updates of some sites."""

    def __init__(
        self, training: LocalTraining, frames: Sites, trains: Mapping[str, np.ndarray[Any, Any]]
    ) -> None:
        self._training, self._trains = training, trains
        self._by_person = training.dp_epsilon is not None and training.dp_unit == "person"
        names = list(frames) if self._by_person else list(frames)[:_ATTACKED]
        self._frames = {name: frames[name] for name in names}
        self._sent: dict[str, NetworkContribution] = {}
        self._totals: dict[str, dict[str, Any]] = defaultdict(dict)

    def hold(self, base: StateDict, sites: Sites, asked: argparse.Namespace) -> StateDict:
        """Hold the rounds, and return the last network."""
        options = self._training.model_dump(exclude={"dp_rounds"}, exclude_none=True)
        plan = make_plan("fedavg", options, rounds=asked.rounds)
        network = base
        for held in run_rounds(base, sites, plan, corrupt=self._keep, secure=asked.secure):
            if not asked.secure:
                look = self._look_for_persons if self._by_person else self._look_for_samples
                look(network, sites, held.number)
            result = held.model.network
            network = StateDict(result.tensors, result.infos, base.metadata)
        return network

    def scores(self) -> Scores:
        """Return the scores of all candidates, summed over rounds."""
        scores = Scores()
        for name, by_site in self._totals.items():
            values, members = scores.setdefault(name, ([], []))
            for site, totals in by_site.items():
                if self._by_person:
                    values.extend(totals)
                    members.extend([True] + [False] * (len(totals) - 1))
                else:
                    values.extend(totals)
                    members.extend(self._trains[site])
        return scores

    def _keep(self, site: str, _number: int, sent: NetworkContribution) -> NetworkContribution:
        self._sent[site] = sent
        return sent

    def _look_for_samples(self, base: StateDict, _sites: Sites, _number: int) -> None:
        for site, frames in self._frames.items():
            leak = leak_of_network(base, apply_update(base, self._sent[site]))
            for name, values in SampleGradients(frames).scores(leak).items():
                totals = self._totals[name]
                totals[site] = totals.get(site, 0.0) + values

    def _look_for_persons(self, base: StateDict, sites: Sites, number: int) -> None:
        still = self._training.model_copy(update={"learning_rate": 1e-30})
        nobody = [
            self._release(base, sites[site][:2], still, f"nobody at {site}", number)
            for site in sites
        ]
        for site in self._frames:
            change = self._release(base, sites[site], self._training, site, number, noise=False)
            sent = self._sent[site].network.tensors
            seen = np.concatenate([sent[name].ravel() for name in self._trained(base)])
            totals = self._totals["the person's own change"]
            size = np.linalg.norm(change) + 1e-30
            matches = np.array([direction @ change / size for direction in (seen, *nobody)])
            totals[site] = totals.get(site, 0.0) + matches

    def _release(
        self, base: StateDict, samples: GazeSamples, training: LocalTraining, site: str,
        number: int, *, noise: bool = True,
    ) -> np.ndarray[Any, Any]:  # fmt: skip
        plan = plan_privacy(training, len(samples)) if noise else PrivacyPlan(0.0, 1.0, 1)
        module = to_module(base)
        seed = seed_of(training.seed, f"noise of {site}", number)
        with repeatable():
            train_privately(
                module, to_tensors(samples), samples, training, plan,
                round_number=number, seed=seed,
            )  # fmt: skip
        changes = subtract_network(from_module(module, "gaze-lenet"), base)
        return np.concatenate([changes[name].ravel() for name in self._trained(base)])

    def _trained(self, base: StateDict) -> list[str]:
        return sorted(trained_parameters(to_module(base), self._training))


def _train_base(public: GazeSamples, seed: int) -> StateDict:
    module, data = to_module(new_network("gaze-lenet", seed)), to_tensors(public)
    optimiser, generator = sgd(module, 0.02, 0.9, 0.0), torch.Generator().manual_seed(seed)
    for _ in range(_EPOCHS):
        train_epoch(module, optimiser, data, 8, generator)
    return from_module(module, "gaze-lenet")


def _error(network: StateDict, test: GazeSamples) -> float:
    predicted = predict_gaze(to_module(network), test.patches, test.head)
    return float(angular_errors_deg(predicted, test.gaze).mean())


def _noise(training: LocalTraining, base: StateDict, sites: Sites, *, secure: bool) -> list[str]:
    if training.dp_epsilon is None:
        return ["-", "-"]
    samples = len(sites["site-00"])
    numbers = sum(x.numel() for x in trained_parameters(to_module(base), training).values())
    units = 1 if training.dp_unit == "person" else samples
    honest = count_honest(sites) if secure else 1
    ratio = noise_ratio(training, units, numbers, len(sites), honest)
    release = plan_privacy(training, samples).release
    spent = epsilon_of((release,) * training.dp_rounds, training.dp_delta)
    return [f"{ratio:.2g}", f"{spent:.3f}"]


def _worst(training: LocalTraining, scores: Scores) -> list[str]:
    """Return the attack that finds most members, how many, the bound and the AUC."""
    if not scores:
        return ["-"] * 4
    rates = {
        name: separation(np.array(values), np.array(members), resamples=0)
        for name, (values, members) in scores.items()
    }
    name = max(rates, key=lambda name: rates[name].true_positives_at_1_percent)
    worst = rates[name]
    share = worst.true_positives_at_1_percent
    interval = score_of(Share(share * worst.members, worst.members))
    bound = 1.0
    if training.dp_epsilon is not None:
        bound = math.exp(training.dp_epsilon) * _FALSE_ALARMS + training.dp_delta
    return [
        name,
        f"{share:.3f} ({interval.low:.3f}-{interval.high:.3f}) of {worst.members}",
        f"{min(1.0, bound):.3f}",
        f"{worst.auc:.3f}",
    ]


if __name__ == "__main__":
    main()
