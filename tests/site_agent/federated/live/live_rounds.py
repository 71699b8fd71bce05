"""Live rounds on loopback: the server in a thread of this process, and sites in others."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from aggregators import write_model
from aggregators.models import StateDict
from site_agent.federated.live.kits import FederationKit, provision, read_kit
from site_agent.federated.live.messages import RoundReport
from site_agent.federated.live.server import RoundsServer
from site_agent.federated.live.server_process import rounds_app
from site_agent.federated.live.site import LiveSite
from site_agent.federated.live.site_rules import SiteRules
from site_agent.federated.live.submitting import FederationFolder, hold_live_rounds
from site_agent.federated.plan import FederationPlan, first_model
from site_agent.live.service import ServiceProcess
from site_agent.work import no_progress
from tests.site_agent.split.live_split import free_address
from tests.waiting import wait_until


class LiveRounds:
    """A federation with its server, which runs while the block does."""

    def __init__(self, folder: Path, sites: Sequence[str]) -> None:
        self.folder, self.notes = folder, list[str]()
        provision(folder / "kits", address=free_address(), sites=sites)
        kit = self.kit("server")
        self.server = RoundsServer(kit, note=self.notes.append)
        self._process = ServiceProcess(kit, rounds_app(self.server), lambda: None)
        self._threads = [threading.Thread(target=self._process.run)]
        self._sites: list[LiveSite] = []

    def kit(self, name: str) -> FederationKit:
        return read_kit(self.folder / "kits" / name)

    def __enter__(self) -> "LiveRounds":
        self._threads[0].start()
        wait_until(lambda: bool(self._process.started))
        return self

    def __exit__(self, *_error: object) -> None:
        for site in self._sites:
            site.ending.set()
        for thread in self._threads[1:]:
            thread.join()
        self.server.stop()
        self._process.should_exit = True
        self._threads[0].join()

    def add_site(self, name: str, rules: SiteRules) -> None:
        """Have a site take part from now on."""
        site = LiveSite(self.kit(name), rules, note=self.notes.append)
        self._sites.append(site)

        def run() -> None:
            with site:
                site.run()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def hold(self, plan: FederationPlan, base: StateDict) -> tuple[RoundReport, ...]:
        """Hold the rounds of a plan, and return their reports."""
        path = self.folder / "base.safetensors"
        write_model(base, path)
        federation = FederationFolder(self.folder / plan.digest[:8], plan, path)
        hold_live_rounds(
            self.kit("submit"),
            federation,
            round_limit_s=120.0,
            on_round=lambda _report: None,
            progress=no_progress,
        )
        return federation.reports


@contextmanager
def live_rounds(
    folder: Path, data: Path, persons: Mapping[str, str], base: StateDict, *plans: FederationPlan
) -> Iterator[LiveRounds]:
    """Run a federation of sites that name the base and the plans; `persons`: Of each site."""
    with LiveRounds(folder, sorted(persons)) as live:
        for site, person in persons.items():
            rules = SiteRules(
                data,
                (person,),
                {first_model(base).digest: None},
                tuple(plan.digest for plan in plans),
                folder / f"ledger-{site}",
                live.kit(site).address,
                1,
            )
            live.add_site(site, rules)
        yield live
