"""What networks must agree in to be combined."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aggregators.errors import IncompatibleModelsError
from aggregators.methods.contract import AggregationMethod, OptionsT
from aggregators.models import StateDict, TensorInfo

FLOAT_DTYPES = frozenset({"F64", "F32", "F16", "BF16"})
ARCHITECTURE_FIELDS = ("architecture", "architecture_version")


class NetworkMethod(AggregationMethod[OptionsT]):
    """Base of the methods for networks, whose rounds all collect network updates."""

    kind = "network"
    contribution = "network-update"
    output_formats = ("safetensors",)

    def merge_key(self, fingerprint: Mapping[str, Any]) -> str | None:
        if fingerprint.get("kind") != self.kind:
            return None
        layout = {
            "tensors": fingerprint["tensors"],
            **{field: fingerprint.get(field) for field in ARCHITECTURE_FIELDS},
        }
        text = json.dumps(layout, sort_keys=True, separators=(",", ":"))
        return "layout-" + hashlib.sha256(text.encode()).hexdigest()


def require_same_architecture(networks: Sequence[tuple[str, StateDict]]) -> None:
    """Raise `IncompatibleModelsError` if (name, network) differ in architecture from the first."""
    first_name, first = networks[0]
    for other_name, other in networks[1:]:
        for field in ARCHITECTURE_FIELDS:
            mine, theirs = first.metadata.get(field), other.metadata.get(field)
            if mine != theirs:
                raise IncompatibleModelsError(
                    field,
                    mine or "not stated",
                    theirs or "not stated",
                    first_name=first_name,
                    other_name=other_name,
                )


def require_same_entries(
    first_name: str,
    first: Mapping[str, TensorInfo],
    other_name: str,
    other: Mapping[str, TensorInfo],
) -> None:
    """Raise `IncompatibleModelsError` for the first entry in which two networks differ."""
    for name in [*first, *(name for name in other if name not in first)]:
        mine, theirs = first.get(name), other.get(name)
        if mine != theirs:
            raise IncompatibleModelsError(
                f"entry {name!r}",
                _described(mine),
                _described(theirs),
                first_name=first_name,
                other_name=other_name,
            )


def common_metadata(networks: Iterable[StateDict]) -> dict[str, str]:
    """Return the metadata that all networks share."""
    shared: dict[str, str] | None = None
    for network in networks:
        found = network.metadata
        shared = {
            key: value
            for key, value in (found if shared is None else shared).items()
            if found.get(key) == value
        }
    return dict(sorted((shared or {}).items()))


def _described(info: TensorInfo | None) -> str:
    if info is None:
        return "absent"
    return f"{info.dtype} [{', '.join(str(size) for size in info.shape)}]"
