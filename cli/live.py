"""``poolctl live``: the services of live trainings, of whole networks and of networks in parts."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

from cli.frame.options import Argument, command, group
from cli.frame.output import Invocation, Reply, TableText
from site_agent.live.connection import ServiceConnection
from site_agent.live.kits import open_kit, read_facts

app = group("Run the services of live trainings, and ask how far they are.")

KitArgument = Annotated[Path, Argument("A folder that 'provision' made.", "KIT")]
_SERVER = "server"


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM, the signal that ends services, like Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@command(app, "serve", "live serve kits/server", "live serve kits/aggregator")
def serve(invocation: Invocation, kit: KitArgument) -> Reply:
    """Run the service of a kit until Ctrl-C.

    The server of 'federated provision' combines the sites' contributions, and deletes them with
    the end of their round. Of 'split provision' the main server gets smashed data and trains the
    server parts, and never gets an image or a client part; the part aggregator, at another
    institution, averages the client parts of all sites, and never gets smashed data.
    """
    opened = open_kit(kit, _SERVER, "aggregator")
    text = f"{opened.role} at {opened.addresses[opened.role]}; stop with Ctrl-C"

    def ready() -> None:
        invocation.note(text)

    # Of a split training, a kit has the digests of the first parts.
    if "first_client" in read_facts(kit):
        from site_agent.split.services import run_service

        run_service(kit, note=invocation.note, on_ready=ready)
    else:
        from site_agent.federated.live.server_process import run_rounds_server

        with suppress(KeyboardInterrupt):
            run_rounds_server(opened, note=invocation.note, on_ready=ready)
    return Reply({"kit": opened.folder}, "stopped")


@command(app, "status", "live status kits/site-a", "live status kits/submit")
def status(_invocation: Invocation, kit: KitArgument) -> Reply:
    """Show how far a training is, and which sites are there and done with the round under way."""
    opened = open_kit(kit)
    with ServiceConnection(opened, _SERVER, patience_s=0) as connection:
        facts = connection.get_json("/status")
    number = f"round {facts['round']} of {facts['rounds']}"
    if not facts["rounds"]:
        number = "no rounds under way"
    state = "finished" if facts["finished"] else "stopped" if facts["stopped"] else number
    sites = sorted({*facts["sites"], *facts["expected"]})
    rows = [
        [site, "yes" if site in facts["expected"] else "no", "yes" if site in facts["done"] else ""]
        for site in sites
    ]
    table = TableText(["site", "expected", "done"], rows)
    return Reply(facts, [f"{opened.addresses[_SERVER]}: {state}", table], [state])


@command(app, "stop", "live stop kits/server", "live stop kits/submit")
def stop(_invocation: Invocation, kit: KitArgument) -> Reply:
    """End a training; the rounds that have ended are kept.

    The services stay. The same 'federated submit' goes on with live rounds; of a split training
    the clients end, and a server that is started again goes on.
    """
    opened = open_kit(kit, _SERVER, "submitter")
    with ServiceConnection(opened, _SERVER, patience_s=0) as connection:
        connection.post_json("/stop", {})
    return Reply({"kit": opened.folder}, "stopped: sites end the round when they ask next")
