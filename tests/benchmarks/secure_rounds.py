"""Rounds of ``fedavg`` summed by servers, and plain ones of the same contributions.

    python -m tests.benchmarks.secure_rounds [--labs 15] [--servers 3] [--rounds 10]
        [--samples 300] [--epochs 1] [--full]

Every lab has the eyes of one drawn person and trains ``gaze-lenet`` on them. Its contribution goes
to a plain round and to a secure one, through all files, signatures and ledgers of labs and servers
on a board in a folder; the plain result is the base of the next round.

The parties act one after another in this process, so each one's processor seconds are its own:

- `all parties` adds up the seconds of all labs, servers and the site that finishes the round: the
  price on one machine that runs everything.
- `round` is the duration of the round where each party has a machine: the slowest lab, then the
  slowest server, and so on. Transfers and waiting for disks and others are not counted.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from aggregators.formats import file_digest, read_model, write_model
from aggregators.methods import merge
from aggregators.methods.networks import write_network_contribution
from aggregators.models import StateDict
from aggregators.secure_sum.layout import SumLayout
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.federated.local_training import train_contribution
from site_agent.federated.plan import FederationPlan, make_plan
from site_agent.networks.modules import new_network
from site_agent.secure.session import new_descriptor
from site_agent.secure.sums import encode_network_file
from site_agent.secure.verification import Mode
from tests.site_agent.secure.parties import Parties, create_parties

_MOST_MORE = 0.05
"""The aim: share by which a secure round may take longer than a plain one."""


@dataclass
class Times:
    """Processor seconds of parties, by stage; `wall` is the time that all of them took in turn."""

    stages: dict[str, dict[str, float]] = field(default_factory=lambda: defaultdict(dict))
    wall: float = 0.0

    @contextmanager
    def of(self, stage: str, party: str) -> Iterator[None]:
        """Add the block's duration."""
        started, started_s = time.process_time(), time.monotonic()
        yield
        seconds = self.stages[stage]
        seconds[party] = seconds.get(party, 0.0) + time.process_time() - started
        self.wall += time.monotonic() - started_s

    @property
    def all_parties(self) -> float:
        return sum(sum(parties.values()) for parties in self.stages.values())

    @property
    def round(self) -> float:
        return sum(max(parties.values()) for parties in self.stages.values())

    def add(self, other: Times) -> None:
        """Add the times of stages that both rounds have in common."""
        for stage, parties in other.stages.items():
            self.stages[stage].update(parties)
        self.wall += other.wall


def main() -> None:
    chosen = _arguments()
    mode: Mode = "full" if chosen.full else "servers"
    options = {"epochs": chosen.epochs, "batch_size": 32}
    plan = make_plan("fedavg", options, rounds=chosen.rounds)
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as scratch:
        folder = Path(scratch)
        parties = create_parties(folder, servers=chosen.servers, labs=chosen.labs)
        eyes = _drawn(parties, chosen.samples)
        base = folder / "base.safetensors"
        write_model(new_network("gaze-lenet", 1), base)
        _warm_up(base, next(iter(eyes.values())), plan)
        print(
            f"{chosen.labs} labs with {chosen.samples} samples, {chosen.epochs} epochs; "
            f"{chosen.servers} servers; labs verify by {mode}; processor seconds"
        )
        print(
            f"{'round':>5} {'difference':>11} {'all parties':>12} {'secure':>7} {'ratio':>6} "
            f"{'round':>7} {'secure':>7} {'ratio':>6}"
        )
        totals = np.zeros(6)
        largest = 0.0
        secure = Times()
        for number in range(1, chosen.rounds + 1):
            shared = Times()
            files = _train(base, eyes, plan, number, shared)
            plain, secure = Times(), Times()
            plain.add(shared)
            secure.add(shared)
            with plain.of("finishing", "a lab"):
                merge("fedavg", [base, *files.values()], output=folder / "plain.safetensors")
            combined = _sum(parties, files, base, mode, secure)
            with secure.of("finishing", "a lab"):
                merge("fedavg", [base, combined], output=folder / "secure.safetensors")
            difference = _difference(folder / "plain.safetensors", folder / "secure.safetensors")
            largest = max(largest, difference)
            four = (plain.all_parties, secure.all_parties, plain.round, secure.round)
            totals += np.array((*four, plain.wall, secure.wall))
            print(f"{number:5} {difference:11.1e} {_row(*four)}", flush=True)
            base = (folder / "plain.safetensors").rename(folder / f"base-{number}.safetensors")
            (folder / "secure.safetensors").unlink()
            shutil.rmtree(folder / "board")
    print(f"{'all':>5} {largest:11.1e} {_row(*totals[:4])}")
    print(
        f"wall-clock, parties one after another: plain {totals[4]:.0f} s, secure {totals[5]:.0f} s"
    )
    more_all = float(totals[1] - totals[0]) / chosen.rounds
    more = float(totals[3] - totals[2]) / chosen.rounds
    print(
        f"a secure round costs {more_all:.1f} s of all parties and {more:.2f} s of a round more: "
        f"{_MOST_MORE:.0%} where a lab trains {more_all / _MOST_MORE / chosen.labs:.0f} s and "
        f"{more / _MOST_MORE:.0f} s"
    )
    print("\nstages of the last secure round, most of any party and of all parties:")
    for stage, seconds in secure.stages.items():
        print(f"  {stage:24} {max(seconds.values()):7.2f} {sum(seconds.values()):8.2f}")
    print(f"parameters within 1e-6: {'yes' if largest <= 1e-6 else 'NO'}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--labs", type=int, default=15)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--samples", type=int, default=300, help="of each lab")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--full", action="store_true", help="labs verify all openings")
    return parser.parse_args()


