"""The cost of the three protections of rounds, and the pictures that coalitions read.

    python -m tests.benchmarks.protections [--seeds 3] [--rounds 10] [--part cost|coalition]

*Cost*: 15 drawn persons, one a site, with held-out sessions; from a network that has learned from
six others, and from one that every lab makes again from its seed. For each protection the mean
error on the held-out sessions, its ratio to that of open rounds, its standard deviation over seeds,
and the time of a round.

*Coalition*: in verified rounds k of five labs of drawn persons work together. They cannot choose
the first base. In the secure sum nobody sees an update, so they move each result towards a
camera, as far as the other labs' ledgers let it pass; these audit each base and train as labs do.
The coalition subtracts its own updates from the sum, and reads those of the others together. A
picture is read that comes 10 dB nearer than the mean of all, which is scored with the truth.
"""

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from aggregators.models import StateDict
from site_agent.attacks.gradients import read_inputs
from site_agent.datasets.gaze.records import (
    GazeSamples,
    angular_errors_deg,
    held_out_sessions,
    join_samples,
)
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.errors import ContributionWithheldError, TrainingFailedError
from site_agent.federated.contribution_ledger import (
    ContributionLedger,
    RoundOfSeries,
    most_step,
    norm_of,
)
from site_agent.federated.in_process import run_rounds
from site_agent.federated.leak_checks import require_safe
from site_agent.federated.local_training import train_at_site
from site_agent.federated.plan import FederationPlan, first_model, make_plan
from site_agent.networks.modules import from_module, new_network, predict_gaze, to_module
from site_agent.training.gaze.loop import sgd, to_tensors, train_epoch
from tests.site_agent.federated.network_cameras import Kind, build_network_camera

_SITES, _PUBLIC, _LABS = 15, 6, 5
_READ_DB = 10.0
_KINDS: tuple[Kind, ...] = ("decoy", "convolutional", "hidden")

_ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("open", {}),
    ("verified", {"mean": "sites"}),
    ("private, epsilon 8", {"dp_epsilon": 8.0}),
    ("private, epsilon 3", {"dp_epsilon": 3.0}),
    ("private, epsilon 8, all layers", {"dp_epsilon": 8.0, "dp_layers": "all"}),
)


