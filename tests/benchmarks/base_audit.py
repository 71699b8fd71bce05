"""Measure how often honest bases are refused, and the yield of cameras that are not.

    python -m tests.benchmarks.base_audit [--bases N] [--seed N]

Honest bases: as torch draws them, from each round of every optimiser at several settings, and
pruned; each is audited by a lab of three persons, by a tenth of its samples, and by labs of one
person each, those with the fewest answering units. Cameras: the four kinds of the tests,
and, closer to honest bases, imprint rows under growing noise and convolutional cameras with
thresholds that more pictures pass. For each: by how many of
these labs it is refused, and the pictures in one step on all samples and in a site's
contribution.
"""

import argparse
import tempfile
from collections.abc import Iterator
from itertools import count, cycle, islice
from pathlib import Path

import numpy as np

from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from aggregators.pruning import prune, weights_of_layers
from site_agent.attacks.gradients import read_inputs
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, write_eye_dataset
from site_agent.federated.in_process import run_rounds
from site_agent.federated.leak_checks import audit_base
from site_agent.federated.local_training import train_contribution
from site_agent.federated.plan import make_plan
from site_agent.networks.modules import new_network
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
    parser.add_argument("--seed", type=int, default=12, help="of data and bases; 11 calibrated")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
        settings = RenderSettings(persons=9, frames_per_person=120, seed=arguments.seed)
        samples = open_gaze(write_eye_dataset(Path(folder) / "eyes", settings)[0].parent).read()
    names = sorted(set(samples.person))
    public = samples[np.isin(samples.person, names[:6])]
    own_samples = samples[np.isin(samples.person, names[6:])]
    victims = [
        own_samples,
        own_samples[::10],
        *(own_samples[own_samples.person == name] for name in names[6:]),
    ]
    refused = 0
    for number, (name, base) in enumerate(
        islice(_honest(public, arguments.seed), arguments.bases), 1
    ):
        for victim in victims:
            if findings := audit_base(base, victim):
                refused += 1
                print(f"false alarm: {name}, {len(victim)} samples: {findings}")
                break
        if number % 20 == 0:
            print(f"{number} honest bases, {refused} refused", flush=True)
    for victim in (own_samples, own_samples[::10]):
        print(f"honest, fresh: {_shown(new_network('gaze-lenet', 5), victim)}")
    for kind in KINDS:
        _report(kind, build_network_camera(kind, public), victims)
    for level in (0.99, 0.98, 0.97, 0.95, 0.9):
        camera = build_network_camera("convolutional", public, level=level)
        _report(f"convolutional, thresholds that {1 - level:.0%} pass", camera, victims)
    for noise in (0.3, 0.6, 0.9, 1.2, 2.0):
        camera = build_network_camera("imprint", public, noise=noise)
        _report(f"imprint, noise {noise:g}", camera, victims)


def _honest(public: GazeSamples, seed: int) -> Iterator[tuple[str, StateDict]]:
    sites = {name: public[public.person == name] for name in sorted(set(public.person))[:4]}
    seeds = count(1000 * seed)
    trained: list[StateDict] = []
    for method, options in cycle(_METHODS):
        drawn = next(seeds)
        yield f"fresh {drawn}", new_network("gaze-lenet", drawn)
        yield f"fresh wide {drawn}", new_network("gaze-lenet-wide", drawn)
        plan = make_plan(method, options, rounds=_ROUNDS)
        for held in run_rounds(new_network("gaze-lenet", next(seeds)), sites, plan):
            trained.append(held.model.network)
            yield f"{method} {options}, round {held.number}", held.model.network
        for fraction in (0.3, 0.5, 0.7, 0.9, 0.99):
            layers = weights_of_layers(trained[-1], "linear")
            yield f"{method} {options}, pruned {fraction}", prune(trained[-1], layers, fraction)


def _report(name: str, camera: StateDict, victims: list[GazeSamples]) -> None:
    refused = sum(bool(audit_base(camera, victim)) for victim in victims)
    print(f"{name}: refused by {refused} of {len(victims)} labs; {_shown(camera, victims[0])}")
    if refused < len(victims):
        for victim in victims:
            if not audit_base(camera, victim):
                print(f"  not refused by {len(victim)} samples: {_shown(camera, victim)}")


def _shown(base: StateDict, victim: GazeSamples) -> str:
    asked = {"batch_size": 65_536, "momentum": 0.0}
    made = train_contribution(
        base, "ab" * 32, victim, LocalTraining.model_validate(asked), site="site-a", round_number=1
    )
    before = read_inputs(base, first_gradient(base, victim), victim)
    after = read_inputs(base, made.network.tensors, victim)
    best_before, best_after = (
        max((gain for gain, _ in shown.values()), default=0) for shown in (before, after)
    )
    return (
        f"of {len(victim)} samples one step shows {len(before)} "
        f"(best {best_before:.0f} dB nearer than the mean), a contribution "
        f"{len(after)} (best {best_after:.0f} dB)"
    )


if __name__ == "__main__":
    main()
