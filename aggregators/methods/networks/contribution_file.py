"""The file of a site's contribution to a network: a safetensors container.

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
======================  ================================================================

Numbers may be infinite or NaN: each method decides what becomes of such a contribution.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from aggregators.errors import ConversionError, FormatError
from aggregators.formats import write_model
from aggregators.formats.dlib_stream import Buffer
from aggregators.formats.registry import decode_named, load_bytes
from aggregators.formats.safetensors_file import (
    digest_in_metadata,
    header_error,
    require_metadata,
    require_metadata_keys,
)
from aggregators.formats.tensors import TensorsFormat
from aggregators.models import NetworkContribution, StateDict

NETWORK_CONTRIBUTION = "poolctl-network-contribution"
MOST_SAMPLES = 2**53
"""The largest number that a float64 weight holds exactly."""

_VERSION = "1"
_FIELDS = frozenset({"format", "version", "base", "holds", "samples", "settings"})
_LONGEST_SETTINGS = 16 * 1024


def write_network_contribution(contribution: NetworkContribution, path: Path | str) -> str:
    """Write a contribution, whole or not at all, and return the SHA-256 of the file.

    Raises
    ------
    ConversionError
        `read_network_contribution` would refuse the file.
    """
    network = contribution_as_network(contribution)
    try:
        _parse(network)
    except FormatError as error:
        raise ConversionError(
            f"{path}: {error.what}: found {error.found}, expected {error.expected}"
        ) from error
    return write_model(network, path, format_name="safetensors")


def read_network_contribution(path: Path | str) -> NetworkContribution:
    """Read a contribution file; tensors are loaded when used.

    Raises
    ------
    FormatError
        The file is not a contribution, or its metadata are missing or invalid.
    """
    path = Path(path)
    with path.open("rb") as file:
        data = load_bytes(file)
    return decode_named(decode_network_contribution, data, path)


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
    return StateDict(contribution.network.tensors, contribution.network.infos, metadata)


def _parse(network: StateDict) -> NetworkContribution:
    metadata = network.metadata
    require_metadata(metadata, "format", NETWORK_CONTRIBUTION)
    require_metadata(metadata, "version", _VERSION)
    require_metadata_keys(metadata, _FIELDS)
    holds = metadata["holds"]
    if holds not in ("values", "differences"):
        raise header_error("metadata holds", repr(holds)[:80], "values or differences")
    return NetworkContribution(
        network=StateDict(network.tensors, network.infos),
        holds=cast('Literal["values", "differences"]', holds),
        samples=_checked_samples(metadata["samples"]),
        base_digest=digest_in_metadata(metadata, "base"),
        settings=_checked_settings(metadata["settings"]),
    )


def _checked_samples(text: str) -> int:
    # isdecimal() is true of the digits of other scripts, too.
    if text.isascii() and text.isdecimal() and len(text) <= 16 and text[0] != "0":
        samples = int(text)
        if samples <= MOST_SAMPLES:
            return samples
    raise header_error("metadata samples", repr(text)[:80], f"a number from 1 to {MOST_SAMPLES}")


def _checked_settings(text: str) -> Mapping[str, Any]:
    wanted = "a JSON object of texts, numbers, true, false and null"
    if len(text) > _LONGEST_SETTINGS:
        raise header_error(
            "metadata settings", f"{len(text)} characters", f"at most {_LONGEST_SETTINGS}"
        )
    try:
        settings = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise header_error("metadata settings", repr(text)[:80], wanted) from error
    if not isinstance(settings, dict):
        raise header_error("metadata settings", f"a {type(settings).__name__}", wanted)
    for name, value in settings.items():
        if not isinstance(value, str | int | float | bool | None):
            raise header_error(f"settings {name[:80]!r}", f"a {type(value).__name__}", wanted)
    return settings


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
