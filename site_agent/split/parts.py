"""The parts of a cut network: cutting and joining, and their cost compared with FedAvg.

A part is a network file of its own. Its metadata name the architecture with the cut and the part's
role (``gaze-lenet/pool1/client``), so that its fingerprint differs from those of whole networks and
of other parts, and merges refuse to mix them.

The cost in parameters, work and bytes follows from the cut and the numbers of images and rounds,
before anything is trained. Real messages have headers as well.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from aggregators.models import StateDict
from site_agent.errors import InvalidInputError
from site_agent.networks.gaze_modules import Stage, StagedNetwork
from site_agent.networks.modules import build_empty, fill_empty, to_module
from site_agent.split.plan import Cut, Role, find_cut


@dataclass(frozen=True, eq=False)
class Parts:
    """The two parts of a network."""

    client: StateDict
    server: StateDict


def split_network(network: StateDict, cut: Cut) -> Parts:
    """Return the parts of a network; `join_parts` gives it back in the same bytes."""
    architecture = network.metadata.get("architecture", "no architecture")
    if architecture != cut.architecture:
        raise InvalidInputError(f"the network is {architecture}, expected {cut.architecture}")
    to_module(network)  # checks its entries
    return Parts(_part_of(network, cut, "client"), _part_of(network, cut, "server"))


def join_parts(client: StateDict, server: StateDict) -> StateDict:
    """Join the two parts of a network.

    Raises `InvalidInputError` if they are not the two parts of one cut, or their other metadata
    differ.
    """
    cut = cut_of(client, "client", "the client part")
    other = cut_of(server, "server", "the server part")
    if cut != other:
        raise InvalidInputError(
            f"the client part is cut at {cut.name} of {cut.architecture}, the server part at "
            f"{other.name} of {other.architecture}; expected the parts of one cut"
        )
    rest = [
        {key: text for key, text in part.metadata.items() if key != "architecture"}
        for part in (client, server)
    ]
    if rest[0] != rest[1]:
        different = sorted(set(rest[0].items()) ^ set(rest[1].items()))
        raise InvalidInputError(
            f"the parts differ in the metadata {different[0][0]!r}; expected parts of one network"
        )
    return StateDict(
        {**client.tensors, **server.tensors},
        {**client.infos, **server.infos},
        {**rest[0], "architecture": cut.architecture},
    )


def cut_of(part: StateDict, role: Role, name: str) -> Cut:
    """Return the cut at which a part was cut, and check that the part has its entries.

    `name`: How errors call the part.

    Raises `InvalidInputError`: it is a whole network, the other part, or lacks entries.
    """
    label = part.metadata.get("architecture", "no architecture")
    parts = label.split("/")
    if len(parts) != 3 or parts[2] != role:
        raise InvalidInputError(f"{name} is {label}, expected the {role} part of a network")
    cut = find_cut(parts[0], parts[1])
    shapes = part_shapes(cut, role)
    for key, shape in shapes.items():
        info = part.infos.get(key)
        if info is None or tuple(info.shape) != shape:
            raise InvalidInputError(
                f"{name}: entry {key!r} of {label}: found "
                f"{'none' if info is None else list(info.shape)}, expected {list(shape)}"
            )
    if extra := sorted(set(part.infos) - set(shapes)):
        raise InvalidInputError(f"{name}: {label} has no entry {extra[0]!r}")
    return cut


def part_shapes(cut: Cut, role: Role) -> dict[str, tuple[int, ...]]:
    """Return the shape of each entry of a part."""
    state = _only(build_network(cut.architecture), cut, role).state_dict()
    return {key: tuple(value.shape) for key, value in state.items()}


def to_part_module(part: StateDict, cut: Cut, role: Role) -> StagedNetwork:
    """Return a network that has the layers of one part only, in evaluation mode, on the CPU.

    Run it with `StagedNetwork.run_stages` and stages of its own.
    """
    module = _only(build_network(cut.architecture), cut, role)
    fill_empty(module, part)
    # As whole networks have them: equal layouts give equal sums.
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module.eval()


def from_part_module(module: StagedNetwork, part: StateDict) -> StateDict:
    """Return the entries of a module as a part with the metadata of `part`."""
    tensors = {
        key: np.array(value.detach().numpy(), order="C")
        for key, value in module.state_dict().items()
    }
    return StateDict(tensors, dict(part.infos), dict(part.metadata))


def _part_of(network: StateDict, cut: Cut, role: Role) -> StateDict:
    names = part_shapes(cut, role)
    return StateDict(
        {key: network.tensors[key] for key in network.infos if key in names},
        {key: info for key, info in network.infos.items() if key in names},
        {**network.metadata, "architecture": cut.label(role)},
    )


def build_network(architecture: str) -> StagedNetwork:
    """Return an architecture's module, without memory for its entries."""
    module = build_empty(architecture)
    assert isinstance(module, StagedNetwork)
    return module


def _only(module: StagedNetwork, cut: Cut, role: Role) -> StagedNetwork:
    """Take the layers of the other part out of a network, in place."""
    layers = layer_names(cut.stages_of(role, module.stages))
    for name in layer_names(module.stages) - layers:
        parent, _, last = name.rpartition(".")
        setattr(module.get_submodule(parent), last, nn.Identity())
    return module


