"""Findings of receipts in updates of sites that train as asked, by default, and in sums.

    python -m tests.benchmarks.receipts [--long]

Drawn persons, one a site. ``one step``: an honest base, and all samples in one step, which no site
of this program makes. ``default``: as sites train. Sums are of 15 sites. For each: the level, the
worst attack, its control, and the attacks that missed their control, which do not count.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from aggregators.formats import file_digest, write_model
from aggregators.methods.networks.round_files import write_network_contribution
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from pool_server.wire.cards import score_text
from site_agent.attacks.leaks import apply_update
from site_agent.attacks.receipt.networks import GazeSides
from site_agent.attacks.receipt.probing import probe_gaze
from site_agent.datasets.gaze.records import GazeSamples, join_samples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.federated.local_training import train_contribution
from site_agent.networks.modules import new_network

_SITES, _HELD_OUT, _SHADOWS = 15, 8, 16
_ONE_STEP, _DEFAULT = LocalTraining(batch_size=65_536), LocalTraining()
_FLOORS = LocalTraining(epochs=2, batch_size=16)


def main() -> None:
    """Run the benchmark and print a row for each update."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--long", action="store_true", help="also train shadow networks (LiRA)")
    shadows = _SHADOWS * parser.parse_args().long
    settings = RenderSettings(
        persons=_SITES + _HELD_OUT, frames_per_person=40, sessions=(1, 1), seed=21,
        skews=Skews(amount=1.0),
    )  # fmt: skip
    persons = [render_person(settings, number) for number in settings.numbers]
    others = join_samples(persons[_SITES:])
    base = new_network("gaze-lenet", 9)
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
        places = Path(folder) / "sent.contribution", Path(folder) / "base.safetensors"
        write_model(base, places[1])
        digest = file_digest(places[1])

        def train(
            samples: GazeSamples, training: LocalTraining, site: int = 0
        ) -> NetworkContribution:
            return train_contribution(
                base, digest, samples, training, site=f"site-{site}", round_number=1,
                guarded=training is not _ONE_STEP,
            )  # fmt: skip

        print("| update | level | worst attack | found | control | not judged |")
        print("|---|---|---|---|---|---|")
        for name, training in (("one step", _ONE_STEP), ("default", _DEFAULT), ("floors", _FLOORS)):
            for count in (8, 16, 40):
                own_samples = persons[0][:count]
                sent = train(own_samples, training)
                write_network_contribution(sent, places[0])
                _report(f"{name}, {count} samples", places, GazeSides(own_samples, others), shadows)
            sent = _sum(
                base,
                [train(own_samples, training, n) for n, own_samples in enumerate(persons[:_SITES])],
            )
            write_network_contribution(sent, places[0])
            _report(f"{name}, sum of 15", places, GazeSides(persons[0], others), shadows)


def _sum(base: StateDict, made: list[NetworkContribution]) -> NetworkContribution:
    network = apply_update(base, *made)
    differences = {
        name: np.subtract(network.tensors[name], base.tensors[name]) for name in base.infos
    }
    return NetworkContribution(
        StateDict(differences, dict(base.infos)), "differences",
        sum(item.samples for item in made), made[0].base_digest, made[0].settings,
    )  # fmt: skip


def _report(name: str, files: tuple[Path, Path], sides: GazeSides, shadows: int) -> None:
    receipt = probe_gaze(*files, sides, "update", shadows=shadows).receipt
    worst = receipt.attacks[0]
    tried = [attack for attack in receipt.attacks if attack.control is not None]
    unjudged = ", ".join(attack.name for attack in tried if not attack.is_judged)
    assert worst.control is not None
    print(
        f"| {name} | {receipt.level} | {worst.name} | {score_text(worst.found)} "
        f"| {worst.control.value:.3g} | {unjudged or 'none'} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
