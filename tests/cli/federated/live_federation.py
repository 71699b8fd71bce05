"""A federation on loopback: a server and sites, each a process of its own but a hostile site."""

import itertools
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from aggregators import write_model
from aggregators.methods.merging import encode_input
from aggregators.methods.networks.round_files import decode_network_contribution
from aggregators.models import StateDict
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.contribution_ledger import ContributionLedger
from site_agent.federated.in_process import HeldRound, run_rounds
from site_agent.federated.live.site import LiveSite
from site_agent.federated.live.site_rules import SiteRules
from site_agent.federated.personal import PersonalPart
from site_agent.federated.plan import digest_run, first_model, make_plan
from site_agent.live.kits import Kit, open_kit
from site_agent.networks.modules import new_network
from site_agent.pool.profiles import rounds_folder
from tests.cli.conftest import Outcome, run_here, start_process
from tests.ports import free_port
from tests.site_agent.federated.small_sites import small_sites
from tests.waiting import wait_until

Digests = list[tuple[str, dict[str, str]]]
"""Of the network of each round, and of the updates by site."""


def digests_of(outcome: Outcome) -> Digests:
    """Return the digests that 'federated serve' shows."""
    return [(round_["digest"], round_["updates"]) for round_ in outcome.data["rounds"]]


class HostileSite(LiveSite):
    """A site in a thread that trains, and then sends something else."""

    def __init__(self, kit: Kit, rules: SiteRules, kinds: Sequence[str]) -> None:
        super().__init__(kit, rules, note=lambda _text: None)
        self._kinds = itertools.cycle(kinds)
        self.thread = threading.Thread(target=self._take_part)

    def _take_part(self) -> None:
        with self:
            self.run()

    def _contribute(
        self, number: int, facts: Mapping[str, Any], content: bytes
    ) -> tuple[bytes, int, int]:
        body, samples, least_others = super()._contribute(number, facts, content)
        made = decode_network_contribution(body)
        name, first = next(iter(made.network.tensors.items()))
        tensors = {**made.network.tensors, name: np.full_like(first, np.nan)}
        network = StateDict(tensors, made.network.infos, made.network.metadata)
        bodies = {
            "nan": bytes(encode_input(replace(made, network=network))),
            "garbage": b"garbage",
            "huge": bytes(64 * 1024**2),
        }
        return bodies[next(self._kinds)], samples, least_others


class LiveFederation:
    """Kits and processes below one folder, and data with one person at each site."""

    def __init__(
        self, folder: Path, count: int, least_others: int, plans: Sequence[tuple[str, int]]
    ) -> None:
        self.least_others = least_others
        self.plans = [make_plan(name, {"batch_size": 8}, rounds=rounds) for name, rounds in plans]
        self.folder, self.kits = folder, folder / "kits"
        self.base, self.data = folder / "base.safetensors", folder / "gaze"
        samples = small_sites(count)
        self.persons = {site: str(own_samples.person[0]) for site, own_samples in samples.items()}
        self.sites = sorted(samples)
        self.data.mkdir()
        write_samples(self.data, samples.values())
        write_model(new_network("gaze-lenet", 1), self.base)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.hostile: HostileSite | None = None
        self.port = free_port()
        self.provision(self.kits, self.port)

    def provision(self, output: Path, port: int) -> None:
        arguments = ["--sites", ",".join(self.sites)]
        made = run_here(
            "federated", "provision", "--server", f"localhost:{port}", *arguments, "-o", output
        )
        assert made.code == 0, made.err

    def samples(self) -> dict[str, GazeSamples]:
        """Return the data as each site reads it."""
        data = open_gaze(self.data)
        return {site: data.read([self.persons[site]]) for site in self.sites}

    def start(self, *names: str) -> None:
        """Start sites."""
        for name in names:
            arguments = ["federated", "site", self.kits / name, "--data", self.data]
            arguments += ["--persons", self.persons[name], "--base", self.base]
            arguments += ["--least-others", self.least_others]
            arguments += [word for plan in self.plans for word in ("--accept", plan.digest)]
            self.processes[name] = start_process(*arguments)

    def start_hostile(self, name: str, *kinds: str) -> None:
        """Start a site that trains, and answers round n with nonsense of the n-th kind."""
        rules = SiteRules(
            self.data,
            (self.persons[name],),
            {first_model(new_network("gaze-lenet", 1)).digest: None},
            tuple(plan.digest for plan in self.plans),
            self.folder / "hostile",
            least_others=self.least_others,
        )
        self.hostile = HostileSite(open_kit(self.kits / name), rules, kinds)
        self.hostile.thread.start()

    def is_served(self) -> bool:
        try:
            socket.create_connection(("localhost", self.port), 10).close()
        except OSError:
            return False
        return True

    def kill(self, name: str) -> None:
        """Kill the command; all that it started has to end with it."""
        process = self.processes.pop(name)
        process.kill()
        process.communicate()
        wait_until(lambda: not processes_of(self.kits / name))

    def stop(self, name: str) -> None:
        """Ask a command to end, as Ctrl-C does."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=540)
        assert process.returncode == 0, name
        wait_until(lambda: not processes_of(self.kits / name))

    def serving(self, method: str, rounds: int, *arguments: object) -> list[object]:
        """Return the arguments that hold rounds with batches of 8 samples."""
        arguments = ("--method", method, "--rounds", rounds, "--option", "batch_size=8", *arguments)
        base = ["--base", self.base, "-o", self.folder / method, "--protection", "open", "--json"]
        return ["federated", "serve", self.kits / "server", *base, *arguments]

    def digests_in_one_process(
        self, method: str, rounds: int, sites: Sequence[str] | None = None
    ) -> Digests:
        held = self._in_one_process(method, rounds, sites)
        return [(round_.model.digest, dict(round_.update_digests)) for round_ in held]

    def parts_in_one_process(
        self, method: str, rounds: int, sites: Sequence[str]
    ) -> Mapping[str, PersonalPart]:
        """Return each site's personal parts in the end."""
        return list(self._in_one_process(method, rounds, sites))[-1].parts

    def _in_one_process(
        self, method: str, rounds: int, sites: Sequence[str] | None
    ) -> Iterator[HeldRound]:
        plan = make_plan(method, {"batch_size": 8}, rounds=rounds)
        samples = {
            site: own_samples
            for site, own_samples in self.samples().items()
            if site in (sites or [site])
        }
        base = new_network("gaze-lenet", 1)
        run, ledger = (
            digest_run(plan, first_model(base).digest),
            ContributionLedger(rounds_folder()),
        )

        def order(site: str, digest: str) -> int:
            return ledger.order_seed(site, run, digest)

        return run_rounds(base, samples, plan, order=order)


@contextmanager
def live_federation(
    folder: Path, count: int, *plans: tuple[str, int], least_others: int = 1
) -> Iterator[LiveFederation]:
    """Make a federation of sites that name some plans, and see to it that all processes end.

    `plans`: Method and number of rounds of each.
    """
    federation = LiveFederation(folder, count, least_others, plans)
    try:
        yield federation
        for name in list(federation.processes):
            federation.stop(name)
        wait_until(lambda: not processes_of(folder))
    finally:
        if federation.hostile is not None:
            federation.hostile.ending.set()
            federation.hostile.thread.join()
        for pid in processes_of(folder):
            os.kill(pid, signal.SIGKILL)


def processes_of(folder: Path) -> list[int]:
    """Return the processes with a folder, or a path in it, among their arguments."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                arguments = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if any(word == str(folder) or word.startswith(f"{folder}/") for word in arguments):
                processes.append(int(entry.name))
    return processes
