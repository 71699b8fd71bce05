"""The safetensors container, read and written without copying tensors.

======================  ================================================================
item                    content
======================  ================================================================
header length           8 bytes, least significant first
header                  JSON object: name -> {"dtype", "shape", "data_offsets"}, and
                        optionally "__metadata__" -> {text: text}; padded with spaces
data                    the tensors, without gaps, in the order of their offsets
======================  ================================================================

The safetensors library reads whole files into memory or needs a path, does not support bfloat16
in numpy, and writes metadata in random order. Merged models must have the same bytes everywhere,
and large ones must be read entry by entry, hence this module. It orders tensors as the library
does (large item types first, then by name).
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import ConversionError, FormatError, SiteOnlyError
from aggregators.formats.contract import ModelFormat
from aggregators.formats.dlib_stream import Buffer
from aggregators.models import Float32, StateDict, TensorInfo

MOST_HEADER_BYTES = 4 * 1024 * 1024
"""Enough for 40 000 tensors; a longer header could take a minute, and gigabytes, to check."""

SITE_ONLY: Mapping[str, str] = MappingProxyType({"visibility": "site-only"})
"""Metadata of a network that holds numbers of one site that no other may get."""

MOST_DIMENSIONS = 32
MOST_NAME_CHARACTERS = 256

# All types that a file may declare, with their sizes. The order is the library's, which writes
# tensors of later types first.
ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4,
    "F64": 8, "I64": 8, "U64": 8,
}  # fmt: skip

NUMPY_TYPES: dict[str, type[np.generic]] = {
    "BOOL": np.bool_, "U8": np.uint8, "I8": np.int8,
    "U16": np.uint16, "I16": np.int16, "F16": np.float16,
    "U32": np.uint32, "I32": np.int32, "F32": np.float32,
    "U64": np.uint64, "I64": np.int64, "F64": np.float64,
}  # fmt: skip

_NAME_LIMIT = f"at most {MOST_NAME_CHARACTERS}"
_ORDER = {name: rank for rank, name in enumerate(reversed(ITEM_BYTES))}


@dataclass(frozen=True)
class Entry:
    """One tensor: its type, its shape, and its bytes ``[start, stop)`` in the file."""

    info: TensorInfo
    start: int
    stop: int


@dataclass(frozen=True)
class Contents:
    """A parsed header over the bytes of its file."""

    data: NDArray[np.uint8]
    entries: Mapping[str, Entry]
    metadata: Mapping[str, str]

    def array(self, name: str) -> NDArray[np.generic]:
        """Return one tensor as a read-only view, or a copy if it is not aligned."""
        entry = self.entries[name]
        kind = NUMPY_TYPES.get(entry.info.dtype)
        if kind is None:
            raise FormatError(
                f"tensor {name!r}",
                entry.start,
                f"type {entry.info.dtype}",
                f"one of {', '.join(NUMPY_TYPES)}, BF16",
            )
        raw = self.data[entry.start : entry.stop]
        # A view of a type must begin at a multiple of its size; the format does not promise that.
        if entry.start % np.dtype(kind).itemsize:
            raw = raw.copy()
        return raw.view(kind).reshape(entry.info.shape)


def recognises_safetensors(head: bytes) -> bool:
    """Return whether a file begins with a header's length and a JSON object."""
    if len(head) < 9 or head[8:9] != b"{":
        return False
    # Any file of a foreign format whose ninth byte is a brace would pass without a bound.
    return int.from_bytes(head[:8], "little") <= 2**40


def parse_safetensors(data: Buffer) -> Contents:
    """Read and check the header, without reading the tensors.

    Raises `FormatError` if the header is truncated, too long, not JSON, not Unicode or of another
    form, or tensors overlap, leave gaps, exceed the file or do not have the size of their shape.
    """
    content = np.frombuffer(data, dtype=np.uint8)
    # Models share these bytes; a method that wrote to its input would change a mapped file's other
    # readers.
    content.flags.writeable = False
    length = _header_length(content)
    header = load_json_object(content[8 : 8 + length].tobytes())
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise header_error("__metadata__", "other values", "an object of strings")
    base = 8 + length
    entries = {name: _parse_entry(name, value, base) for name, value in header.items()}
    _check_coverage(entries, base, int(content.shape[0]))
    return Contents(content, entries, metadata)


