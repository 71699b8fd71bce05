"""The main server as a process: its HTTP interface, and the thread that closes rounds."""

import math
import threading
from collections.abc import Callable

from starlette.applications import Starlette

from site_agent.errors import FederationError, SiteAgentError
from site_agent.live import service
from site_agent.live.connection import ServiceConnection
from site_agent.split.kits import AGGREGATOR, SplitKit
from site_agent.split.main_server import MainServer, StepPlace
from site_agent.split.plan import FEWEST_SITES
from site_agent.split.rounds_folder import Roster, Taken
from site_agent.training.gaze.loop import repeatable

_LOOK_INTERVAL_S = 0.1
_TRY_AGAIN_S = 1.0

Note = Callable[[str], None]


def main_server_app(server: MainServer) -> Starlette:
    """Return the main server's HTTP interface."""
    routes, shapes = service.Routes(), server.shapes
    attempt = "/rounds/{number:int}/{attempt:int}"

    def begin(call: service.Call) -> None:
        server.begin(call.caller, **call.path, samples=call.content["samples"])

    def done(call: service.Call) -> None:
        server.done(call.caller, **call.path, steps=call.content["steps"])

    def finish_smashed(call: service.Call) -> None:
        server.finish_smashed(call.caller, **call.path, **call.content)

    def take_smashed(call: service.Call) -> None:
        server.take_smashed(call.caller, **call.path, body=call.body)

    for kind in ("step", "forward", "backward"):

        def message(call: service.Call, kind: str = kind) -> bytes:
            return server.message(kind, StepPlace(call.caller, *call.path.values()), call.body)

        path = f"{attempt}/{kind}/{{step:int}}"
        routes.add("POST", path, message, most_bytes=shapes[kind].most_bytes)
    samples, pieces = {"samples": int}, {"pieces": int, "samples": int, "digest": str}
    sizes = {name: shape.most_bytes for name, shape in shapes.items()}
    routes.add("GET", "/status", lambda call: server.status(call.caller), roles=())
    routes.add("POST", f"{attempt}/begin", begin, fields=samples)
    routes.add("POST", f"{attempt}/done", done, fields={"steps": int})
    smashed = "/smashed/{number:int}"
    routes.add("POST", f"{smashed}/{{index:int}}", take_smashed, most_bytes=sizes["smashed"])
    routes.add("POST", f"{smashed}/end", finish_smashed, fields=pieces)
    routes.add(
        "POST", "/predict", lambda call: server.predict(call.body), most_bytes=sizes["predict"]
    )
    routes.add("POST", "/stop", lambda _call: server.stop(), roles=("server",))
    return routes.app()


def run_main_server(
    kit: SplitKit, *, note: Note = lambda _text: None, on_ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM, Ctrl-C, or `stop`."""
    server = MainServer(kit)
    process = service.ServiceProcess(kit, main_server_app(server), on_ready)
    closing = Closing(kit, server, note)
    # One thread and one way of computing for all sessions, as clients have them.
    with repeatable():
        closing.start()
        try:
            process.run()
        finally:
            closing.stop()


class Closing:
    """Closes each round when it is time, in a thread of its own."""

    def __init__(self, kit: SplitKit, server: MainServer, note: Note) -> None:
        self._kit, self._server, self._note = kit, server, note
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="closing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ending.set()
        self._thread.join(timeout=_TRY_AGAIN_S * 2)

    def _run(self) -> None:
        said = ""
        with ServiceConnection(self._kit, AGGREGATOR, patience_s=math.inf) as aggregator:
            while not self._ending.wait(_LOOK_INTERVAL_S):
                ready = self._server.ready_to_close()
                if ready is None:
                    continue
                try:
                    self._close(aggregator, ready)
                    said = ""
                except (SiteAgentError, OSError) as error:
                    if str(error) != said:
                        said = str(error)
                        self._note(f"the round cannot be closed yet: {said}")
                    self._ending.wait(_TRY_AGAIN_S)

    def _close(self, aggregator: ServiceConnection, ready: Roster) -> None:
        number = self._server.rounds.number
        roster = ready
        if not self._server.is_closing():
            roster = self._received_by_both(aggregator, ready)
            self._server.intend(roster)
        content = {"roster": {site: vars(entry) for site, entry in roster.items()}}
        answer = aggregator.post_json(f"/rounds/{number}/close", content)
        self._server.close(roster, str(answer["digest"]))
        self._note(f"round {number} of {self._server.plan.rounds}: {', '.join(sorted(roster))}")

    def _received_by_both(self, aggregator: ServiceConnection, finished: Roster) -> Roster:
        """Return the sites with the same attempt and samples at both services."""
        if self._server.plan.trains_server_alone:
            return finished
        received = {
            site: Taken(**entry)
            for site, entry in aggregator.get_json("/status")["received"].items()
        }
        both = {site: entry for site, entry in finished.items() if received.get(site) == entry}
        if missing := sorted(set(finished) - set(both)):
            missing_ = ", ".join(
                f"{site}: {finished[site]} here, {received.get(site)} at the aggregator"
                for site in missing
            )
            if self._server.is_secure or len(both) < FEWEST_SITES or not self._server.is_late():
                raise FederationError(f"the services do not have the same of {missing_}")
            self._note(f"left out: {missing_}")
        return both
