"""Networks between torch and safetensors files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aggregators.errors import AggregatorError
from aggregators.formats import read_model
from aggregators.models import StateDict, TensorInfo
from site_agent.errors import InvalidInputError
from site_agent.networks.architectures import find_architecture

if TYPE_CHECKING:
    from torch import nn

_DTYPES = {"float32": "F32", "float64": "F64", "int64": "I64"}


def new_network(architecture: str, seed: int = 0) -> StateDict:
    """Return a network with random initial parameters; equal seeds give equal parameters."""
    import torch

    found = find_architecture(architecture)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = found.build()
    return from_module(module, architecture)


def from_module(
    module: nn.Module, architecture: str, metadata: Mapping[str, str] | None = None
) -> StateDict:
    """Return a module's parameters and buffers, with its architecture in the metadata."""
    found = find_architecture(architecture)
    tensors = {
        name: np.array(value.detach().cpu().numpy(), order="C")
        for name, value in module.state_dict().items()
    }
    infos = {
        name: TensorInfo(_DTYPES[str(value.dtype)], value.shape) for name, value in tensors.items()
    }
    texts = {"architecture": found.name, "architecture_version": str(found.version)}
    return StateDict(tensors, infos, {**(metadata or {}), **texts})


def to_module(network: StateDict, name: str = "the network") -> nn.Module:
    """Return the torch module of a network, in evaluation mode, on the CPU.

    Parameters
    ----------
    name : str
        How errors call the network.

    Raises
    ------
    InvalidInputError
        The metadata name no known architecture, or the entries do not fit it.
    """
    import torch

    if "architecture" not in network.metadata:
        raise InvalidInputError(
            f"{name}: the metadata name no architecture; "
            "networks that poolctl trains have the entry `architecture`"
        )
    try:
        found = find_architecture(
            network.metadata["architecture"], network.metadata.get("architecture_version")
        )
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error
    module = found.build()
    for key, expected in module.state_dict().items():
        given = network.infos.get(key)
        if given is None or tuple(given.shape) != tuple(expected.shape):
            raise InvalidInputError(
                f"{name}: entry {key!r} of {found.name}: found "
                f"{'none' if given is None else list(given.shape)}, expected {list(expected.shape)}"
            )
    if extra := sorted(set(network.infos) - set(module.state_dict())):
        raise InvalidInputError(f"{name}: {found.name} has no entry {extra[0]!r}")
    values = {key: torch.from_numpy(np.array(network.tensors[key])) for key in network.infos}
    module.load_state_dict(values)
    # Convolutions and pooling are a third faster with the channels last.
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module.eval()


def read_network(path: Path | str) -> StateDict:
    """Read a network file.

    Raises
    ------
    InvalidInputError
        The file holds no network.
    """
    path = Path(path)
    try:
        network = read_model(path)
    except AggregatorError as error:
        raise InvalidInputError(str(error)) from error
    if not isinstance(network, StateDict):
        raise InvalidInputError(f"{path}: found no network; expected a .safetensors file")
    return network