def _header_length(content: NDArray[np.uint8]) -> int:
    size = int(content.shape[0])
    if size < 8:
        raise FormatError("header length", size, "the end of the file", "8 bytes")
    length = int.from_bytes(content[:8].tobytes(), "little")
    most = min(size - 8, MOST_HEADER_BYTES)
    if not 2 <= length <= most:
        raise FormatError(
            "header length", 0, str(length), f"2 to {most} bytes (the file has {size})"
        )
    return length


def load_json_object(raw: bytes, what: str = "header") -> dict[str, Any]:
    """Return a JSON object of the header, or raise `FormatError`."""
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise FormatError(what, 8 + error.start, "bytes that are not UTF-8", "JSON") from error
    except json.JSONDecodeError as error:
        raise FormatError(
            what, 8 + len(error.doc[: error.pos].encode()), f"invalid JSON ({error.msg})", "JSON"
        ) from error
    except (RecursionError, ValueError) as error:
        # Deeply nested brackets, or integers of thousands of digits.
        raise header_error(what, f"invalid JSON ({error})", "an object of tensors") from error
    if not isinstance(header, dict):
        raise header_error(what, f"a {type(header).__name__}", "an object of tensors")
    if b"\\u" in raw:
        _require_unicode(header)
    return header


def _require_unicode(header: dict[str, Any]) -> None:
    # Only an escape can stand for half of a surrogate pair, which no UTF-8 can hold.
    try:
        json.dumps(header, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise header_error(
            "header", f"text that is not Unicode ({error.object[error.start]!a})", "Unicode"
        ) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries: dict[str, Any] = {}
    for name, value in pairs:
        # Parsers differ in which of two equal names they keep.
        if name in entries:
            raise header_error("header", f"{name!r} twice", "each name once")
        entries[name] = value
    return entries


def _refuse(constant: str) -> Any:
    raise header_error("header", constant, "numbers")


def header_error(what: str, actual: str, expected: str) -> FormatError:
    """Return the error for a part of the header."""
    return FormatError(what, 8, actual[:200], expected)


def require_shareable(model: object, name: str) -> None:
    """Raise `SiteOnlyError` for a network that stays at its site, by its metadata."""
    metadata = model.metadata if isinstance(model, StateDict) else {}
    if SITE_ONLY.items() <= metadata.items():
        raise SiteOnlyError(
            f"{name}: holds the personal part of a network (its metadata say site-only), which "
            "stays at its site; share the round's result instead"
        )


def require_metadata(metadata: Mapping[str, str], key: str, expected: str) -> None:
    """Raise `FormatError` unless the metadata have this text."""
    value = metadata.get(key)
    if value != expected:
        raise header_error(f"metadata {key}", repr(value)[:80], repr(expected))


def require_metadata_keys(metadata: Mapping[str, str], keys: frozenset[str]) -> None:
    """Raise `FormatError` unless the metadata have exactly these keys."""
    if odd := sorted(set(metadata) ^ keys):
        known = "present" if odd[0] in metadata else "absent"
        raise header_error(f"metadata {odd[0][:80]!r}", known, f"exactly {', '.join(sorted(keys))}")


def digest_in_metadata(metadata: Mapping[str, str], key: str) -> str:
    """Return a SHA-256 from the metadata, or raise `FormatError`."""
    text = metadata.get(key, "")
    # Compared with digests as text later, so other spellings of the same number are refused.
    if len(text) != 64 or set(text) - set("0123456789abcdef"):
        raise header_error(f"metadata {key}", repr(text)[:80], "64 hexadecimal digits")
    return text


def _parse_entry(name: str, value: Any, base: int) -> Entry:
    what = f"header entry {name[:80]!r}"
    if len(name) > MOST_NAME_CHARACTERS:
        raise header_error(what, f"a name of {len(name):,} characters", _NAME_LIMIT)
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise header_error(what, "other fields", "dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise header_error(what, f"type {str(dtype)[:40]}", f"one of {', '.join(ITEM_BYTES)}")
    if not is_shape(shape):
        raise header_error(what, f"shape {str(shape)[:80]}", "a list of at most 32 sizes")
    if not _is_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise header_error(what, f"data_offsets {str(offsets)[:80]}", "[begin, end]")
    size = math.prod(shape) * ITEM_BYTES[dtype]
    if size != offsets[1] - offsets[0]:
        raise header_error(
            what, f"{offsets[1] - offsets[0]} bytes", f"{size} for {dtype} of shape {shape}"
        )
    return Entry(TensorInfo(dtype, tuple(shape)), base + offsets[0], base + offsets[1])


def is_shape(value: Any) -> bool:
    """Return whether a value of JSON is a list of at most `MOST_DIMENSIONS` sizes."""
    return _is_sizes(value) and len(value) <= MOST_DIMENSIONS


def _is_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(item) is int and 0 <= item < 2**63 for item in value
    )


def _check_coverage(entries: Mapping[str, Entry], base: int, size: int) -> None:
    position = base
    # Overlaps and gaps are legal JSON; either would let two programs read different models from the
    # same bytes.
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != position:
            raise FormatError(
                f"tensor {name!r}",
                min(entry.start, size),
                f"data that begin at byte {entry.start}",
                f"byte {position}, the end of the previous tensor",
            )
        position = entry.stop
    if position != size:
        raise FormatError(
            "end of the tensors",
            min(position, size),
            f"a file of {size} bytes",
            f"{position} bytes",
        )


def lay_out(
    infos: Mapping[str, TensorInfo], metadata: Mapping[str, str]
) -> tuple[bytes, list[str]]:
    """Return the header (its length included) and the tensors' names in file order."""
    for name, info in infos.items():
        if len(name) > MOST_NAME_CHARACTERS:
            raise ConversionError(
                f"tensor {name[:80]!r}: found a name of {len(name):,} characters, "
                f"expected {_NAME_LIMIT}"
            )
        if info.dtype not in ITEM_BYTES or name == "__metadata__":
            raise ConversionError(
                f"tensor {name!r}: found type {info.dtype}, expected one of {', '.join(ITEM_BYTES)}"
            )
    # The library's own order, so that its files and ours have the same bytes.
    names = sorted(infos, key=lambda name: (_ORDER[infos[name].dtype], name.encode()))
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = {key: metadata[key] for key in sorted(metadata)}
    position = 0
    for name in names:
        size = math.prod(infos[name].shape) * ITEM_BYTES[infos[name].dtype]
        header[name] = {
            "dtype": infos[name].dtype,
            "shape": list(infos[name].shape),
            "data_offsets": [position, position + size],
        }
        position += size
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    # Padded so that the data begin at a multiple of 8, where views need no copies.
    text += b" " * (-len(text) % 8)
    if len(text) > MOST_HEADER_BYTES:
        raise ConversionError(
            f"header: found {len(text)} bytes, expected at most {MOST_HEADER_BYTES}"
        )
    return len(text).to_bytes(8, "little") + text, names


class TensorsFormat(ModelFormat[StateDict]):
    """State dicts of networks in safetensors files: the entry in `FORMATS`."""

    name = "safetensors"
    suffixes = (".safetensors",)
    summary = "parameters of a network (safetensors)"
    model_types = (StateDict,)

    def recognises(self, head: bytes) -> bool:
        # Forests, contributions and states of optimisers are other things in the same container.
        return recognises_safetensors(head) and b'"format":"poolctl-' not in head

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

    def pieces(self, model: StateDict) -> Iterator[Buffer]:
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
    actual = ""
    if kind not in NUMPY_TYPES and kind != "BF16":
        actual, expected = f"type {kind}", f"one of {', '.join(NUMPY_TYPES)}, BF16"
    elif kind == "BOOL" and (contents.data[entry.start : entry.stop] > 1).any():
        actual, expected = "a byte above 1", "0 or 1 (type BOOL)"
    if actual:
        raise FormatError(f"tensor {name!r}", entry.start, actual, expected)


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
    """Return the bytes of an entry as they are stored, shape (bytes,)."""
    expected = np.dtype(
        np.float32 if info.dtype == "BF16" else NUMPY_TYPES.get(info.dtype, np.void)
    )
    if array.dtype != expected or array.shape != info.shape:
        raise ConversionError(
            f"tensor {name!r}: found {array.dtype} of shape {array.shape}, "
            f"expected {expected} of shape {info.shape} (stored as {info.dtype})"
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
