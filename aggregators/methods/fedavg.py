"""FedAvg: the weighted mean of networks' parameters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import IncompatibleModelsError
from aggregators.methods.contract import Combined, NoOptions, Progress
from aggregators.methods.sub_models import SubModel, SubModels
from aggregators.models import Model, ModelKind, StateDict, TensorInfo

_AVERAGED_DTYPES = frozenset({"F64", "F32", "F16", "BF16"})
_ARCHITECTURE_FIELDS = ("architecture", "architecture_version")


@dataclass(frozen=True)
class FedAvg:
    """``w = sum(n_k w_k) / sum(n_k)`` for every floating-point entry, in float64.

    Weights are usually numbers of training samples. BatchNorm statistics are averaged like
    other entries. Entries that are not floating-point (counters, masks) come from the input with
    the lowest digest, with a warning if the inputs differ in them. The result is rounded once,
    to the stored type.

    Entries are computed when they are read, so only one is in memory at a time. The files of
    the inputs must stay in place until the result is written.

    Source: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from
    Decentralized Data".
    """

    name: ClassVar[str] = "fedavg"
    version: ClassVar[int] = 1
    summary: ClassVar[str] = "weighted mean of networks' parameters"
    kind: ClassVar[ModelKind] = "network"
    options_type: type[NoOptions] = NoOptions
    output_formats: ClassVar[tuple[str, ...]] = ("safetensors",)
    format_hint: ClassVar[str] = ""

    def merge_key(self, fingerprint: Mapping[str, Any]) -> str | None:
        if fingerprint.get("kind") != self.kind:
            return None
        layout = {
            "tensors": fingerprint["tensors"],
            **{field: fingerprint.get(field) for field in _ARCHITECTURE_FIELDS},
        }
        text = json.dumps(layout, sort_keys=True, separators=(",", ":"))
        return "layout-" + hashlib.sha256(text.encode()).hexdigest()

    def combine(
        self, sub_models: SubModels[Model], _options: NoOptions, _progress: Progress, /
    ) -> Combined:
        networks = sub_models.narrowed(StateDict)
        _require_same_layout(networks)
        if networks.only is not None:
            return Combined(networks.only.model)
        averaged = StateDict(
            tensors=_AveragedTensors(networks),
            infos=dict(networks.in_sum_order[0].model.infos),
            metadata=_common_metadata(networks),
        )
        return Combined(averaged, _differing_counters(networks))


class _AveragedTensors(Mapping[str, NDArray[np.generic]]):
    """The entries of the mean, computed when read."""

    def __init__(self, networks: SubModels[StateDict]) -> None:
        self._networks = networks
        self._infos = networks.in_sum_order[0].model.infos

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        info = self._infos[name]
        first = self._networks.in_sum_order[0].model
        if info.dtype not in _AVERAGED_DTYPES:
            return first.tensors[name]
        return _mean_entry(self._networks, name)


def _mean_entry(networks: SubModels[StateDict], name: str) -> NDArray[np.generic]:
    total: NDArray[np.float64] | None = None
    stored_as: np.dtype[np.generic] = np.dtype(np.float32)
    for network in networks.in_sum_order:
        values = network.model.tensors[name]
        stored_as = values.dtype
        weighted = values.astype(np.float64)
        _require_numbers(weighted, name, network)
        weighted *= network.weight
        if total is None:
            total = weighted
        else:
            # Masks hold infinities: equal ones stay, opposite ones give NaN.
            with np.errstate(invalid="ignore"):
                total += weighted
    assert total is not None
    total /= networks.total_weight
    _require_numbers(total, name, networks.first)
    return total.astype(stored_as)


def _require_numbers(values: NDArray[np.float64], name: str, network: SubModel[StateDict]) -> None:
    if bool(np.isnan(values).any()):
        raise IncompatibleModelsError(
            f"entry {name!r}",
            "numbers",
            "NaN",
            first_name="a valid network",
            other_name=network.name,
            hint="its training may have diverged",
        )


def _common_metadata(networks: SubModels[StateDict]) -> dict[str, str]:
    """Return the metadata that all inputs share."""
    first = networks.in_sum_order[0].model.metadata
    return {
        key: first[key]
        for key in sorted(first)
        if all(network.model.metadata.get(key) == first[key] for network in networks.given)
    }


def _differing_counters(networks: SubModels[StateDict]) -> tuple[str, ...]:
    chosen = networks.in_sum_order[0]
    names = [
        name
        for name, info in chosen.model.infos.items()
        if info.dtype not in _AVERAGED_DTYPES
        and not all(
            np.array_equal(network.model.tensors[name], chosen.model.tensors[name])
            for network in networks.in_sum_order[1:]
        )
    ]
    if not names:
        return ()
    listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return (f"entries that are not floating-point differ; kept as in {chosen.name}: {listed}",)


def _require_same_layout(networks: SubModels[StateDict]) -> None:
    first = networks.first
    for other in networks.given[1:]:
        difference = _first_difference(first.model, other.model)
        if difference is not None:
            field, mine, theirs = difference
            raise IncompatibleModelsError(
                field, mine, theirs, first_name=first.name, other_name=other.name
            )


def _first_difference(first: StateDict, other: StateDict) -> tuple[str, str, str] | None:
    for field in _ARCHITECTURE_FIELDS:
        mine, theirs = first.metadata.get(field), other.metadata.get(field)
        if mine != theirs:
            return field, mine or "not stated", theirs or "not stated"
    for name in [*first.infos, *(name for name in other.infos if name not in first.infos)]:
        mine_info, their_info = first.infos.get(name), other.infos.get(name)
        if mine_info != their_info:
            return f"entry {name!r}", _described(mine_info), _described(their_info)
    return None


def _described(info: TensorInfo | None) -> str:
    if info is None:
        return "absent"
    return f"{info.dtype} [{', '.join(str(size) for size in info.shape)}]"
