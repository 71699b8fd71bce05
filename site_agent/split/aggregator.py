"""The part aggregator: it keeps the client parts of all rounds, and never sees smashed data.

Possible liars: a site, about its part and its samples (`check_network_contribution`, and the main
server compares the samples); the main server, about the sites that have finished. The aggregator
averages once a round, over at least 3 sites, so that two rosters that differ by one site cannot be
compared.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from starlette.applications import Starlette

from aggregators.methods.networks import round_files
from aggregators.models import StateDict
from site_agent.errors import ConflictError, InvalidInputError
from site_agent.federated.plan import combine, first_model
from site_agent.live import service
from site_agent.split.kits import START, SplitKit
from site_agent.split.parts import cut_of
from site_agent.split.rounds_folder import Roster, RoundsFolder, Taken

_HEADER_BYTES = 64 * 1024
_MOST_ATTEMPTS = 10_000


class PartAggregator:
    """The rounds of client parts; for several threads."""

    def __init__(self, kit: SplitKit) -> None:
        self._lock = threading.RLock()
        self._sites, self._charter = frozenset(kit.sites), kit.charter
        self.plan = kit.plan
        self.rounds = RoundsFolder(kit.folder / RoundsFolder.FOLDER, kit.folder / START, kit.plan)
        cut_of(self.rounds.model.network, "client", str(kit.folder / START))
        entries = self.rounds.model.network.infos.values()
        self.most_bytes = _HEADER_BYTES + sum(8 * math.prod(info.shape) for info in entries)

    def status(self, _caller: str = "") -> dict[str, Any]:
        """Return the current round, and the sites that have sent their parts."""
        with self._lock:
            finished = self.rounds.is_finished
            known = {} if finished else self.rounds.contributions()
            return {
                "round": self.rounds.number,
                "finished": finished,
                "received": {site: asdict(entry) for site, (entry, _) in known.items()},
            }

    def part(self, _caller: str, number: int) -> bytes:
        """Return the client part with which a round begins; after the last one, the result."""
        with self._lock:
            if not 1 <= number <= self.rounds.number:
                raise ConflictError(f"round {self.rounds.number} is under way", code="round")
            return self.rounds.part_path(number).read_bytes()

    def receive(self, site: str, number: int, attempt: int, body: bytes) -> None:
        """Take a site's trained part; the same part again changes nothing."""
        if site not in self._sites or not 1 <= attempt <= _MOST_ATTEMPTS:
            raise InvalidInputError(f"attempt {attempt}: expected 1 to {_MOST_ATTEMPTS}")
        contribution = round_files.decode_network_contribution(body)
        with self._lock:
            if number != self.rounds.number or self.rounds.is_finished:
                raise ConflictError(f"round {self.rounds.number} is under way", code="round")
            model = self.rounds.model
            if contribution.shared:
                raise InvalidInputError("the part holds personal numbers, expected none")
            round_files.check_network_contribution(
                contribution,
                model.network,
                base_digest=model.digest,
                settings=self.plan.training.shared(),
            )
            if self.rounds.intention() is not None:
                raise ConflictError(f"round {number} is being closed", code="closing")
            self.rounds.add(site, attempt, contribution)

    def close(self, number: int, roster: Roster) -> str:
        """Average the parts of a roster, and return the SHA-256 of the mean."""
        with self._lock:
            make: Callable[[], StateDict] | None = None
            if self.plan.trains_server_alone:
                make = lambda: self.rounds.model.network  # noqa: E731
            elif self._charter:
                make = self._summed
            return self.rounds.close(number, roster, make=make).digest

    def _summed(self) -> StateDict:
        """Return the part that all sites' one secure sum makes."""
        files = [path for _, path in self.rounds.contributions().values()]
        sums = [round_files.read_network_contribution(path) for path in files]
        digests = {first_model(item.network).digest for item in sums}
        if len(sums) < len(self._sites) or len(digests) > 1:
            raise InvalidInputError(
                f"found {len(sums)} secure sums, {len(digests)} of them different; expected the "
                f"same of all {len(self._sites)} sites"
            )
        return combine(self.plan.averaging, self.rounds.model, {"sum": sums[0]}).model.network


def aggregator_app(aggregator: PartAggregator) -> Starlette:
    """Return the aggregator's HTTP interface."""
    routes, round_ = service.Routes(), "/rounds/{number:int}"

    def close(_server: str, number: int, roster: Mapping[str, Any]) -> dict[str, str]:
        try:
            entries = {str(site): Taken(**entry) for site, entry in roster.items()}
        except TypeError as error:
            raise InvalidInputError(f"roster: {error}") from error
        return {"digest": aggregator.close(number, entries)}

    receive, most = aggregator.receive, aggregator.most_bytes
    routes.add("GET", "/status", aggregator.status, roles=())
    routes.add("GET", "/parts/{number:int}", aggregator.part, roles=())
    routes.add("PUT", f"{round_}/{{attempt:int}}/part", receive, most_bytes=most)
    routes.add("POST", f"{round_}/close", close, roles=("server",), fields={"roster": dict})
    return routes.app()


def run_aggregator(kit: SplitKit, *, on_ready: Callable[[], None] = lambda: None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    service.ServiceProcess(kit, aggregator_app(PartAggregator(kit)), on_ready).run()
