"""The files of rounds of networks: contributions and states of optimisers, in safetensors.

A site's contribution:

======================  ================================================================
entry                   content
======================  ================================================================
metadata ``format``     ``poolctl-network-contribution``
metadata ``version``    ``1``
metadata ``base``       SHA-256 of the base's file
metadata ``holds``      ``values`` or ``differences``
metadata ``samples``    number of training samples, decimal
metadata ``settings``   JSON object of texts, numbers, true, false and null
each tensor             as in the base: same name, type and shape
``shared/NAME``         U8, of personalised methods: a bit for each number of the entry NAME, the
                        highest bit first; 1: shared, 0: personal, and then the difference is 0
``statistics/...``      of methods that reply to each site; see `class_statistics`
======================  ================================================================

Numbers in it may be infinite or NaN for `merge`, where each method decides how to treat such a
contribution; rounds refuse it (`check_network_contribution`).

The state of a server optimiser:

======================  ================================================================
entry                   content
======================  ================================================================
metadata ``format``     ``poolctl-optimiser-state``
metadata ``version``    ``1``
metadata ``method``     the method, ``fedadam`` ...
metadata ``network``    SHA-256 of the network's file that was made with the state
metadata ``unit``       root mean square of the first mean update, decimal; ``0`` without
``momentum/NAME``       F64 for an F64 entry NAME of the network, else F32; same shape
``variance/NAME``       the same; not for ``fedavgm``
``reply/...`` and more  of methods that reply to each site, in place of moments; see `replies`
======================  ================================================================
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import ContributionError, ConversionError, FormatError
from aggregators.formats import write_model
from aggregators.formats.dlib_stream import Buffer
from aggregators.formats.registry import decode_file
from aggregators.formats.safetensors_file import (
    TensorsFormat,
    digest_in_metadata,
    header_error,
    require_metadata,
    require_metadata_keys,
)
from aggregators.methods.contract import require_made_for
from aggregators.methods.networks import replies as class_statistics
from aggregators.methods.networks import updates
from aggregators.models import NetworkContribution, OptimiserState, StateDict, TensorInfo

NETWORK_CONTRIBUTION = "poolctl-network-contribution"
MOST_SAMPLES = 2**53
"""The largest number that a float64 weight holds exactly."""

_VERSION = "1"
_CONTRIBUTION_FIELDS = frozenset({"format", "version", "base", "holds", "samples", "settings"})
_LONGEST_SETTINGS = 16 * 1024
_SHARED = "shared/"


def write_network_contribution(contribution: NetworkContribution, path: Path | str) -> str:
    """Write a contribution, whole or not at all, and return the SHA-256 of the file."""
    network = contribution_as_network(contribution)
    try:
        _parse(network)
    except FormatError as error:
        raise ConversionError(
            f"{path}: {error.what}: found {error.actual}, expected {error.expected}"
        ) from error
    return write_model(network, path, format_name="safetensors")


def read_network_contribution(path: Path | str) -> NetworkContribution:
    """Read a contribution file; tensors are loaded when used."""
    return decode_file(decode_network_contribution, path)


def decode_network_contribution(data: Buffer) -> NetworkContribution:
    """Read the bytes of a contribution; see `read_network_contribution`."""
    return _parse(TensorsFormat().decode(data))


def contribution_as_network(contribution: NetworkContribution) -> StateDict:
    """Return the content of a contribution's file."""
    metadata = {
        "format": NETWORK_CONTRIBUTION,
        "version": _VERSION,
        "base": contribution.base_digest,
        "holds": contribution.holds,
        "samples": str(contribution.samples),
        "settings": json.dumps(
            dict(contribution.settings), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ),
    }
    network = contribution.network
    if not contribution.shared and contribution.statistics is None:
        return StateDict(network.tensors, network.infos, metadata)
    tensors, infos = dict(network.tensors), dict(network.infos)
    for name, bits in contribution.shared.items():
        packed = np.packbits(np.ascontiguousarray(bits).reshape(-1))
        tensors[_SHARED + name] = packed
        infos[_SHARED + name] = TensorInfo("U8", packed.shape)
    if contribution.statistics is not None:
        kinds = {"int64": "I64", "float32": "F32", "float64": "F64"}
        for name, values in class_statistics.statistics_entries(contribution.statistics).items():
            tensors[name] = values
            infos[name] = TensorInfo(kinds[values.dtype.name], values.shape)
    return StateDict(tensors, infos, metadata)


