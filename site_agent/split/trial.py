"""A split training on one machine: both services and all clients, each a process of its own."""

import json
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from site_agent.errors import InvalidInputError
from site_agent.networks.files import read_network
from site_agent.split import client, parts, rounds_folder, training
from site_agent.split.kits import AGGREGATOR, SERVER, SplitKit, provision, read_kit
from site_agent.split.plan import SplitPlan
from site_agent.work import Progress, no_progress
from site_agent.work.programs import Program, hold_parties


@dataclass(frozen=True)
class HeldTraining:
    """The traffic and the duration of a training on one machine."""

    reports: tuple[client.ClientReport, ...]
    formula: parts.Traffic
    """The traffic that `split plan` predicts for these sites."""
    seconds: float
    """From the start of the processes to the end of the last client."""

    @property
    def step_bytes(self) -> int:
        """Bodies between clients and main server, as the clients counted them."""
        return sum(report.server_bytes for report in self.reports)

    @property
    def part_bytes(self) -> int:
        """Bodies between clients and aggregator."""
        return sum(report.aggregator_bytes for report in self.reports)


def local_kits(
    folder: Path, plan: SplitPlan, sites: Sequence[str], base: Path | None
) -> list[SplitKit]:
    """Return kits for processes on this machine; those of an interrupted training are kept."""
    if not (folder / SERVER).is_dir():
        network = read_network(base) if base else None
        addresses = {name: f"127.0.0.1:{_free_port()}" for name in (SERVER, AGGREGATOR)}
        provision(
            folder, plan, network, addresses=addresses, sites=sites, client_seed=plan.training.seed
        )
    kits = [read_kit(folder / name) for name in (SERVER, AGGREGATOR, *sorted(sites))]
    if kits[0].plan != plan or kits[0].sites != tuple(sorted(sites)):
        raise InvalidInputError(f"{folder} holds kits of another plan: choose another folder")
    return kits


def hold_training(
    kits: Sequence[SplitKit],
    samples: Mapping[str, int],
    commands: Mapping[str, Sequence[str]],
    *,
    timeout_s: float,
    progress: Progress = no_progress,
) -> HeldTraining:
    """Run all processes until the last round has ended.

    `samples`: Images of each site. `commands`: Commands that start the processes, by
    the names of their kits.
    """
    began_s = time.monotonic()
    by_name = {kit.name: kit for kit in kits}
    plan, sites = kits[0].plan, kits[0].sites
    programs = {
        name: Program(command, by_name[name].folder / "log", {})
        for name, command in commands.items()
    }

    def look(_ended: int) -> None:
        ended = _rounds_ended(by_name[SERVER].folder)
        progress(ended / plan.rounds, f"round {min(ended + 1, plan.rounds)} of {plan.rounds}")

    hold_parties(programs, sites, timeout_s=timeout_s, on_look=look)
    reports = tuple(
        client.ClientReport(**json.loads((by_name[site].folder / "report.json").read_text()))
        for site in sites
    )
    epochs = {site: training.steps_of(plan, count)[1] for site, count in samples.items()}
    formula = parts.traffic_of(plan.found_cut, samples, rounds=plan.rounds, epochs=epochs)
    return HeldTraining(reports, formula, time.monotonic() - began_s)


def _rounds_ended(folder: Path) -> int:
    path = folder / rounds_folder.RoundsFolder.FOLDER / rounds_folder.RoundsFolder.RECORDS
    return len(json.loads(path.read_text())) if path.is_file() else 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
