"""``poolctl federated init``: a network from which a federation begins."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.frame.existing_files import place_for_model
from cli.frame.options import ForceOption, command, single
from cli.frame.output import Invocation, Reply

app = single()

DEFAULT_ARCHITECTURE = "gaze-lenet"
ArchitectureOption = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Of the new network: gaze-lenet, gaze-lenet-wide or gaze-resnet18.",
    ),
]


@command(
    app,
    "init",
    examples=[
        "federated init -o base.safetensors",
        "federated init --architecture gaze-resnet18 --seed 1 -o base.safetensors",
    ],
)
def init(
    _invocation: Invocation,
    *,
    architecture: ArchitectureOption = DEFAULT_ARCHITECTURE,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random parameters.")] = 0,
    output: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the network.")],
    force: ForceOption = False,
) -> Reply:
    """Write a new network as a base for rounds.

    Its parameters are random; equal seeds give equal networks. Upload it for rounds through a pool.
    """
    from aggregators.formats import write_model
    from site_agent.networks import find_architecture, new_network

    found = find_architecture(architecture)
    with place_for_model(output, force=force) as place:
        digest = write_model(new_network(architecture, seed), place, format_name="safetensors")
    data = {
        "output": output,
        "architecture": architecture,
        "parameters": found.parameters,
        "seed": seed,
        "digest": digest,
    }
    text = f"{output}  ({architecture}, {found.parameters:,} parameters, digest {digest[:12]}...)"
    return Reply(data, text, [str(output)])
