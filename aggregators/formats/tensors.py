"""State dicts of networks in safetensors files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import ConversionError, FormatError
from aggregators.formats.dlib_stream import Buffer
from aggregators.formats.safetensors_file import (
    NUMPY_TYPES,
    Contents,
    lay_out,
    parse_safetensors,
    recognises_safetensors,
)
from aggregators.models import Float32, Model, StateDict, TensorInfo


class TensorsFormat:
    """The entry in `FORMATS`."""

    name = "safetensors"
    suffixes = (".safetensors",)
    summary = "parameters of a network (safetensors)"
    exact = True

    def recognises(self, head: bytes) -> bool:
        # Forests, contributions and states of optimisers are other things in the same container.
        return recognises_safetensors(head) and b'"format":"poolctl-' not in head

    def holds(self, model: Model) -> bool:
        return isinstance(model, StateDict)

    def decode(self, data: Buffer) -> StateDict:
        contents = parse_safetensors(data)
        for name in contents.entries:
            check_entry(name, contents)
        infos = {name: entry.info for name, entry in contents.entries.items()}
        return StateDict(
            tensors=StoredTensors(contents),
            infos=MappingProxyType(infos),
            metadata=MappingProxyType(dict(contents.metadata)),
        )

    def encode(self, model: Model) -> Iterator[Buffer]:
        if not isinstance(model, StateDict):
            raise ConversionError(
                f"{self.name} holds the parameters of a network, not a {type(model).__name__}"
            )
        require_complete(model)
        header, names = lay_out(model.infos, model.metadata)
        return _encode_laid_out(model, header, names)


def require_complete(model: StateDict) -> None:
    """Raise `ConversionError` unless tensors and infos have the same names."""
    if set(model.tensors) != set(model.infos):
        odd = sorted(set(model.tensors) ^ set(model.infos))[0]
        raise ConversionError(
            f"tensor {odd!r}: found in one of tensors and infos, expected in both"
        )


def check_entry(name: str, contents: Contents) -> None:
    """Raise `FormatError` for a type that networks do not have, or a BOOL that is not 0 or 1."""
    entry = contents.entries[name]
    kind = entry.info.dtype
    found = ""
    if kind not in NUMPY_TYPES and kind != "BF16":
        found, expected = f"type {kind}", f"one of {', '.join(NUMPY_TYPES)}, BF16"
    elif kind == "BOOL" and (contents.data[entry.start : entry.stop] > 1).any():
        found, expected = "a byte above 1", "0 or 1 (type BOOL)"
    if found:
        raise FormatError(f"tensor {name!r}", offset=entry.start, found=found, expected=expected)


class StoredTensors(Mapping[str, NDArray[np.generic]]):
    """The entries of a file, loaded when used."""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        entry = self._contents.entries[name]
        if entry.info.dtype != "BF16":
            return self._contents.array(name)
        raw = self._contents.data[entry.start : entry.stop]
        halves = (raw.copy() if entry.start % 2 else raw).view(np.uint16)
        return widen_bfloat16(halves).reshape(entry.info.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents.entries)

    def __len__(self) -> int:
        return len(self._contents.entries)


def _encode_laid_out(model: StateDict, header: bytes, names: list[str]) -> Iterator[Buffer]:
    yield header
    for name in names:
        yield tensor_bytes(name, model.tensors[name], model.infos[name])


def tensor_bytes(name: str, array: NDArray[np.generic], info: TensorInfo) -> NDArray[np.uint8]:
    """Return the bytes of an entry as they are stored, shape (bytes,).

    Raises
    ------
    ConversionError
        The array is not of the type and shape of `info`.
    """
    wanted = np.dtype(np.float32 if info.dtype == "BF16" else NUMPY_TYPES.get(info.dtype, np.void))
    if array.dtype != wanted or array.shape != info.shape:
        raise ConversionError(
            f"tensor {name!r}: found {array.dtype} of shape {array.shape}, "
            f"expected {wanted} of shape {info.shape} (stored as {info.dtype})"
        )
    contiguous = np.ascontiguousarray(array)
    if info.dtype == "BF16":
        return (
            narrow_to_bfloat16(contiguous.astype(np.float32, copy=False)).view(np.uint8).reshape(-1)
        )
    return contiguous.reshape(-1).view(np.uint8)


def widen_bfloat16(halves: NDArray[np.uint16]) -> Float32:
    """Return bfloat16 bits as float32, exactly."""
    return (halves.astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow_to_bfloat16(values: Float32) -> NDArray[np.uint16]:
    """Round float32 to bfloat16 bits, ties to even; NaN stays NaN."""
    bits = values.reshape(-1).view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    halves = (rounded >> np.uint32(16)).astype(np.uint16)
    undefined = np.isnan(values.reshape(-1))
    halves[undefined] = (bits[undefined] >> np.uint32(16)).astype(np.uint16) | np.uint16(0x40)
    return halves