def _parse(network: StateDict) -> NetworkContribution:
    metadata = network.metadata
    require_metadata(metadata, "format", NETWORK_CONTRIBUTION)
    require_metadata(metadata, "version", _VERSION)
    require_metadata_keys(metadata, _CONTRIBUTION_FIELDS)
    holds = metadata["holds"]
    if holds not in ("values", "differences"):
        raise header_error("metadata holds", repr(holds)[:80], "values or differences")
    infos = {
        name: info
        for name, info in network.infos.items()
        if not name.startswith((_SHARED, class_statistics.STATISTICS))
    }
    return NetworkContribution(
        network=StateDict(updates.ComputedTensors(infos, network.tensors.__getitem__), infos),
        holds=cast('Literal["values", "differences"]', holds),
        samples=_parse_samples(metadata["samples"]),
        base_digest=digest_in_metadata(metadata, "base"),
        settings=_parse_settings(metadata["settings"]),
        shared=_parse_shared(network, infos),
        statistics=class_statistics.parse_statistics(network),
    )


def _parse_shared(
    network: StateDict, entries: Mapping[str, TensorInfo]
) -> Mapping[str, NDArray[np.bool_]]:
    shared: dict[str, TensorInfo] = {}
    for name, info in network.infos.items():
        if not name.startswith(_SHARED):
            continue
        entry = entries.get(name.removeprefix(_SHARED))
        count = math.prod(entry.shape) if entry else 0
        expected = TensorInfo("U8", ((count + 7) // 8,))
        if entry is None or entry.dtype not in updates.FLOAT_DTYPES or info != expected:
            raise header_error(
                f"tensor {name[:80]!r}",
                f"{info.dtype} {list(info.shape)}",
                "a bit for each number of a floating-point entry"
                + (f", {expected.dtype} {list(expected.shape)}" if entry else " that is there"),
            )
        shared[name.removeprefix(_SHARED)] = entry

    return updates.PackedMasks(
        shared, lambda name: np.asarray(network.tensors[_SHARED + name], dtype=np.uint8)
    )


def _parse_samples(text: str) -> int:
    # isdecimal() is true of the digits of other scripts, too.
    if text.isascii() and text.isdecimal() and len(text) <= 16 and text[0] != "0":
        samples = int(text)
        if samples <= MOST_SAMPLES:
            return samples
    raise header_error("metadata samples", repr(text)[:80], f"a number from 1 to {MOST_SAMPLES}")


def _parse_settings(text: str) -> Mapping[str, Any]:
    expected = "a JSON object of texts, numbers, true, false and null"
    if len(text) > _LONGEST_SETTINGS:
        raise header_error(
            "metadata settings", f"{len(text)} characters", f"at most {_LONGEST_SETTINGS}"
        )
    try:
        settings = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise header_error("metadata settings", repr(text)[:80], expected) from error
    if not isinstance(settings, dict):
        raise header_error("metadata settings", f"a {type(settings).__name__}", expected)
    for name, value in settings.items():
        if not isinstance(value, str | int | float | bool | None):
            raise header_error(f"settings {name[:80]!r}", f"a {type(value).__name__}", expected)
    return settings


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


OPTIMISER_STATE = "poolctl-optimiser-state"
STATE_SUFFIX = ".state"

_STATE_FIELDS = frozenset({"format", "version", "method", "network", "unit"})


def state_path(model_path: Path) -> Path:
    """Return the path of the optimiser's state that belongs to a network file."""
    return model_path.with_name(model_path.name + STATE_SUFFIX)


def decode_optimiser_state(data: Buffer) -> OptimiserState:
    """Read the bytes of a state."""
    network = TensorsFormat().decode(data)
    metadata = network.metadata
    require_metadata(metadata, "format", OPTIMISER_STATE)
    require_metadata(metadata, "version", _VERSION)
    require_metadata_keys(metadata, _STATE_FIELDS)
    for name in network.infos:
        values = np.asarray(network.tensors[name], dtype=np.float64)
        if not np.isfinite(values).all() or (name.startswith("variance/") and (values < 0).any()):
            raise FormatError(
                f"tensor {name[:80]!r}",
                0,
                "numbers that are negative or not finite",
                "finite numbers, and variances of at least 0",
            )
    return OptimiserState(
        moments=StateDict(network.tensors, network.infos),
        method=metadata["method"],
        network_digest=digest_in_metadata(metadata, "network"),
        unit=_parse_unit(metadata["unit"]),
    )


def _parse_unit(text: str) -> float:
    try:
        unit = float(text)
    except ValueError:
        unit = -1.0
    if not 0 <= unit < math.inf:
        raise header_error("metadata unit", repr(text)[:80], "a number of at least 0")
    return unit


def state_as_network(state: OptimiserState) -> StateDict:
    """Return the content of a state's file."""
    metadata = {
        "format": OPTIMISER_STATE,
        "version": _VERSION,
        "method": state.method,
        "network": state.network_digest,
        "unit": repr(state.unit),
    }
    return StateDict(state.moments.tensors, state.moments.infos, metadata)


LARGEST_DIFFERENCE = 1e6
"""Of a weight. Trained weights are around 1; sums of some more than this leave float32 useless."""

_NUMBERS_AT_ONCE = 1 << 20
_ROUNDING = 1e-5
"""Relative error of a variance that shrinks to 0: (v - b) + b in float32."""


def check_network_contribution(
    contribution: NetworkContribution,
    base: StateDict,
    *,
    base_digest: str,
    settings: Mapping[str, Any],
    replies: bool = False,
) -> None:
    """Raise unless a contribution holds a usable difference from the base of its round.

    The site that sends it may lie. A contribution that passes can still be wrong, but it cannot
    end the round, or leave a result that no network can have.

    Parameters
    ----------
    base : StateDict
        The network from which the site had to start.
    base_digest : str
        SHA-256 of its file.
    settings : mapping
        The result of `LocalTraining.shared` for the round.
    replies : bool
        Whether the round's method replies to each site, and needs statistics for that.

    Raises `ContributionError`: it was made from another base or with other settings; it holds
    values, infinities, NaN, differences above 1e6, or only ones below the spacing of the base's
    numbers; a running variance would become negative; or its statistics are not those that the
    round wants, and `IncompatibleModelsError`: its entries are not those of the base.
    """
    require_made_for((base_digest, contribution.base_digest), (settings, contribution.settings))
    if contribution.holds != "differences":
        raise ContributionError(f"holds {contribution.holds}, expected differences from the base")
    infos = base.infos
    updates.require_same_entries("the base", infos, "the contribution", contribution.network.infos)
    class_statistics.check_statistics(contribution.statistics, base, expected=replies)
    changed = False
    for name, info in infos.items():
        difference = contribution.network.tensors[name].reshape(-1)
        start = base.tensors[name].reshape(-1)
        for first in range(0, difference.size, _NUMBERS_AT_ONCE):
            part = difference[first : first + _NUMBERS_AT_ONCE]
            before: Any = start[first : first + _NUMBERS_AT_ONCE]
            _check_numbers(name, info, part, before)
            if info.dtype in updates.FLOAT_DTYPES:
                changed = changed or bool((before + part != before).any())
        personal = contribution.shared.get(name)
        if personal is not None and bool(difference[~personal.reshape(-1)].any()):
            raise ContributionError(f"entry {name!r} holds personal numbers, expected zeros there")
    if not changed:
        # A site that changes nothing takes no part, but makes the sum that of one site fewer.
        raise ContributionError(
            "every difference is 0, or lost next to the base's number; expected those of a trained "
            "network"
        )


def _check_numbers(name: str, info: TensorInfo, difference: Any, start: Any) -> None:
    """Refuse some of an entry's numbers; `difference` and `start` have shape (numbers,)."""
    if info.dtype not in updates.FLOAT_DTYPES:
        return
    if not np.isfinite(difference).all():
        raise ContributionError(
            f"entry {name!r} ({info.dtype}) holds infinities or NaN, expected finite numbers; the "
            "training may have diverged"
        )
    largest = float(np.abs(difference).max(initial=0.0))
    if largest > LARGEST_DIFFERENCE:
        raise ContributionError(
            f"entry {name!r} changes by {largest:.3g}, expected at most {LARGEST_DIFFERENCE:g}; "
            "the training may have diverged"
        )
    if name.endswith("running_var"):
        lowest = float((start + difference + _ROUNDING * np.abs(start)).min(initial=0.0))
        if lowest < 0:
            raise ContributionError(
                f"entry {name!r} would become {lowest:.3g}, expected a variance of at least 0"
            )
