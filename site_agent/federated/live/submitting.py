"""The submitter's side of live rounds: it starts them, and fetches their networks."""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from aggregators.formats import file_digest
from aggregators.methods import recipe_path
from aggregators.methods.networks.round_files import state_path
from aggregators.whole_file import write_whole
from site_agent.errors import BusyError, ConflictError, FederationError, InvalidInputError
from site_agent.federated.live import messages
from site_agent.federated.live.kits import FEWEST_SITES, SERVER, FederationKit
from site_agent.federated.plan import FederationPlan, digest_run
from site_agent.live.connection import ServiceConnection
from site_agent.work import Progress
from site_agent.work.locks import locked

_PLAN = "plan.json"
_POLL_S = 0.3
_WAIT_S = 60.0
"""How long to wait at the start for sites that are not connected."""

_PATIENCE_S = 10.0


class FederationFolder(messages.RoundFiles):
    """The networks of a federation's rounds, and a report of each round."""

    def __init__(self, folder: Path, plan: FederationPlan, base: Path) -> None:
        super().__init__(folder)
        self.plan = plan
        folder.mkdir(parents=True, exist_ok=True)
        self.first_base = file_digest(base)
        content = json.dumps(
            {"plan": plan.model_dump(mode="json"), "base": self.first_base},
            indent=2,
            sort_keys=True,
        )
        place = folder / _PLAN
        if place.is_file() and place.read_text(encoding="utf-8") != f"{content}\n":
            raise InvalidInputError(
                f"{folder} holds rounds of another plan or base: choose another folder"
            )
        if not place.is_file():
            shutil.copyfile(base, folder / messages.BASE)
            write_whole(place, f"{content}\n")

    @property
    def reports(self) -> tuple[messages.RoundReport, ...]:
        """The rounds that are done, in their order."""
        return self.read_reports()

    @property
    def run(self) -> str:
        """The digest of the rounds."""
        return digest_run(self.plan, self.first_base)

    def add(self, report: messages.RoundReport, files: Mapping[str, bytes]) -> None:
        """Take over a round; `files` are its network, recipe and state."""
        network = self.network(report.number)
        if sha256(files["network"]).hexdigest() != report.digest:
            raise FederationError(f"round {report.number}: the network has another digest")
        paths = {"network": network, "recipe": recipe_path(network), "state": state_path(network)}
        for kind, content in files.items():
            write_whole(paths[kind], content)
        self.add_report(report)


def hold_live_rounds(
    kit: FederationKit,
    federation: FederationFolder,
    *,
    round_limit_s: float,
    on_round: Callable[[messages.RoundReport], None],
    progress: Progress,
) -> None:
    """Have the server hold the remaining rounds of a plan, and fetch their networks.

    It can be killed at any moment: the rounds go on without it, and the next call fetches them.

    `round_limit_s`: How long a site may train in a round. `on_round`: Called for each round after
    its network arrives, also those of earlier calls.

    Raises `BusyError` if the server is at work on other rounds, or another call in this folder, and
    `FederationError` if the server does not answer, too few sites are connected, or a round fails.
    """
    busy = BusyError(f"{federation.folder} is in use by another call")
    with (
        locked(federation.folder / ".lock", busy=busy),
        ServiceConnection(kit, SERVER, patience_s=_PATIENCE_S) as server,
    ):
        for report in federation.reports:
            on_round(report)
        total = federation.plan.rounds
        if len(federation.reports) < total:
            _start(kit, federation, server, round_limit_s, progress)
        while len(federation.reports) < total:
            status = server.get_json("/status")
            if status["run"] != federation.run:
                raise FederationError("the server has lost the rounds, or holds others now")
            for report in messages.read_reports(json.dumps(status["reports"])):
                if report.number == len(federation.reports) + 1:
                    federation.add(report, _fetch(server, report.number))
                    on_round(report)
            finished = len(federation.reports)
            progress(finished / total, f"{finished} of {total} rounds")
            if finished < total and status["state"] != "running":
                _raise_for_end(status)
            time.sleep(_POLL_S)


def _start(
    kit: FederationKit,
    federation: FederationFolder,
    server: ServiceConnection,
    round_limit_s: float,
    progress: Progress,
) -> None:
    """Start the rounds, or go on with those that the server has."""
    status, finished = server.get_json("/status"), len(federation.reports)
    if status["state"] == "running" and status["run"] == federation.run:
        return
    _wait_for_sites(kit, server, 0.0 if finished else _WAIT_S, progress)
    base = federation.network(finished)
    if status["run"] != federation.run or not (
        status["first_round"] <= finished + 1 <= status["round"]
    ):
        server.call("PUT", "/start/base", base.read_bytes())
        if state_path(base).is_file():
            server.call("PUT", "/start/state", state_path(base).read_bytes())
    run = messages.Run(
        plan=federation.plan.model_dump(mode="json"),
        sites=kit.sites,
        first_base=federation.first_base,
        first_round=finished + 1,
        base=file_digest(base),
        round_limit_s=round_limit_s,
    )
    try:
        server.post_json("/start", run.model_dump(mode="json"))
    except ConflictError as error:
        raise BusyError(
            "the server is at work on other rounds",
            hint=f"stop them with: poolctl live stop {kit.folder}",
        ) from error


def _fetch(server: ServiceConnection, number: int) -> dict[str, bytes]:
    """Return the network of a round, its recipe and the state, if there is one."""
    files, most = {}, messages.MOST_NETWORK_BYTES
    for kind in ("network", "recipe", "state"):
        with suppress(FederationError):
            files[kind] = server.call("GET", f"/results/{number}/{kind}", most_bytes=most)
    if "network" not in files:
        raise FederationError(f"round {number}: the server has no network of it")
    return files


def _raise_for_end(status: Mapping[str, Any]) -> None:
    if status["state"] == "stopped":
        raise FederationError("the rounds were stopped", hint="the same command goes on with them")
    if status["problem"]:
        raise FederationError(status["problem"], hint="the same command tries again")


def _wait_for_sites(
    kit: FederationKit, server: ServiceConnection, wait_s: float, progress: Progress
) -> None:
    """Wait until all sites are connected, or for a time; at least two must be."""
    until_s = time.monotonic() + wait_s
    while missing := set(kit.sites) - (connected := set(server.get_json("/status")["expected"])):
        if time.monotonic() >= until_s:
            break
        progress(None, f"waiting for {', '.join(sorted(missing))}")
        time.sleep(_POLL_S)
    connected &= set(kit.sites)
    if len(connected) < FEWEST_SITES:
        raise FederationError(
            f"{len(connected)} sites are connected, expected at least {FEWEST_SITES}",
            hint="each site runs: poolctl federated site KIT --data DATA",
        )