def layer_names(stages: Iterable[Stage]) -> set[str]:
    """Return the names of the modules that stages use."""
    return {layer for stage in stages for layer in stage.layers}


FLOAT_BYTES = 4
IMAGE_BYTES = 36 * 60
"""Of a grey eye patch, one byte a pixel."""


@dataclass(frozen=True)
class CutSize:
    """The sizes of the parts of a cut, and of the data exchanged between them."""

    client_parameters: int
    """Trained numbers of the client part."""
    server_parameters: int
    """Trained numbers of the server part."""
    client_entries: int
    """All numbers of the client part, including the statistics of BatchNorm."""
    server_entries: int
    """All numbers of the server part, including the statistics of BatchNorm."""
    multiplications: int
    """Multiplications of dense layers and convolutions in a forward pass of the whole network on
    one image. Inference on shares (MPC) takes a triple and a message for each."""
    comparisons: int
    """Comparisons of ReLU and max-pooling in the same pass; MPC takes a triple and a message for
    each."""
    client_share: float
    """The client's share of all multiplications."""
    smashed: tuple[int, ...]
    """Shape of the smashed data of an image."""
    returned: tuple[int, ...]
    """Shape of the features that the server returns to the client's tail; empty without a tail."""

    @property
    def floats(self) -> int:
        """Floats of an image that go one way in one forward pass, both cuts together."""
        return math.prod(self.smashed) + (math.prod(self.returned) if self.returned else 0)


@cache
def size_of(cut: Cut) -> CutSize:
    """Return the sizes of a cut, found by running it on one empty patch."""
    module = build_network(cut.architecture).eval()
    work: dict[str, tuple[int, int]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    with torch.inference_mode(), torch.device("meta"):
        x, head = torch.zeros(1, 1, 36, 60), torch.zeros(1, 2)
        for stage in module.stages:
            with _counting() as counted:
                x = module.run_stages([stage], x, head)
            work[stage.name], shapes[stage.name] = (counted[0], counted[1]), tuple(x.shape[1:])
    trained = {name: parameter.numel() for name, parameter in module.named_parameters()}
    client, server = part_shapes(cut, "client"), part_shapes(cut, "server")
    client_work = sum(work[stage.name][0] for stage in cut.stages_of("client", module.stages))
    total, comparisons = (sum(item) for item in zip(*work.values(), strict=True))
    return CutSize(
        sum(count for name, count in trained.items() if name in client),
        sum(count for name, count in trained.items() if name in server),
        sum(math.prod(shape) for shape in client.values()),
        sum(math.prod(shape) for shape in server.values()),
        total,
        comparisons,
        client_work / total,
        shapes[cut.front_stages(module.stages)[-1].name],
        shapes[cut.server_stages(module.stages)[-1].name] if cut.tail else (),
    )


@contextmanager
def _counting() -> Iterator[list[int]]:
    """Count torch's multiplications and comparisons in the block."""
    counted = [0, 0]

    class Counter(TorchFunctionMode):
        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None):  # type: ignore[no-untyped-def]
            output, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
            if name in {"conv2d", "linear"}:
                counted[0] += output[0].numel() * args[1][0].numel()
            elif name == "max_pool2d":
                counted[1] += output.numel() * (int(args[1]) ** 2 - 1)
            elif name == "relu":
                counted[1] += output.numel()
            return output

    with Counter():
        yield counted


@dataclass(frozen=True)
class Traffic:
    """Bytes sent in a whole training, in both directions together."""

    steps: int
    """Smashed data, head angles and targets to the main server, and gradients back."""
    parts: int
    """Client parts to and from the aggregator."""
    predictions: int
    """The later traffic of one prediction for every image."""
    fedavg: int
    """Whole networks to and from all sites, for the same rounds."""
    raw: int
    """All images once, as sent to a data centre."""

    @property
    def split(self) -> int:
        return self.steps + self.parts


def traffic_of(
    cut: Cut, samples: Mapping[str, int], *, rounds: int, epochs: Mapping[str, int]
) -> Traffic:
    """Return the bytes of variants in which every batch goes to and fro (V1, V2).

    `samples`: Images of each site. `epochs`: Passes of each site over its images in a round.
    """
    size = size_of(cut)
    passes = rounds * sum(samples[site] * epochs[site] for site in samples)
    # With a tail, neither targets nor head angles leave; else 2 floats of each.
    label_floats = 0 if cut.tail else 4
    whole = size.client_entries + size.server_entries
    images = sum(samples.values())
    return Traffic(
        steps=passes * (2 * size.floats + label_floats) * FLOAT_BYTES,
        parts=2 * rounds * len(samples) * size.client_entries * FLOAT_BYTES,
        predictions=images * (size.floats + (0 if cut.tail else 4)) * FLOAT_BYTES,
        fedavg=2 * rounds * len(samples) * whole * FLOAT_BYTES,
        raw=images * IMAGE_BYTES,
    )


def frozen_traffic(cut: Cut, samples: Mapping[str, int]) -> int:
    """Return the bytes of the smashed data, head angles and targets of all images, sent once."""
    size = size_of(cut)
    return sum(samples.values()) * (math.prod(size.smashed) + 4) * FLOAT_BYTES
