"""Pruning of networks: the weights of least magnitude become zero; the size that remains."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import OptionError
from aggregators.formats.safetensors_file import ITEM_BYTES
from aggregators.formats.sparse_tensors import Storage, count_kept, smallest_form, storage_bytes
from aggregators.models import Float64, StateDict

_LINEAR, _CONVOLUTION = 2, (3, 4, 5)
_FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")


def weights_of_layers(network: StateDict, layers: Literal["linear", "convolution"]) -> list[str]:
    """Return the names of the weights of linear layers (2-D) or convolutions (3-D to 5-D)."""
    dimensions = (_LINEAR,) if layers == "linear" else _CONVOLUTION
    return [
        name
        for name, info in network.infos.items()
        if name.endswith("weight") and info.dtype in _FLOAT_DTYPES and len(info.shape) in dimensions
    ]


def prune(network: StateDict, names: Sequence[str], fraction: float) -> StateDict:
    """Return the network with the weights of least magnitude (L1) of each entry set to zero.

    `names`: Entries to prune; `weights_of_layers` names those of linear layers or convolutions.
    `fraction`: Of the weights, 0 to 1; rounded to a whole number of weights. Of equal magnitudes,
    those that come first are set to zero.

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
    for name in names:
        values = np.array(network.tensors[name]).reshape(-1)
        magnitudes: Float64 = np.abs(values.astype(np.float64))
        # Stable: of equal magnitudes the first go, so the same network gives the same bytes
        # everywhere.
        values[np.argsort(magnitudes, kind="stable")[: round(fraction * len(values))]] = 0
        pruned[name] = values.reshape(network.infos[name].shape)
    return StateDict(pruned, network.infos, network.metadata)


@dataclass(frozen=True)
class EntrySize:
    """The size of one entry of a network in three kinds of files, without headers.

    Attributes
    ----------
    name : str
    numbers, kept : int
        Its numbers, and those of them that are not zero.
    form : str
        The smallest form: ``dense``, ``mask`` (a bit for each number) or ``index`` (int32).
    dense_bytes : int
        In a safetensors file.
    coordinate_bytes : int
        In a file of torch that stores the weights of linear layers and convolutions as sparse COO
        tensors: an int64 for each dimension of each number that is not zero. Other entries are
        dense there.
    stored_bytes : int
        In a ``poolctl-sparse`` file, which stores the entry in its smallest form.
    """

    name: str
    numbers: int
    kept: int
    form: Storage
    dense_bytes: int
    coordinate_bytes: int
    stored_bytes: int


def entry_sizes(network: StateDict) -> list[EntrySize]:
    """Return the size of each entry of a network, in the order of their names."""
    weights = {*weights_of_layers(network, "linear"), *weights_of_layers(network, "convolution")}
    entries = []
    for name, info in sorted(network.infos.items()):
        numbers, item_bytes = math.prod(info.shape), ITEM_BYTES[info.dtype]
        kept = count_kept(network, name)
        sizes = storage_bytes(numbers, kept, item_bytes)
        form = smallest_form(sizes)
        coordinates = kept * (8 * len(info.shape) + item_bytes)
        entries.append(
            EntrySize(
                name=name,
                numbers=numbers,
                kept=kept,
                form=form,
                dense_bytes=sizes["dense"],
                coordinate_bytes=coordinates if name in weights else sizes["dense"],
                stored_bytes=sizes[form],
            )
        )
    return entries
