"""The server of live rounds as a process: its HTTP interface."""

from collections.abc import Callable
from pathlib import Path

from starlette.applications import Starlette

from aggregators.methods import recipe_path
from aggregators.methods.networks.round_files import state_path
from site_agent.federated.live import messages
from site_agent.federated.live.server import RoundsServer
from site_agent.live import service
from site_agent.live.kits import Kit


def rounds_app(server: RoundsServer) -> Starlette:
    """Return the server's HTTP interface."""
    routes, round_ = service.Routes(), "/rounds/{number:int}"
    submitter = ("submitter",)

    def start(call: service.Call) -> None:
        server.start(call.content)

    def result(call: service.Call) -> Path:
        network = server.files.network(call.path["number"])
        paths = {"network": network, "recipe": recipe_path(network), "state": state_path(network)}
        path = paths.get(call.path["kind"])
        if path is None or not path.is_file():
            raise service.RefusalError(404, "not_found", "found no such file of a round")
        return path

    def receive(call: service.Call) -> None:
        server.receive(call.caller, call.path["number"], call.path["others"], call.body)

    def leave_out(call: service.Call, error: service.RefusalError) -> None:
        server.leave_out(call.caller, call.path["number"], f"its contribution: {error}")

    def refuse(call: service.Call) -> None:
        server.refuse(call.caller, call.path["number"], call.content["error"])

    run = {"plan": dict, "sites": list, "first_base": str, "first_round": int, "base": str}
    most = messages.MOST_NETWORK_BYTES
    routes.add("GET", "/status", lambda _call: server.status(), roles=())
    routes.add_presence(server.hear)
    for kind, is_state in (("base", False), ("state", True)):

        def upload(call: service.Call, is_state: bool = is_state) -> None:
            server.upload(call.body, is_state=is_state)

        routes.add("PUT", f"/start/{kind}", upload, roles=submitter, most_bytes=most)
    routes.add("POST", "/start", start, roles=submitter, fields={**run, "round_limit_s": float})
    routes.add("POST", "/stop", lambda _call: server.stop(), roles=("submitter", "server"))
    routes.add("GET", "/results/{number:int}/{kind}", result, roles=submitter)
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


def run_rounds_server(
    kit: Kit, *, note: Callable[[str], None], on_ready: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    server = RoundsServer(kit, note=note)
    service.ServiceProcess(kit, rounds_app(server), on_ready).run()
