"""``poolctl federated provision|server|site``: the processes of live rounds."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.errors import InputMissingError, UsageError
from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply

if TYPE_CHECKING:
    from site_agent.federated.engines.flare.kits import Kit

app = single()

KitArgument = Annotated[
    Path, typer.Argument(metavar="KIT", help="The folder that 'provision' made for it.")
]


@command(
    app,
    "provision",
    examples=[
        "federated provision --server rounds.example.org:8790 --site site-a --site site-b -o kits",
        "federated provision --server rounds.example.org:8790 --site site-c -o kits",
    ],
)
def provision(
    _invocation: Invocation,
    *,
    server: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Where all sites reach the server.", show_default=False
        ),
    ],
    site: Annotated[
        Sequence[str],
        typer.Option(metavar="SITE", help="A site that takes part.", show_default=False),
    ],
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write the kits.")],
) -> Reply:
    """Make the start-up kits of a federation: certificates, and rules that refuse code.

    Give each site the folder of its name, the machine at HOST the folder 'server', and whoever
    starts rounds the folder 'submit'. Keep 'authority' to yourself: with it, further sites can be
    added by the same command. The certificates last 360 days.
    """
    from site_agent.federated.engines.flare.kits import provision as make_kits

    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise UsageError(f"--server {server}: expected HOST:PORT, for example example.org:8790")
    made = make_kits(output, host=host, port=int(port), sites=site)
    text = [str(kit) for kit in made] or [f"{output} has these kits already"]
    if made:
        text.append(f"give each of them its folder; keep {output / 'authority'} to yourself")
    return Reply({"output": output, "server": server, "made": made}, text, [str(k) for k in made])


@command(app, "server", examples=["federated server kits/server"])
def server(invocation: Invocation, kit: KitArgument) -> Reply:
    """Run the server of a federation until Ctrl-C.

    It keeps the contributions of all rounds in KIT/contributions, and its log in KIT/log.txt.
    """
    from site_agent.federated.engines.flare.kits import read_kit

    found = read_kit(kit, "server")
    return _run(invocation, found, {}, f"server at {found.address}")


@command(
    app,
    "site",
    examples=[
        "federated site kits/site-a --data eyes/",
        "federated site kits/site-a --data eyes/ --persons p00,p03,p07",
    ],
)
def site(
    invocation: Invocation,
    kit: KitArgument,
    *,
    data: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            help="The site's gaze data. They stay on this machine.",
            show_default=False,
        ),
    ],
    persons: Annotated[
        str, typer.Option(metavar="A,B,...", help="Only these persons. Default: all.")
    ] = "",
) -> Reply:
    """Take part in all rounds of a federation until Ctrl-C.

    The site trains the networks that it gets on its own data, and sends the changes of the
    parameters and the number of samples. It refuses jobs that hold code. After an interruption it
    takes part again from the next block of rounds.
    """
    from site_agent.datasets.gaze import open_gaze
    from site_agent.federated.engines.flare.kits import read_kit
    from site_agent.federated.engines.flare.messages import site_data

    found = read_kit(kit, "site")
    if not data.exists():
        raise InputMissingError(f"{data}: no such folder")
    names = [name.strip() for name in persons.split(",") if name.strip()] or None
    samples = len(open_gaze(data).read(names))
    title = f"{found.name}: {samples} samples, server at {found.address}"
    return _run(invocation, found, site_data(data, names), title)


def _run(invocation: Invocation, kit: Kit, environment: Mapping[str, str], title: str) -> Reply:
    from site_agent.federated.engines.flare.flare_process import run_kit
    from site_agent.federated.engines.flare.kits import require_flare

    require_flare()
    invocation.note(f"{title}; stop with Ctrl-C")
    with suppress(KeyboardInterrupt), _terminated_as_interrupted():
        run_kit(kit, environment, invocation.note)
    return Reply({"kit": kit.folder, "role": kit.role}, "stopped", [])


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, which ends services, do what Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
