"""What split training costs beside FedAvg: parameters, work and bytes, before anything is trained.

All sizes follow from the cut and the numbers of images and rounds. Real messages have headers in
besides.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from site_agent.split.cuts import Cut, build_network, part_shapes

FLOAT_BYTES = 4
IMAGE_BYTES = 36 * 60
"""Of a grey eye patch, one byte a pixel."""


@dataclass(frozen=True)
class CutSize:
    """How large the parts of a cut are, and what passes between them.

    Attributes
    ----------
    client_parameters, server_parameters : int
        Trained numbers of each part.
    client_entries, server_entries : int
        All numbers of each part, with the statistics of BatchNorm.
    multiplications, comparisons : int
        Of a forward pass of the whole network on one image: of dense layers and convolutions, and
        of ReLU and max-pooling. Inference on shares (MPC) takes a triple and a message for each.
    client_share : float
        Of all multiplications, what the client makes.
    smashed : tuple of int
        Shape of the smashed data of an image.
    returned : tuple of int
        Shape of what the server gives back to the client's tail; empty without one.
    """

    client_parameters: int
    server_parameters: int
    client_entries: int
    server_entries: int
    multiplications: int
    comparisons: int
    client_share: float
    smashed: tuple[int, ...]
    returned: tuple[int, ...]

    @property
    def floats(self) -> int:
        """Floats of an image that go one way in one forward pass, both cuts together."""
        return math.prod(self.smashed) + (math.prod(self.returned) if self.returned else 0)


@cache
def size_of(cut: Cut) -> CutSize:
    """Return the sizes of a cut, found by running it on one empty patch."""
    import torch

    module = build_network(cut.architecture).eval()
    work: dict[str, tuple[int, int]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    with torch.inference_mode():
        x, head = torch.zeros(1, 1, 36, 60), torch.zeros(1, 2)
        for stage in module.stages:
            with _counting() as counted:
                x = module.run_stages([stage], x, head)
            work[stage.name], shapes[stage.name] = (counted[0], counted[1]), tuple(x.shape[1:])
    trained = {name: each.numel() for name, each in module.named_parameters()}
    client, server = part_shapes(cut, "client"), part_shapes(cut, "server")
    own = sum(work[stage.name][0] for stage in cut.stages_of("client", module.stages))
    total, comparisons = (sum(each) for each in zip(*work.values(), strict=True))
    return CutSize(
        sum(count for name, count in trained.items() if name in client),
        sum(count for name, count in trained.items() if name in server),
        sum(math.prod(shape) for shape in client.values()),
        sum(math.prod(shape) for shape in server.values()),
        total,
        comparisons,
        own / total,
        shapes[cut.front_stages(module.stages)[-1].name],
        shapes[cut.server_stages(module.stages)[-1].name] if cut.tail else (),
    )


@contextmanager
def _counting() -> Iterator[list[int]]:
    """Count the multiplications and the comparisons of what torch computes in the block."""
    from torch.overrides import TorchFunctionMode

    counted = [0, 0]

    class Counter(TorchFunctionMode):
        def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None):  # type: ignore[no-untyped-def]
            found, name = func(*args, **(kwargs or {})), getattr(func, "__name__", "")
            if name in {"conv2d", "linear"}:
                counted[0] += found[0].numel() * args[1][0].numel()
            elif name == "max_pool2d":
                counted[1] += found.numel() * (int(args[1]) ** 2 - 1)
            elif name == "relu":
                counted[1] += found.numel()
            return found

    with Counter():
        yield counted


@dataclass(frozen=True)
class Traffic:
    """Bytes that move in a whole training, both directions together.

    `steps`: Smashed data, head angles and targets to the main server, and gradients back. `parts`:
    Client parts to and from the aggregator. `predictions`: What one prediction of every image would
    move afterwards. `fedavg`: Whole networks to and from all sites, for the same rounds. `raw`: All
    images once, which is what a data centre would get.
    """

    steps: int
    parts: int
    predictions: int
    fedavg: int
    raw: int

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
    beside = 0 if cut.tail else 4
    whole = size.client_entries + size.server_entries
    images = sum(samples.values())
    return Traffic(
        steps=passes * (2 * size.floats + beside) * FLOAT_BYTES,
        parts=2 * rounds * len(samples) * size.client_entries * FLOAT_BYTES,
        predictions=images * (size.floats + (0 if cut.tail else 4)) * FLOAT_BYTES,
        fedavg=2 * rounds * len(samples) * whole * FLOAT_BYTES,
        raw=images * IMAGE_BYTES,
    )


def frozen_traffic(cut: Cut, samples: Mapping[str, int]) -> int:
    """Return the bytes of the smashed data, head angles and targets of all images, sent once."""
    size = size_of(cut)
    return sum(samples.values()) * (math.prod(size.smashed) + 4) * FLOAT_BYTES
