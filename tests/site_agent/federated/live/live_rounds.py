"""Live rounds on loopback: the server in this thread, its service and sites in others."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from aggregators import write_model
from aggregators.models import StateDict
from site_agent.federated.live.kits import SERVER, provision
from site_agent.federated.live.rounds_folder import RoundReport, RoundsFolder
from site_agent.federated.live.server import RoundsServer, serving
from site_agent.federated.live.site import LiveSite
from site_agent.federated.live.site_rules import SiteRules
from site_agent.federated.plan import FederationPlan, first_model
from site_agent.live.kits import Kit, open_kit
from site_agent.work import no_progress
from tests.site_agent.split.live_split import free_address


class LiveRounds:
    """A federation with sites that run while the block does."""

    def __init__(self, folder: Path, sites: Sequence[str]) -> None:
        self.folder, self.notes = folder, list[str]()
        provision(folder / "kits", address=free_address(), sites=sites)
        self._threads: list[threading.Thread] = []
        self._sites: list[LiveSite] = []

    def kit(self, name: str) -> Kit:
        return open_kit(self.folder / "kits" / name)

    def __enter__(self) -> "LiveRounds":
        return self

    def __exit__(self, *_error: object) -> None:
        for site in self._sites:
            site.ending.set()
        for thread in self._threads:
            thread.join()

    def add_site(self, name: str, rules: SiteRules) -> None:
        """Have a site take part from now on."""
        site = LiveSite(self.kit(name), rules, note=self.notes.append)
        self._sites.append(site)

        def run() -> None:
            with site:
                site.run()

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def server(self, plan: FederationPlan, base: StateDict) -> RoundsServer:
        """Return a server that holds the rounds of a plan in a folder of their own."""
        path = self.folder / "base.safetensors"
        write_model(base, path)
        folder = RoundsFolder(self.folder / plan.digest[:8], plan, path)
        return RoundsServer(self.kit("server"), folder, round_limit_s=120.0, note=self.notes.append)

    def hold(self, plan: FederationPlan, base: StateDict) -> Sequence[RoundReport]:
        """Hold the rounds of a plan, and return their reports."""
        server = self.server(plan, base)
        with serving(self.kit("server"), server):
            server.hold(progress=no_progress)
        return server.rounds.reports


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
                live.kit(site).addresses[SERVER],
                1,
            )
            live.add_site(site, rules)
        yield live