def main() -> None:
    """Run the benchmark and print its two tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--part", choices=("cost", "coalition"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = RenderSettings(
        persons=_SITES + _PUBLIC, frames_per_person=asked.frames, sessions=(3, 3), seed=77,
        skews=Skews(amount=1.0),
    )  # fmt: skip
    persons = [render_person(settings, number) for number in settings.numbers]
    if asked.part != "coalition":
        _print_costs(persons[:_SITES], join_samples(persons[_SITES:]), asked)
    if asked.part != "cost":
        _print_coalitions(persons[:_LABS], join_samples(persons[_SITES:]), asked)


def _print_costs(
    persons: list[GazeSamples], public: GazeSamples, asked: argparse.Namespace
) -> None:
    held = [held_out_sessions(person) for person in persons]
    sites = {
        f"site-{number:02}": samples[~out]
        for number, (samples, out) in enumerate(zip(persons, held, strict=True))
    }
    test = join_samples([x[out] for x, out in zip(persons, held, strict=True) if out.any()])
    print("| first base | protection | error (deg) | against open | sd | seconds a round |")
    print("|---|---|---|---|---|---|", flush=True)
    bases = {
        "trained elsewhere": [_train_base(public, seed) for seed in range(asked.seeds)],
        "from a seed": [new_network("gaze-lenet", seed) for seed in range(asked.seeds)],
    }
    for base_name, networks in bases.items():
        open_error = 0.0
        for name, options in _ROWS:
            errors, began = [], time.monotonic()
            for seed, base in enumerate(networks):
                plan = make_plan("fedavg", {**options, "seed": seed}, rounds=asked.rounds)
                network = base
                for round_ in run_rounds(base, sites, plan, secure=name == "verified"):
                    network = round_.model.network
                network = StateDict(network.tensors, network.infos, base.metadata)
                errors.append(_error(network, test))
            mean = float(np.mean(errors))
            open_error = open_error or mean
            seconds = (time.monotonic() - began) / asked.seeds / asked.rounds
            print(
                f"| {base_name} | {name} | {mean:.2f} | {mean / open_error - 1:+.0%} | "
                f"{np.std(errors):.2f} | {seconds:.1f} |",
                flush=True,
            )


def _print_coalitions(
    persons: list[GazeSamples], public: GazeSamples, asked: argparse.Namespace
) -> None:
    labs = {f"lab-{number}": samples for number, samples in enumerate(persons)}
    plan = make_plan("fedavg", {"mean": "sites"}, rounds=asked.rounds)
    total = sum(len(samples) for samples in labs.values())
    print(f"\n{len(labs)} labs, {total} pictures, {asked.rounds} rounds")
    print("| camera | bases refused (of labs x rounds) | "
          + " | ".join(f"read by {k} of {_LABS}" for k in range(1, _LABS)) + " |")  # fmt: skip
    print("|---|---|" + "---|" * (_LABS - 1), flush=True)
    for kind in _KINDS:
        camera = _scale(build_network_camera(kind, public))
        read: dict[int, set[tuple[str, int]]] = {k: set() for k in range(1, _LABS)}
        refused = 0
        with TemporaryDirectory() as folder:
            base = new_network("gaze-lenet", 0)
            for number in range(1, plan.rounds + 1):
                updates = _train_labs(plan, base, number, labs, Path(folder))
                refused += len(labs) - len(updates)
                for k in read:
                    others = [name for name in list(labs)[k:] if name in updates]
                    read[k] |= _read(base, updates, others, labs)
                base = _move(base, camera, 0.99 * most_step("fedavg", plan.split))
        counts = [
            f"{len(read[k])} of {sum(len(labs[name]) for name in list(labs)[k:])}" for k in read
        ]
        print(
            f"| {kind} | {refused} of {len(labs) * plan.rounds} | {' | '.join(counts)} |",
            flush=True,
        )


def _train_labs(
    plan: FederationPlan,
    base: StateDict,
    number: int,
    labs: Mapping[str, GazeSamples],
    folder: Path,
) -> dict[str, Mapping[str, Any]]:
    """Return the updates of the labs that accept a base, as each of them decides."""
    digest, updates = first_model(base).digest, {}
    step = most_step(plan.method, plan.split)
    for name, samples in labs.items():
        ledger = ContributionLedger(folder / name)
        about = RoundOfSeries(f"{number}", "series", number, name, tuple(labs), step)
        try:
            require_safe(f"{number}", base, samples, plan.training)
            # Where it refused the round before, it knows the base of an earlier one.
            ledger.admit(about, base, digest)
        except ContributionWithheldError:
            continue
        try:
            made = train_at_site(
                base, digest, samples, plan.training, site=name, round_number=number,
                order_seed=ledger.order_seed(name, f"{number}", digest),
            )  # fmt: skip
        except TrainingFailedError:
            continue  # cameras make trainings diverge, which ends the lab's part
        updates[name] = made.contribution.network.tensors
    return updates


def _read(
    base: StateDict,
    updates: Mapping[str, Mapping[str, Any]],
    others: list[str],
    labs: Mapping[str, GazeSamples],
) -> set[tuple[str, int]]:
    """Return the pictures that the sum over some labs shows, by lab and number."""
    if not others:
        return set()
    total = {
        name: sum(np.asarray(updates[lab][name], dtype=np.float64) for lab in others)
        for name in base.infos
    }
    owners = [(lab, number) for lab in others for number in range(len(labs[lab]))]
    readings = read_inputs(base, total, join_samples([labs[lab] for lab in others]))
    return {owners[at] for at, (gain, _) in readings.items() if gain >= _READ_DB}


def _scale(camera: StateDict) -> StateDict:
    """Return a camera with a sorting layer as small as honest ones, so that it is nearer."""
    factor = min(1.0, 13.0 / float(np.linalg.norm(camera.tensors["fc1.weight"])))
    names = ("fc1.weight", "fc1.bias")
    tensors = {x: np.float32(factor) * camera.tensors[x] if x in names else camera.tensors[x]
               for x in camera.tensors}  # fmt: skip
    return StateDict(tensors, camera.infos, camera.metadata)


def _move(base: StateDict, target: StateDict, share: float) -> StateDict:
    """Return the network on the way from one to another that is this share of the norm away."""
    away = {name: target.tensors[name] - base.tensors[name] for name in base.tensors}
    length = norm_of(StateDict(away, base.infos))
    factor = min(1.0, share * norm_of(base) / max(length, 1e-12))
    tensors = {
        name: np.asarray(base.tensors[name] + factor * away[name], dtype=base.tensors[name].dtype)
        for name in base.tensors
    }
    return StateDict(tensors, base.infos, base.metadata)


def _train_base(public: GazeSamples, seed: int) -> StateDict:
    module, data = to_module(new_network("gaze-lenet", seed)), to_tensors(public)
    optimiser, generator = sgd(module, 0.02, 0.9, 0.0), torch.Generator().manual_seed(seed)
    for _ in range(10):
        train_epoch(module, optimiser, data, 8, generator)
    return from_module(module, "gaze-lenet")


def _error(network: StateDict, test: GazeSamples) -> float:
    predicted = predict_gaze(to_module(network), test.patches, test.head)
    return float(angular_errors_deg(predicted, test.gaze).mean())


if __name__ == "__main__":
    main()