def _row(plain_all: float, secure_all: float, plain: float, secure: float) -> str:
    return (
        f"{plain_all:12.1f} {secure_all:7.1f} {secure_all / plain_all:6.2f} "
        f"{plain:7.2f} {secure:7.2f} {secure / plain:6.2f}"
    )


def _drawn(parties: Parties, samples: int) -> dict[str, GazeSamples]:
    """Draw the eyes of one person for each lab."""
    labs = list(parties.charter.labs)
    settings = RenderSettings(
        persons=len(labs), frames_per_person=samples, seed=7, skews=Skews(amount=1.0)
    )
    samples_of = {}
    for lab, number in zip(labs, settings.numbers, strict=True):
        samples_of[lab] = render_person(settings, number)[:samples]
        assert len(samples_of[lab]) == samples
    return samples_of


def _warm_up(base: Path, samples: GazeSamples, plan: FederationPlan) -> None:
    """Train once, so that no lab's time has that of starting torch."""
    network = read_model(base)
    assert isinstance(network, StateDict)
    train_contribution(network, "0" * 64, samples, plan.training, site="none", round_number=1)


def _train(
    base: Path, eyes: Mapping[str, GazeSamples], plan: FederationPlan, number: int, times: Times
) -> dict[str, Path]:
    files = {}
    for lab, samples in eyes.items():
        with times.of("training", lab):
            network = read_model(base)
            assert isinstance(network, StateDict)
            made = train_contribution(
                network, file_digest(base), samples, plan.training, site=lab, round_number=number
            )
            files[lab] = base.parent / f"{lab}.contribution"
            write_network_contribution(made, files[lab])
    return files


def _sum(parties: Parties, files: Mapping[str, Path], base: Path, mode: Mode, times: Times) -> Path:
    """Hold one session, stage by stage, and return the file that a lab verified."""
    layout: SumLayout | None = None
    session = ""
    digest = file_digest(base)
    for lab, path in files.items():
        parties.lab(lab).approve_base(digest)
        with times.of("sharing (labs)", lab):
            made = encode_network_file(path, base, parties.charter.budget)
        if layout is None:
            layout = made.layout
            descriptor = new_descriptor(parties.charter, layout, parties.clock.now)
            session = parties.board.open_session(descriptor.to_bytes())
            _serve(parties, session, "keys (servers)", times)
        with times.of("sharing (labs)", lab):
            assert parties.lab(lab).share(session, made.layout, made.numbers)
    _serve(parties, session, "adding up (servers)", times)
    for lab in files:
        with times.of("tagging (labs)", lab):
            parties.lab(lab).visit(session)
    _serve(parties, session, "opening (servers)", times)
    for lab in files:
        with times.of("verifying (labs)", lab):
            written = parties.lab(lab).finish(session, base.parent / f"{lab}.sum", mode)
    return written.path


def _serve(parties: Parties, session: str, stage: str, times: Times) -> None:
    """Let the servers act in turn until nobody has anything to do."""
    while True:
        before = len(parties.board.posts(session))
        for name in parties.charter.servers:
            with times.of(stage, name):
                parties.server(name).act(session)
        if len(parties.board.posts(session)) == before:
            return


def _difference(first: Path, second: Path) -> float:
    """Return the largest difference of any parameter."""
    one, other = read_model(first), read_model(second)
    assert isinstance(one, StateDict)
    assert isinstance(other, StateDict)
    return max(float(np.abs(one.tensors[x] - other.tensors[x]).max()) for x in one.tensors)


if __name__ == "__main__":
    main()
