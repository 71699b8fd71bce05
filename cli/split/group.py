"""``poolctl split``: networks whose first stages run where the images are.

Cuts and costs are here; the processes of a training are in `live`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cli.frame.options import Option, command, group
from cli.frame.output import Invocation, Reply, TableText
from cli.split import attack, live

if TYPE_CHECKING:
    from site_agent.split.cost import CutSize

app = group("Train a network in two parts: the first at the sites, the rest at a server.")
app.add_typer(live.app)
app.add_typer(attack.app)

ArchitectureOption = Annotated[
    str, Option("Of the network: gaze-lenet, gaze-lenet-wide or gaze-resnet18.", "NAME")
]
CutOption = Annotated[str, Option("Where the network is cut ('split cuts').", "NAME")]


@command(app, "cuts", "split cuts", "split cuts --architecture gaze-resnet18")
def cuts(
    _invocation: Invocation,
    *,
    architecture: Annotated[str, Option("Only of this architecture. Default: all.", "NAME")] = "",
) -> Reply:
    """List where networks can be cut, and what the client has of them.

    The smashed data are what the client part makes of an image; the server gets them.
    """
    from site_agent.networks.architectures import find_architecture
    from site_agent.split.cost import size_of
    from site_agent.split.cuts import CUTS

    if architecture:
        find_architecture(architecture)
    found = [
        (cut, size_of(cut))
        for name, of_one in CUTS.items()
        for cut in of_one
        if architecture in ("", name)
    ]
    rows = [
        [
            cut.architecture,
            cut.name,
            f"{size.client_parameters:,}",
            f"{size.client_share:.1%}",
            _floats(size),
            cut.meaning,
        ]
        for cut, size in found
    ]
    columns = ["architecture", "cut", "client parameters", "client work", "floats", "client has"]
    facts = [{"cut": cut, "size": size} for cut, size in found]
    return Reply({"items": facts}, TableText(columns, rows), [f"{row[0]}/{row[1]}" for row in rows])


def _floats(size: CutSize) -> str:
    from math import prod

    first = f"{prod(size.smashed):,}"
    return f"{first} and {prod(size.returned):,}" if size.returned else first


@command(
    app,
    "cost",
    "split cost",
    "split cost --architecture gaze-lenet --cut u --sites 5 --images-each 400 --rounds 5",
)
def cost(
    _invocation: Invocation,
    *,
    architecture: ArchitectureOption = "gaze-lenet-wide",
    cut: CutOption = "pool1",
    sites: Annotated[int, Option("Number of sites.", "N", min=1)] = 14,
    images_each: Annotated[int, Option("Images of each site.", min=1)] = 3000,
    rounds: Annotated[int, Option("Number of rounds.", min=1)] = 10,
    epochs: Annotated[int, Option("Passes of a site in a round.", min=1)] = 1,
) -> Reply:
    """Show what a training would move, beside FedAvg and the images themselves.

    The defaults are those of the thesis. Bytes are those of tensors, both directions together.
    """
    from site_agent.split.cost import IMAGE_BYTES, frozen_traffic, size_of, traffic_of
    from site_agent.split.cuts import find_cut

    found = find_cut(architecture, cut)
    samples = {f"site-{number}": images_each for number in range(sites)}
    moved = traffic_of(found, samples, rounds=rounds, epochs=dict.fromkeys(samples, epochs))
    size, frozen = size_of(found), frozen_traffic(found, samples)
    once = 2 * size.floats * 4
    ratio = moved.split / moved.fedavg
    verdict = (
        f"V1 and V2 move {_amount(moved.split)}, FedAvg {_amount(moved.fedavg)}: "
        + (f"{ratio:.1f} times as much" if ratio >= 1 else f"{1 / ratio:.1f} times less")
        + f"; {once:,} bytes for an image and pass, which has {IMAGE_BYTES:,} bytes itself"
    )
    rows = [
        ["V1, V2: smashed data and gradients", _amount(moved.steps)],
        ["V1, V2: client parts", _amount(moved.parts)],
        ["frozen-client, mean-smashed: smashed data, once", _amount(frozen)],
        ["predicting each image once", _amount(moved.predictions)],
        ["FedAvg: whole networks", _amount(moved.fedavg)],
        ["the images themselves", _amount(moved.raw)],
    ]
    facts = {
        "cut": found,
        "size": size,
        "traffic_bytes": moved,
        "split_bytes": moved.split,
        "frozen_bytes": frozen,
        "times_fedavg": ratio,
    }
    return Reply(facts, [verdict, TableText(["what moves", "amount"], rows)], [str(moved.split)])


def _amount(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.2f} MB"
