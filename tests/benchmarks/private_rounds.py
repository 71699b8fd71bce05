"""Federated rounds with differential privacy: error, epsilon, and what an attack still finds.

    python -m tests.benchmarks.private_rounds [--seeds 3] [--rounds 10] [--secure]

15 drawn persons, one a site, who hold out sessions; the base has learned from six others. For
each epsilon: the mean error on the held-out sessions and its standard deviation over seeds; the
noise beside the largest change that all sites can make; the epsilon that Opacus' accountant gives
for what the sites released; and the worst attack of the receipt on one site's first update, with
its control. Of secure rounds only the rows of persons, whose labs add shares of one noise.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from aggregators.formats import file_digest, write_model
from aggregators.methods.networks.round_files import write_network_contribution
from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from pool_server.wire.cards import score_text
from site_agent.attacks.receipt import GazeSides, probe_gaze
from site_agent.datasets.gaze import (
    GazeSamples,
    angular_errors_deg,
    held_out_sessions,
    join_samples,
)
from site_agent.datasets.synthetic.eye_patches import RenderSettings, Skews, render_person
from site_agent.federated.in_process import run_rounds
from site_agent.federated.local_training import Privacy, count_honest, train_contribution
from site_agent.federated.plan import make_plan
from site_agent.federated.private_training import (
    epsilon_of,
    noise_ratio,
    plan_privacy,
    trained_parameters,
)
from site_agent.networks import from_module, new_network, predict_gaze, to_module
from site_agent.training.gaze.loop import sgd, to_tensors, train_epoch

_SITES, _PUBLIC, _OTHERS, _FRAMES, _EPOCHS = 15, 6, 6, 120, 10

_ROWS: tuple[dict[str, Any], ...] = (
    *(
        {"dp_layers": "last", "dp_unit": unit, "dp_epsilon": epsilon}
        for unit in ("sample", "person")
        for epsilon in (8.0, 3.0, 1.0)
    ),
    {"dp_layers": "all", "dp_unit": "person", "dp_epsilon": 8.0},
    {},
)


def main() -> None:
    """Run the benchmark and print a row for each epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--secure", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    settings = RenderSettings(
        persons=_SITES + _PUBLIC + _OTHERS, frames_per_person=_FRAMES, sessions=(3, 3), seed=77,
        skews=Skews(amount=1.0),
    )  # fmt: skip
    persons = [render_person(settings, number) for number in settings.numbers]
    held = [held_out_sessions(each) for each in persons[:_SITES]]
    sites = {
        f"site-{number:02}": each[~out]
        for number, (each, out) in enumerate(zip(persons[:_SITES], held, strict=True))
    }
    test = join_samples(
        [each[out] for each, out in zip(persons[:_SITES], held, strict=True) if out.any()]
    )
    public = join_samples(persons[_SITES : _SITES + _PUBLIC])
    others = join_samples(persons[_SITES + _PUBLIC :])
    bases = [_train_base(public, seed) for seed in range(asked.seeds)]
    constant = join_samples(list(sites.values())).gaze.mean(0)
    always = angular_errors_deg(np.tile(constant, (len(test), 1)), test.gaze).mean()
    found = np.mean([_error(each, test) for each in bases])
    print(f"constant mean gaze {always:.2f} degrees, the bases {found:.2f}; {asked.rounds} rounds")
    print("| unit | layers | epsilon | error (deg) | sd | noise / change | accounted "
          "| worst attack | found | control |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    rows = [row for row in _ROWS if not asked.secure or row.get("dp_unit") == "person"]
    for row in rows:
        errors = []
        for seed, base in enumerate(bases):
            plan = make_plan("fedavg", {**row, "seed": seed}, rounds=asked.rounds)
            *_, last = run_rounds(base, sites, plan, secure=asked.secure)
            errors.append(_error(last.model.network, test))
        cells = [row.get("dp_unit", "-"), row.get("dp_layers", "all")]
        cells += [f"{row.get('dp_epsilon', 'none')}", f"{np.mean(errors):.2f}"]
        cells.append(f"{np.std(errors):.2f}")
        cells += _noise(plan.training, bases[0], sites, secure=asked.secure)
        cells += _worst_attack(plan.training, bases[0], sites["site-00"], others)
        print(f"| {' | '.join(cells)} |", flush=True)


def _train_base(public: GazeSamples, seed: int) -> StateDict:
    module, data = to_module(new_network("gaze-lenet", seed)), to_tensors(public)
    optimiser, generator = sgd(module, 0.02, 0.9, 0.0), torch.Generator().manual_seed(seed)
    for _ in range(_EPOCHS):
        train_epoch(module, optimiser, data, 8, generator)
    return from_module(module, "gaze-lenet")


def _error(network: StateDict, test: GazeSamples) -> float:
    found = predict_gaze(to_module(network), test.patches, test.head)
    return float(angular_errors_deg(found, test.gaze).mean())


def _noise(
    training: LocalTraining, base: StateDict, sites: dict[str, GazeSamples], *, secure: bool
) -> list[str]:
    if training.dp_epsilon is None:
        return ["-", "-"]
    samples = len(sites["site-00"])
    numbers = sum(x.numel() for x in trained_parameters(to_module(base), training).values())
    units = 1 if training.dp_unit == "person" else samples
    honest = count_honest(sites) if secure else 1
    ratio = noise_ratio(training, units, numbers, len(sites), honest)
    spent = epsilon_of((plan_privacy(training, samples).release,) * training.dp_rounds, 1e-5)
    return [f"{ratio:.2g}", f"{spent:.3f}"]


def _worst_attack(
    training: LocalTraining, network: StateDict, samples: GazeSamples, others: GazeSamples
) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
        sent, base = Path(folder) / "sent.contribution", Path(folder) / "base.safetensors"
        write_model(network, base)
        digest = file_digest(base)
        made = train_contribution(
            network, digest, samples, training, site="site-00", round_number=1, privacy=Privacy()
        )
        write_network_contribution(made, sent)
        worst = probe_gaze(sent, base, GazeSides(samples, others), "update").receipt.attacks[0]
    control = "-" if worst.control is None else f"{worst.control.value:.3g}"
    return [worst.name, score_text(worst.found), control]


if __name__ == "__main__":
    main()
