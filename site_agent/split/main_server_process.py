"""The main server as a process: its HTTP interface, and the thread that closes rounds."""

import math
import threading
from collections.abc import Callable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from site_agent.errors import FederationError, SiteAgentError
from site_agent.split import service
from site_agent.split.kits import AGGREGATOR, Kit
from site_agent.split.main_server import MainServer, StepPlace
from site_agent.split.messages import ServiceConnection
from site_agent.split.rounds_folder import Roster, Taken
from site_agent.training.gaze.loop import repeatable

_LOOK_INTERVAL_S = 0.1
_TRY_AGAIN_S = 1.0
_SMALL_BYTES = 4096

Note = Callable[[str], None]


def main_server_app(kit: Kit, server: MainServer) -> Starlette:
    """Return the main server's HTTP interface."""
    callers = service.Callers(kit)

    async def status(request: Request) -> Response:
        return JSONResponse(await run_in_threadpool(server.status, callers.anybody(request)))

    async def begin(request: Request) -> Response:
        site = callers.site(request)
        content = service.json_object(await service.read_body(request, _SMALL_BYTES), samples=int)
        number, attempt = _numbers(request, "number", "attempt")
        await run_in_threadpool(server.begin, site, number, attempt, content["samples"])
        return JSONResponse({})

    async def message(request: Request) -> Response:
        site, kind = callers.site(request), request.path_params["kind"]
        if kind not in ("step", "forward", "backward"):
            raise service.RefusalError(
                404, "not_found", f"found {kind}, expected step, forward, backward"
            )
        body = await service.read_body(request, server.shapes[kind].most_bytes)
        place = StepPlace(site, *_numbers(request, "number", "attempt", "step"))
        return Response(
            await run_in_threadpool(server.message, kind, place, body), media_type=service.BODY
        )

    async def done(request: Request) -> Response:
        site = callers.site(request)
        content = service.json_object(await service.read_body(request, _SMALL_BYTES), steps=int)
        number, attempt = _numbers(request, "number", "attempt")
        await run_in_threadpool(server.done, site, number, attempt, content["steps"])
        return JSONResponse({})

    async def smashed(request: Request) -> Response:
        site = callers.site(request)
        body = await service.read_body(request, server.shapes["smashed"].most_bytes)
        (index,) = _numbers(request, "index")
        await run_in_threadpool(server.take_smashed, site, index, body)
        return JSONResponse({})

    async def end(request: Request) -> Response:
        site = callers.site(request)
        body = await service.read_body(request, _SMALL_BYTES)
        content = service.json_object(body, pieces=int, samples=int)
        await run_in_threadpool(server.finish_smashed, site, content["pieces"], content["samples"])
        return JSONResponse({})

    async def predict(request: Request) -> Response:
        callers.site(request)
        body = await service.read_body(request, server.shapes["predict"].most_bytes)
        return Response(await run_in_threadpool(server.predict, body), media_type=service.BODY)

    async def stop(request: Request) -> Response:
        callers.require(request, "server")
        server.stop()
        return JSONResponse({})

    attempt = "/rounds/{number:int}/{attempt:int}"
    routes = [
        Route("/status", service.answered(status)),
        Route(f"{attempt}/begin", service.answered(begin), methods=["POST"]),
        Route(f"{attempt}/done", service.answered(done), methods=["POST"]),
        Route(f"{attempt}/{{kind}}/{{step:int}}", service.answered(message), methods=["POST"]),
        Route("/smashed/{index:int}", service.answered(smashed), methods=["POST"]),
        Route("/smashed/end", service.answered(end), methods=["POST"]),
        Route("/predict", service.answered(predict), methods=["POST"]),
        Route("/stop", service.answered(stop), methods=["POST"]),
    ]
    return Starlette(routes=routes)


def _numbers(request: Request, *names: str) -> tuple[int, ...]:
    return tuple(int(request.path_params[name]) for name in names)


def run_main_server(
    kit: Kit, *, note: Note = lambda _text: None, on_ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM, Ctrl-C, or `stop`."""
    server = MainServer(kit)
    process = service.ServiceProcess(kit, main_server_app(kit, server), on_ready)
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

    def __init__(self, kit: Kit, server: MainServer, note: Note) -> None:
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
            if len(both) < len(finished) and not self._server.is_late():
                raise FederationError(f"the services do not have the same of {missing_}")
            self._note(f"left out: {missing_}")
        return both
