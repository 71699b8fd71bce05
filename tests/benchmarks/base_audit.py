"""How often honest bases are refused, and what cameras get that are not.

    python -m tests.benchmarks.base_audit [--bases N]

Honest bases: as torch draws them, from each round of every optimiser at several settings, and
pruned. Cameras: the four kinds of the tests, and imprint rows under growing noise, which at some
point look honest. For each: refused or not, what one step on all samples would show, and what a
site's contribution shows.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from aggregators.pruning import prune, weights_of_layers
from site_agent.attacks.gradients import read_inputs
from site_agent.datasets.gaze import GazeSamples, open_gaze
from site_agent.datasets.synthetic.eye_patches import RenderSettings, write_eye_dataset
from site_agent.federated.in_process import run_rounds
from site_agent.federated.leak_checks import audit_base
from site_agent.federated.local_training import train_contribution
from site_agent.federated.plan import make_plan
from site_agent.networks import new_network
from tests.site_agent.federated.network_cameras import KINDS, build_network_camera, first_gradient

_ROUNDS = 10
_METHODS: tuple[tuple[str, dict[str, float]], ...] = (
    ("fedavg", {}),
    ("fedavg", {"learning_rate": 0.02, "batch_size": 8}),
    ("fedavg", {"batch_size": 8, "weight_decay": 0.01}),
    ("fedavgm", {"batch_size": 8}),
    ("fedadam", {"learning_rate": 0.02, "batch_size": 8}),
    ("fedyogi", {"batch_size": 16}),
    ("fedadagrad", {"batch_size": 16}),
    ("median", {"batch_size": 8}),
)


def main() -> None:
    """Run the benchmark and print a line for each group of bases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bases", type=int, default=200, help="honest ones")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
        settings = RenderSettings(persons=9, frames_per_person=120, seed=11)
        samples = open_gaze(write_eye_dataset(Path(folder) / "eyes", settings)[0].parent).read()
    names = sorted(set(samples.person))
    public = samples[np.isin(samples.person, names[:6])]
    own = samples[np.isin(samples.person, names[6:])]
    refused = 0
    for number, (name, base) in enumerate(islice(_honest(public), arguments.bases), 1):
        for victim in (own, own[::10]):
            if found := audit_base(base, victim):
                refused += 1
                print(f"false alarm: {name}, {len(victim)} samples: {found}")
                break
        if number % 20 == 0:
            print(f"{number} honest bases, {refused} refused", flush=True)
    for victim in (own, own[::10]):
        print(f"honest, fresh: {_shown(new_network('gaze-lenet', 5), victim)}")
    for kind in KINDS:
        _report(kind, build_network_camera(kind, public), own)
    for noise in (0.3, 0.6, 0.9, 1.2, 2.0):
        _report(
            f"imprint, noise {noise:g}", build_network_camera("imprint", public, noise=noise), own
        )


def _honest(public: GazeSamples) -> Iterator[tuple[str, StateDict]]:
    sites = {name: public[public.person == name] for name in sorted(set(public.person))[:4]}
    seeds = iter(range(10_000))
    trained: list[StateDict] = []
    for method, options in cycle(_METHODS):
        seed = next(seeds)
        yield f"fresh {seed}", new_network("gaze-lenet", seed)
        yield f"fresh wide {seed}", new_network("gaze-lenet-wide", seed)
        plan = make_plan(method, options, rounds=_ROUNDS)
        for held in run_rounds(new_network("gaze-lenet", next(seeds)), sites, plan):
            trained.append(held.model.network)
            yield f"{method} {options}, round {held.number}", held.model.network
        for fraction in (0.3, 0.5, 0.7, 0.9, 0.99):
            layers = weights_of_layers(trained[-1], "linear")
            yield f"{method} {options}, pruned {fraction}", prune(trained[-1], layers, fraction)


def _report(name: str, camera: StateDict, victim: GazeSamples) -> None:
    verdict = "refused" if audit_base(camera, victim) else "NOT refused"
    print(f"{name}: {verdict}; {_shown(camera, victim)}", flush=True)


def _shown(base: StateDict, victim: GazeSamples) -> str:
    asked = {"batch_size": 65_536, "momentum": 0.0}
    made = train_contribution(
        base, "ab" * 32, victim, LocalTraining.model_validate(asked), site="site-a", round_number=1
    )
    before = read_inputs(base, first_gradient(base, victim), victim)
    after = read_inputs(base, made.network.tensors, victim)
    best_before, best_after = (
        max((gain for gain, _ in each.values()), default=0) for each in (before, after)
    )
    return (
        f"of {len(victim)} samples one step shows {len(before)} "
        f"(best {best_before:.0f} dB nearer than the mean), a contribution "
        f"{len(after)} (best {best_after:.0f} dB)"
    )


if __name__ == "__main__":
    main()
