"""``poolctl live``: the services of live trainings, of whole networks and of networks in parts."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cli.frame.errors import UsageError
from cli.frame.options import Argument, command, group
from cli.frame.output import Invocation, Reply, TableText
from site_agent.live.connection import ServiceConnection
from site_agent.live.kits import Kit, open_kit, read_facts

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
    """Run a service of a split training until Ctrl-C.

    The main server gets smashed data and trains the server parts, and never gets an image or a
    client part; the part aggregator, at another institution, averages the client parts of all
    sites, and never gets smashed data. 'federated serve' holds rounds of whole networks.
    """
    from site_agent.split import aggregator, kits, main_server

    opened = _open_split(kit, _SERVER, "aggregator")
    text = f"{opened.role} at {opened.addresses[opened.role]}; stop with Ctrl-C"
    split_kit, on_ready = kits.read_kit(kit), lambda: invocation.note(text)
    if split_kit.role == _SERVER:
        main_server.run_main_server(split_kit, note=invocation.note, on_ready=on_ready)
    else:
        aggregator.run_aggregator(split_kit, on_ready=on_ready)
    return Reply({"kit": opened.folder}, "stopped")


def _open_split(kit: Path, *roles: str) -> Kit:
    """Open a kit of a split training, which has the digests of the first parts."""
    opened = open_kit(kit, *roles)
    if "first_client" not in read_facts(kit):
        raise UsageError(
            f"{kit} is a kit of rounds of whole networks, expected one of 'split provision'; "
            "'federated serve' holds such rounds, and Ctrl-C ends them"
        )
    return opened


@command(app, "status", "live status kits/site-a", "live status kits/server")
def status(_invocation: Invocation, kit: KitArgument) -> Reply:
    """Show how far a training is, and which sites are there and done with the round under way."""
    opened = open_kit(kit)
    with ServiceConnection(opened, _SERVER, patience_s=0) as connection:
        facts = connection.get_json("/status")
    number = f"round {facts['round']} of {facts['rounds']}"
    state = "finished" if facts["finished"] else "stopped" if facts["stopped"] else number
    sites = sorted({*facts["sites"], *facts["expected"]})
    rows = [
        [site, "yes" if site in facts["expected"] else "no", "yes" if site in facts["done"] else ""]
        for site in sites
    ]
    table = TableText(["site", "expected", "done"], rows)
    return Reply(facts, [f"{opened.addresses[_SERVER]}: {state}", table], [state])


@command(app, "stop", "live stop kits/server")
def stop(_invocation: Invocation, kit: KitArgument) -> Reply:
    """End a split training; the rounds that have ended are kept.

    The services stay, and the clients end. A server that is started again goes on.
    """
    opened = _open_split(kit, _SERVER)
    with ServiceConnection(opened, _SERVER, patience_s=0) as connection:
        connection.post_json("/stop", {})
    return Reply({"kit": opened.folder}, "stopped: sites end the round when they ask next")
