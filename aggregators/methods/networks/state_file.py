"""The file of a server optimiser's state: a safetensors container.

======================  ================================================================
entry                   content
======================  ================================================================
metadata ``format``     ``poolctl-optimiser-state``
metadata ``version``    ``1``
metadata ``method``     the method, ``fedadam`` ...
metadata ``network``    SHA-256 of the network's file that was made with the state
``momentum/NAME``       F64 for an F64 entry NAME of the network, else F32; same shape
``variance/NAME``       the same; not for ``fedavgm``
======================  ================================================================
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from aggregators.errors import FormatError
from aggregators.formats import write_model
from aggregators.formats.dlib_stream import Buffer
from aggregators.formats.safetensors_file import (
    digest_in_metadata,
    require_metadata,
    require_metadata_keys,
)
from aggregators.formats.tensors import TensorsFormat
from aggregators.models import OptimiserState, StateDict

OPTIMISER_STATE = "poolctl-optimiser-state"
STATE_SUFFIX = ".state"

_VERSION = "1"
_FIELDS = frozenset({"format", "version", "method", "network"})


def state_path(model_path: Path) -> Path:
    """Return the path of the optimiser's state that belongs to a network file."""
    return model_path.with_name(model_path.name + STATE_SUFFIX)


def write_optimiser_state(state: OptimiserState, path: Path) -> str:
    """Write a state, whole or not at all, and return the SHA-256 of the file."""
    return write_model(state_as_network(state), path, format_name="safetensors")


def decode_optimiser_state(data: Buffer) -> OptimiserState:
    """Read the bytes of a state.

    Raises
    ------
    FormatError
        The file is not a state, its metadata are invalid, or a number is not finite.
    """
    network = TensorsFormat().decode(data)
    metadata = network.metadata
    require_metadata(metadata, "format", OPTIMISER_STATE)
    require_metadata(metadata, "version", _VERSION)
    require_metadata_keys(metadata, _FIELDS)
    for name in network.infos:
        values = np.asarray(network.tensors[name], dtype=np.float64)
        if not np.isfinite(values).all() or (name.startswith("variance/") and (values < 0).any()):
            raise FormatError(
                f"tensor {name[:80]!r}",
                offset=0,
                found="numbers that are negative or not finite",
                expected="finite numbers, and variances of at least 0",
            )
    return OptimiserState(
        moments=StateDict(network.tensors, network.infos),
        method=metadata["method"],
        network_digest=digest_in_metadata(metadata, "network"),
    )


def state_as_network(state: OptimiserState) -> StateDict:
    """Return the content of a state's file."""
    metadata = {
        "format": OPTIMISER_STATE,
        "version": _VERSION,
        "method": state.method,
        "network": state.network_digest,
    }
    return StateDict(state.moments.tensors, state.moments.infos, metadata)
