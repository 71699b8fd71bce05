"""A split training on loopback: services in threads of this process, clients in others."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from site_agent.datasets.gaze.records import GazeSamples
from site_agent.federated.leak_checks import WatchedRows
from site_agent.live.service import ServiceProcess
from site_agent.split.aggregator import PartAggregator, aggregator_app
from site_agent.split.client import ClientReport, SplitClient
from site_agent.split.kits import SplitKit, provision, read_kit
from site_agent.split.main_server import Closing, MainServer, main_server_app
from site_agent.split.plan import SplitPlan
from tests.ports import free_port
from tests.site_agent.federated.small_sites import small_sites
from tests.site_agent.secure.parties import Parties
from tests.waiting import wait_until


@contextmanager
def unguarded() -> Iterator[None]:
    """Have sites train as the plan says and keep nothing back, to compare ways of training."""
    with pytest.MonkeyPatch.context() as patch:
        for user in ("frozen", "training"):
            patch.setattr(
                f"site_agent.split.{user}.steps_of",
                lambda plan, _samples: (plan.training.batch_size, plan.training.epochs),
            )
        for limit in ("MOST_MOVED", "MOST_PULL"):
            patch.setattr(f"site_agent.split.part_checks.{limit}", math.inf)
        patch.setattr(WatchedRows, "keep_back", lambda *_: None)
        yield


def free_address() -> str:
    return f"127.0.0.1:{free_port()}"


def make_kits(folder: Path, plan: SplitPlan, **settings: Any) -> dict[str, SplitKit]:
    """Make the kits of a training of three small sites."""
    addresses = {"server": free_address(), "aggregator": free_address()}
    settings = {"base": None, "client_seed": plan.training.seed, **settings}
    made = provision(folder, plan, addresses=addresses, sites=list(small_sites()), **settings)
    return {path.name: read_kit(path) for path in made}


class LiveSplit:
    """Services of a training while the block runs; of secure sums, too, where it has parties."""

    def __init__(self, kits: Mapping[str, SplitKit], parties: Parties | None = None) -> None:
        self.kits, self.parties = kits, parties
        self._ending = threading.Event()
        self.server = MainServer(kits["server"])
        self.aggregator = PartAggregator(kits["aggregator"])
        self.notes: list[str] = []
        self.closing = Closing(kits["server"], self.server, self.notes.append)
        apps = {
            "server": main_server_app(self.server),
            "aggregator": aggregator_app(self.aggregator),
        }
        self.processes = {
            name: ServiceProcess(kits[name], app, lambda: None) for name, app in apps.items()
        }

    def __enter__(self) -> LiveSplit:
        self._threads = [
            threading.Thread(target=process.run) for process in self.processes.values()
        ]
        if self.parties is not None:
            self._threads.append(threading.Thread(target=self._sum))
        for thread in self._threads:
            thread.start()
        wait_until(lambda: all(process.started for process in self.processes.values()))
        self.closing.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ending.set()
        self.closing.stop()
        for process in self.processes.values():
            process.should_exit = True
        for thread in self._threads:
            thread.join()

    def client(self, site: str, samples: GazeSamples | None = None) -> SplitClient:
        site_samples = small_sites()[site] if samples is None else samples
        lab = None if self.parties is None else self.parties.lab(site)
        return SplitClient(
            self.kits[site], site_samples, patience_s=5, lab=lab, note=self.notes.append
        )

    def _sum(self) -> None:
        """Act as all aggregation servers of the secure sums."""
        assert self.parties is not None
        while not self._ending.wait(0.05):
            for session in self.parties.board.sessions():
                self.parties.serve(session)

    def run_clients(self, *sites: str) -> dict[str, ClientReport]:
        """Run clients side by side until the training has ended."""
        reports: dict[str, ClientReport] = {}
        errors: list[BaseException] = []

        def run(site: str) -> None:
            try:
                with self.client(site) as client:
                    reports[site] = client.run()
            except BaseException as error:
                errors.append(error)
                # The others would wait for this one.
                self.server.stop()

        threads = [threading.Thread(target=run, args=(site,)) for site in sites or small_sites()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return reports


@contextmanager
def live_split(
    folder: Path, plan: SplitPlan, *, parties: Parties | None = None, **settings: Any
) -> Iterator[LiveSplit]:
    charter = None if parties is None else parties.charter
    kits = make_kits(folder / "kits", plan, charter=charter, **settings)
    with LiveSplit(kits, parties) as live:
        yield live
