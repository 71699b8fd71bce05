"""Small bases and contributions to them."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from aggregators import file_digest, write_model
from aggregators.methods.networks import write_network_contribution
from aggregators.models import ClassStatistics, NetworkContribution, StateDict, TensorInfo

TYPES = {"float64": "F64", "float32": "F32", "int64": "I64"}


def make_state_dict(tensors: dict[str, NDArray[Any]], **metadata: str) -> StateDict:
    infos = {
        name: TensorInfo(TYPES[tensor.dtype.name], tensor.shape) for name, tensor in tensors.items()
    }
    return StateDict(tensors, infos, metadata)


def make_base(seed: int = 0, dtype: str = "f8") -> StateDict:
    """Make a network with BatchNorm statistics and a counter."""
    random = np.random.default_rng(seed)
    tensors: dict[str, NDArray[Any]] = {
        "conv.weight": random.normal(size=(3, 4)).astype(dtype),
        "norm.running_mean": random.normal(size=3).astype(dtype),
        "norm.running_var": random.uniform(1, 2, 3).astype(dtype),
        "norm.num_batches_tracked": np.array(5 + seed),
    }
    return make_state_dict(tensors, architecture="small")


def write_base(folder: Path, base: StateDict | None = None) -> Path:
    path = folder / "base.safetensors"
    write_model(base or make_base(), path)
    return path


def contribute(
    base: Path,
    site: int,
    network: StateDict,
    *,
    samples: int = 10,
    holds: Literal["values", "differences"] = "values",
) -> Path:
    """Write a site's contribution next to the base."""
    path = base.with_name(f"{base.name}-{site}.contribution")
    digest = file_digest(base)
    made = NetworkContribution(network, holds, samples, digest, {"epochs": 2, "rate": 0.1})
    write_network_contribution(made, path)
    return path


def difference(network: StateDict, base: StateDict) -> StateDict:
    """Return a network's difference from a base; its counter stays as it is."""
    tensors = {
        name: tensor if tensor.dtype == np.int64 else tensor - base.tensors[name]
        for name, tensor in network.tensors.items()
    }
    return StateDict(tensors, network.infos)


def class_statistics(seed: int, classes: int = 5) -> ClassStatistics:
    """Return statistics of the 4 features of a base; of the last class there are none."""
    random = np.random.default_rng(seed)
    counts = random.integers(5, 50, classes)
    counts[-1] = 0
    means = random.normal(size=(classes, 4)).astype("f4")
    means[-1] = 0
    return ClassStatistics(counts, means, float(random.uniform(0.01, 0.1)))
