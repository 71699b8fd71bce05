"""A split training of processes on loopback, which tests kill and start again."""

import random
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.datasets.gaze.records import GazeSamples
from tests.cli.conftest import Outcome, run_here, start_process
from tests.site_agent.federated.small_sites import small_sites
from tests.site_agent.split.live_split import free_address


class SplitProcesses:
    """Kits, data with one person at each site, and the processes."""

    def __init__(self, folder: Path, *options: object, made: bool = False) -> None:
        self.kits, self.data = folder / "kits", folder / "gaze"
        samples = small_sites()
        self.persons = {site: str(own_samples.person[0]) for site, own_samples in samples.items()}
        self.data.mkdir()
        write_samples(self.data, samples.values())
        self.running: dict[str, subprocess.Popen[str]] = {}
        if made:
            return
        sites = ["--sites", ",".join(samples)]
        addresses = ["--server", free_address(), "--aggregator", free_address()]
        outcome = run_here(
            "split", "provision", *addresses, *sites, "-o", self.kits, *options, "--seed", 0
        )
        assert outcome.code == 0, outcome.err

    @property
    def names(self) -> list[str]:
        return ["aggregator", "server", *self.persons]

    def samples(self) -> dict[str, GazeSamples]:
        """Return the data as each site reads it."""
        data = open_gaze(self.data)
        return {site: data.read([person]) for site, person in self.persons.items()}

    def start(self, *names: str) -> None:
        for name in names or self.names:
            arguments: list[object] = ["live", "serve", self.kits / name]
            if name in self.persons:
                arguments = ["split", "client", self.kits / name, "--data", self.data]
                arguments += ["--persons", self.persons[name]]
            self.running[name] = start_process(*arguments)

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.communicate()

    def kill_at_random(self, times: int, names: Collection[str] = ()) -> int:
        """Kill processes and start them again while the training goes on; return how often."""
        draw = random.Random(0)
        for number in range(times):
            time.sleep(draw.uniform(0.2, 1.5))
            name = draw.choice(sorted(names or self.names))
            if self.running[name].poll() is not None:
                return number
            self.kill(name)
            self.start(name)
        return times

    def wait_for_clients(self) -> dict[str, Outcome]:
        outcomes = {}
        for site in self.persons:
            process = self.running.pop(site)
            out, err = process.communicate(timeout=540)
            outcomes[site] = Outcome(process.returncode, out, err)
        return outcomes

    def assemble(self, output: Path) -> Outcome:
        kits = self.kits / "server", self.kits / "aggregator"
        return run_here("split", "assemble", *kits, "-o", output, "--json")
