"""Federated rounds with differential privacy: error, epsilon, and what an attack still finds.

    python -m tests.benchmarks.private_rounds [--seeds 3] [--rounds 6] [--unit sample|person]

15 drawn persons, one a site, who hold out sessions. For each epsilon: the mean error on these
sessions and its standard deviation over seeds, beside the constant mean gaze; the epsilon that
Opacus' accountant gives for what the sites released; and the worst attack of the receipt on one
site's first update, with its control.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from aggregators.formats import file_digest, write_model
from aggregators.methods.networks.round_files import write_network_contribution
from pool_server.wire.cards import score_text
from site_agent.attacks.receipt import GazeSides, probe_gaze
from site_agent.datasets.gaze import angular_errors_deg, held_out_sessions, join_samples
from site_agent.datasets.synthetic.eye_patches import RenderSettings, Skews, render_person
from site_agent.federated.in_process import run_rounds
from site_agent.federated.local_training import train_contribution
from site_agent.federated.plan import make_plan
from site_agent.federated.private_training import epsilon_of, plan_privacy
from site_agent.networks import new_network, predict_gaze, to_module

_SITES, _OTHERS, _FRAMES = 15, 6, 120


def main() -> None:
    """Run the benchmark and print a row for each epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--unit", default="sample", choices=("sample", "person"))
    asked = parser.parse_args()
    settings = RenderSettings(
        persons=_SITES + _OTHERS, frames_per_person=_FRAMES, sessions=(3, 3), seed=77,
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
    others, first = join_samples(persons[_SITES:]), sites["site-00"]
    constant = join_samples(list(sites.values())).gaze.mean(0)
    always = angular_errors_deg(np.tile(constant, (len(test), 1)), test.gaze).mean()
    print(f"constant mean gaze: {always:.2f} degrees; {len(first)} samples at the first site")
    print("| epsilon | error (deg) | sd | accounted | noise | worst attack | found | control |")
    print("|---|---|---|---|---|---|---|---|")
    for epsilon in (None, 8.0, 3.0, 1.0):
        options = {"dp_epsilon": epsilon, "dp_unit": asked.unit, "dp_clip": 1.0}
        plan = make_plan("fedavg", options, rounds=asked.rounds)
        errors = []
        for seed in range(asked.seeds):
            each = make_plan("fedavg", {**options, "seed": seed}, rounds=asked.rounds)
            *_, last = run_rounds(new_network("gaze-lenet", seed), sites, each)
            found = predict_gaze(to_module(last.model.network), test.patches, test.head)
            errors.append(float(angular_errors_deg(found, test.gaze).mean()))
        spent, noise = "-", "-"
        if epsilon is not None:
            privacy = plan_privacy(plan.training, len(first))
            spent = f"{epsilon_of((privacy.release,) * asked.rounds, 1e-5):.3f}"
            noise = f"{privacy.noise_multiplier:.2f}"
        with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
            sent, base = Path(folder) / "sent.contribution", Path(folder) / "base.safetensors"
            network = new_network("gaze-lenet", 0)
            write_model(network, base)
            made = train_contribution(
                network, file_digest(base), first, plan.training, site="site-00", round_number=1
            )
            write_network_contribution(made, sent)
            worst = probe_gaze(sent, base, GazeSides(first, others), "update").receipt.attacks[0]
        control = "-" if worst.control is None else f"{worst.control.value:.3g}"
        print(
            f"| {'none' if epsilon is None else f'{epsilon:g}'} | {np.mean(errors):.2f} "
            f"| {np.std(errors):.2f} | {spent} | {noise} | {worst.name} "
            f"| {score_text(worst.found)} | {control} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
