"""The server of live rounds as a service: its HTTP interface."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.applications import Starlette

from site_agent.errors import BusyError
from site_agent.federated.live.server import RoundsServer
from site_agent.live import service
from site_agent.live.kits import Kit


def rounds_app(server: RoundsServer) -> Starlette:
    """Return the server's HTTP interface."""
    routes, round_ = service.Routes(), "/rounds/{number:int}"

    def receive(call: service.Call) -> None:
        server.receive(call.caller, call.path["number"], call.path["others"], call.body)

    def leave_out(call: service.Call, error: service.RefusalError) -> None:
        server.leave_out(call.caller, call.path["number"], f"its contribution: {error}")

    def refuse(call: service.Call) -> None:
        server.refuse(call.caller, call.path["number"], call.content["error"])

    routes.add("GET", "/status", lambda _call: server.status(), roles=())
    routes.add_presence(server.hear)
    routes.add("GET", "/task", lambda call: server.task(call.caller))
    routes.add("GET", f"{round_}/base", lambda call: server.base_of(call.path["number"]))
    routes.add(
        "PUT", f"{round_}/contribution/{{others:int}}", receive,
        most_bytes=server.most_bytes, on_too_large=leave_out,
    )  # fmt: skip
    routes.add("POST", f"{round_}/refusal", refuse, fields={"error": str})
    routes.add(
        "GET", f"{round_}/reply", lambda call: server.reply(call.caller, call.path["number"])
    )
    routes.add(
        "DELETE", f"{round_}/reply",
        lambda call: server.confirm_reply(call.caller, call.path["number"]),
    )  # fmt: skip
    return routes.app()


@contextmanager
def serving(kit: Kit, server: RoundsServer) -> Iterator[None]:
    """Answer the sites in a thread while the block runs.

    Raises `BusyError`: the address is taken.
    """
    ready, problems = threading.Event(), list[BusyError]()
    process = service.ServiceProcess(kit, rounds_app(server), ready.set)

    def run() -> None:
        try:
            process.run()
        except BusyError as error:
            problems.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="service")
    thread.start()
    try:
        ready.wait()
        if problems:
            raise problems[0]
        yield
    finally:
        process.should_exit = True
        thread.join()
