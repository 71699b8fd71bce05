"""Pruning of networks: the weights of least magnitude become zero; the size that remains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import OptionError
from aggregators.models import Float64, StateDict

Storage = Literal["dense", "mask", "index"]

_LINEAR, _CONVOLUTION = 2, (3, 4, 5)
_FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")


def weights_of_layers(network: StateDict, layers: Literal["linear", "convolution"]) -> list[str]:
    """Return the names of the weights of linear layers (2-D) or convolutions (3-D to 5-D)."""
    wanted = (_LINEAR,) if layers == "linear" else _CONVOLUTION
    return [
        name
        for name, info in network.infos.items()
        if name.endswith("weight") and info.dtype in _FLOAT_DTYPES and len(info.shape) in wanted
    ]


def prune(
    network: StateDict,
    names: Sequence[str],
    fraction: float,
    scope: Literal["layer", "global"] = "layer",
) -> StateDict:
    """Return the network with its weights of least magnitude (L1) set to zero.

    Parameters
    ----------
    names : sequence of str
        Entries to prune; `weights_of_layers` names those of linear layers or convolutions.
    fraction : float
        Of the weights, 0 to 1; rounded to a whole number of weights. Of equal magnitudes, those
        that come first are set to zero.
    scope : str
        Whether each entry loses this fraction, or all entries together.

    Raises
    ------
    OptionError
        The fraction is out of range, or the network has no such floating-point entry.

    Notes
    -----
    Source: chapter 4 of the thesis on efficient federated gaze estimation; Li et al. 2017,
    "Pruning Filters for Efficient ConvNets", for single weights.
    """
    if not 0 <= fraction <= 1:
        raise OptionError(f"fraction: found {fraction}, expected 0 to 1")
    for name in names:
        if name not in network.infos or network.infos[name].dtype not in _FLOAT_DTYPES:
            raise OptionError(f"found no floating-point entry {name!r} in the network")
    pruned: dict[str, NDArray[np.generic]] = dict(network.tensors)
    groups = [list(names)] if scope == "global" else [[name] for name in names]
    for group in groups:
        if not group:
            continue
        flat = [np.array(network.tensors[name]).reshape(-1) for name in group]
        magnitudes: Float64 = np.abs(np.concatenate(flat).astype(np.float64))
        gone = np.argsort(magnitudes, kind="stable")[: round(fraction * len(magnitudes))]
        kept = np.ones(len(magnitudes), dtype=bool)
        kept[gone] = False
        ends = np.cumsum([len(each) for each in flat])
        for name, values, part in zip(group, flat, np.split(kept, ends[:-1]), strict=True):
            values[~part] = 0
            pruned[name] = values.reshape(network.infos[name].shape)
    return StateDict(pruned, network.infos, network.metadata)


def storage_bytes(tensor: NDArray[np.generic]) -> dict[Storage, int]:
    """Return the bytes of an entry stored dense, with a bit mask, or with int32 indices.

    The smallest is the one to store: a bit mask from about 3 % zeros of float32 on, indices
    from about 97 %.
    """
    values = int(np.count_nonzero(tensor)) * tensor.itemsize
    return {
        "dense": tensor.nbytes,
        "mask": (tensor.size + 7) // 8 + values,
        "index": int(np.count_nonzero(tensor)) * 4 + values,
    }


def smallest_bytes(network: StateDict) -> int:
    """Return the bytes of a network with each entry stored in its smallest form."""
    return sum(min(storage_bytes(network.tensors[name]).values()) for name in network.infos)


def coordinate_bytes(tensor: NDArray[np.generic]) -> int:
    """Return the bytes of an entry as a sparse COO tensor of torch: int64 for each dimension."""
    return int(np.count_nonzero(tensor)) * (8 * tensor.ndim + tensor.itemsize)
