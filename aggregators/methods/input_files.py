"""Reading and writing all that methods combine: models, contributions, optimiser states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from aggregators.formats import encode_model, read_model
from aggregators.formats.dlib_stream import Buffer
from aggregators.formats.registry import HEAD_BYTES, decode_named, load_bytes
from aggregators.formats.safetensors_file import recognises_safetensors
from aggregators.methods.networks.contribution_file import (
    NETWORK_CONTRIBUTION,
    contribution_as_network,
    decode_network_contribution,
)
from aggregators.methods.networks.state_file import (
    OPTIMISER_STATE,
    decode_optimiser_state,
    state_as_network,
)
from aggregators.methods.refitting.contribution_file import (
    LEAF_CONTRIBUTION,
    decode_contribution,
    encode_contribution,
)
from aggregators.models import LeafContribution, MergeInput, NetworkContribution, OptimiserState

_DECODERS: Mapping[str, Callable[[Buffer], MergeInput]] = {
    LEAF_CONTRIBUTION: decode_contribution,
    NETWORK_CONTRIBUTION: decode_network_contribution,
    OPTIMISER_STATE: decode_optimiser_state,
}
"""By the ``format`` in the metadata of a safetensors file."""


def read_input(path: Path) -> MergeInput:
    """Read a model file, a contribution or an optimiser state.

    Raises
    ------
    FormatError
        As `read_model`.
    """
    if not path.is_file():
        return read_model(path)
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        decode = _find_decoder(head)
        if decode is None:
            return read_model(path)
        data = load_bytes(file)
    return decode_named(decode, data, path)


def encode_input(item: MergeInput) -> bytes:
    """Return the bytes of an input's file in its default format."""
    if isinstance(item, LeafContribution):
        return encode_contribution(item)
    if isinstance(item, NetworkContribution):
        return encode_model(contribution_as_network(item))
    if isinstance(item, OptimiserState):
        return encode_model(state_as_network(item))
    return encode_model(item)


def encoded_digest(item: MergeInput) -> str:
    """Return the SHA-256 of an input's file in its default format."""
    return sha256(encode_input(item)).hexdigest()


def _find_decoder(head: bytes) -> Callable[[Buffer], MergeInput] | None:
    if not recognises_safetensors(head):
        return None
    return next(
        (decode for name, decode in _DECODERS.items() if f'"format":"{name}"'.encode() in head),
        None,
    )
