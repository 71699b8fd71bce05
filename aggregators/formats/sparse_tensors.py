"""State dicts with many zeros, such as pruned networks: only the other numbers are stored.

A safetensors container, with each entry in the smallest of three forms.

======================  ================================================================
entry                   content
======================  ================================================================
metadata ``format``     ``poolctl-sparse``
metadata ``version``    ``1``
metadata ``network``    JSON object: the metadata of the network
metadata ``shapes``     JSON object: name -> shape, for each entry with a mask or indices
``values/NAME``         dense: the entry; otherwise its numbers that are not zero, 1-D
``mask/NAME``           U8: bit k of byte i (least significant first) is 1 if number 8 i + k
                        (in C order) is stored
``index/NAME``          I32, increasing: the positions (in C order) of the stored numbers
======================  ================================================================

A number is zero if all its bits are 0, so -0.0 is stored. To bound the size to which a small file
can expand, indices are not used where the dense entry has over 1024 times their bytes; a mask
takes at least 1/64 of them.
"""

import json
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from aggregators.errors import ConversionError, FormatError
from aggregators.formats.contract import ModelFormat
from aggregators.formats.dlib_stream import Buffer
from aggregators.formats.safetensors_file import (
    ITEM_BYTES,
    Contents,
    StoredTensors,
    check_entry,
    header_error,
    is_shape,
    lay_out,
    load_json_object,
    parse_safetensors,
    recognises_safetensors,
    require_complete,
    require_metadata,
    require_metadata_keys,
    tensor_bytes,
)
from aggregators.models import StateDict, TensorInfo

Storage = Literal["dense", "mask", "index"]

MOST_EXPANSION = 1024
"""Most bytes of a dense entry for each byte of its indices and values."""

MOST_DENSE_BYTES = 4 * 1024**3
"""Of all entries together; the largest size at which `read_model` reads a dense file."""

_FORMAT, _VERSION = "poolctl-sparse", "1"
_FIELDS = frozenset({"format", "version", "network", "shapes"})
_INDEX_BYTES = 4


class SparseTensorsFormat(ModelFormat[StateDict]):
    """The entry in `FORMATS`."""

    name = _FORMAT
    suffixes = (".sparse",)
    summary = "pruned network (poolctl sparse file)"
    model_types = (StateDict,)

    def recognises(self, head: bytes) -> bool:
        return recognises_safetensors(head) and b'"format":"poolctl-sparse"' in head

    def decode(self, data: Buffer) -> StateDict:
        contents = parse_safetensors(data)
        metadata = contents.metadata
        require_metadata(metadata, "format", _FORMAT)
        require_metadata(metadata, "version", _VERSION)
        require_metadata_keys(metadata, _FIELDS)
        shapes = load_json_object(metadata["shapes"].encode(), "metadata shapes")
        forms = _find_forms(contents, shapes)
        infos = {}
        for name, form in forms.items():
            check_entry(f"values/{name}", contents)
            info = contents.entries[f"values/{name}"].info
            if form != "dense":
                info = TensorInfo(info.dtype, _require_shape(name, shapes[name]))
            infos[name] = info
        _require_moderate(infos)
        for name, form in forms.items():
            _check_positions(contents, name, form, math.prod(infos[name].shape))
        return StateDict(
            tensors=_SparseTensors(contents, forms, infos),
            infos=MappingProxyType(infos),
            metadata=MappingProxyType(_network_metadata(metadata["network"])),
        )

    def pieces(self, model: StateDict) -> Iterator[Buffer]:
        require_complete(model)
        try:
            _require_moderate(model.infos)
            _network_metadata(_json(dict(model.metadata)))
        except FormatError as error:
            raise ConversionError(
                f"{error.what}: found {error.actual}, expected {error.expected}"
            ) from error
        infos: dict[str, TensorInfo] = {}
        shapes = {}
        for name, info in model.infos.items():
            size, kept = math.prod(info.shape), count_kept(model, name)
            form = smallest_form(storage_bytes(size, kept, ITEM_BYTES[info.dtype]))
            infos[f"values/{name}"] = info
            if form == "dense":
                continue
            shapes[name] = list(info.shape)
            infos[f"values/{name}"] = TensorInfo(info.dtype, (kept,))
            infos[f"{form}/{name}"] = (
                TensorInfo("U8", (_mask_bytes(size),))
                if form == "mask"
                else TensorInfo("I32", (kept,))
            )
        texts = {"network": _json(dict(model.metadata)), "shapes": _json(shapes)}
        header, names = lay_out(infos, {"format": _FORMAT, "version": _VERSION} | texts)
        return _encode_laid_out(model, header, names, shapes)


def storage_bytes(size: int, kept: int, item_bytes: int) -> dict[Storage, int]:
    """Return the bytes of an entry in each form that can hold it.

    `size`: Numbers of the entry. `kept`: Numbers of the entry that are not zero. `item_bytes`:
    Bytes of a number.
    """
    dense, values = size * item_bytes, kept * item_bytes
    sizes: dict[Storage, int] = {"dense": dense, "mask": _mask_bytes(size) + values}
    index = kept * _INDEX_BYTES + values
    if size < 2**31 and dense <= index * MOST_EXPANSION:
        sizes["index"] = index
    return sizes


def smallest_form(sizes: Mapping[Storage, int]) -> Storage:
    """Return the form of the fewest bytes; dense is preferred to a mask, a mask to indices."""
    return min(sizes, key=sizes.__getitem__)


def count_kept(model: StateDict, name: str) -> int:
    """Return how many numbers of an entry are not zero."""
    return int(np.count_nonzero(_words(model, name)))


def _mask_bytes(size: int) -> int:
    return (size + 7) // 8


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _words(model: StateDict, name: str) -> NDArray[np.unsignedinteger[Any]]:
    """Return an entry's numbers as unsigned integers of the same bits, 1-D."""
    info = model.infos[name]
    raw = tensor_bytes(name, model.tensors[name], info)
    return raw.view(f"u{ITEM_BYTES[info.dtype]}")


def _encode_laid_out(
    model: StateDict, header: bytes, names: list[str], sparse: Mapping[str, Any]
) -> Iterator[Buffer]:
    yield header
    for stored in names:
        part, name = stored.split("/", 1)
        # By their bits, so that negative zeros and NaN come back as they were.
        numbers = _words(model, name)
        if part == "mask":
            yield np.packbits(numbers != 0, bitorder="little")
        elif part == "index":
            yield np.flatnonzero(numbers).astype(np.int32).view(np.uint8)
        else:
            yield (numbers[numbers != 0] if name in sparse else numbers).view(np.uint8)


def _find_forms(contents: Contents, shapes: Mapping[str, Any]) -> dict[str, Storage]:
    """Return the form of each entry of the network."""
    parts: dict[str, dict[str, None]] = {"values": {}, "mask": {}, "index": {}}
    for stored in contents.entries:
        part, _, name = stored.partition("/")
        if part not in parts:
            raise header_error(f"entry {stored[:80]!r}", "another name", "values/, mask/ or index/")
        parts[part][name] = None
    values, masks, indices = (parts[part].keys() for part in ("values", "mask", "index"))
    # Each entry has one form; two would let readers choose between two networks.
    for odd in sorted(masks & indices):
        raise header_error(f"entry {odd[:80]!r}", "a mask and indices", "one of them")
    for odd in sorted((masks | indices) ^ set(shapes)):
        raise header_error(
            f"metadata shapes, entry {odd[:80]!r}",
            "a shape without a mask or indices" if odd in shapes else "no shape",
            "the shape of each entry that has a mask or indices",
        )
    for odd in sorted(set(shapes) - values):
        raise header_error(f"entry {odd[:80]!r}", "no values", "a mask or indices with values")
    return {
        name: "mask" if name in masks else "index" if name in indices else "dense"
        for name in values
    }


def _require_shape(name: str, shape: Any) -> tuple[int, ...]:
    if not is_shape(shape):
        raise header_error(
            f"metadata shapes, entry {name[:80]!r}", str(shape)[:80], "a list of at most 32 sizes"
        )
    return tuple(shape)


def _require_moderate(infos: Mapping[str, TensorInfo]) -> None:
    size = sum(math.prod(info.shape) * ITEM_BYTES.get(info.dtype, 1) for info in infos.values())
    if size > MOST_DENSE_BYTES:
        raise header_error(
            "size of the network", f"{size} bytes if dense", f"at most {MOST_DENSE_BYTES}"
        )


def _network_metadata(text: str) -> dict[str, str]:
    metadata = load_json_object(text.encode(), "metadata network")
    if not all(isinstance(value, str) for value in metadata.values()):
        raise header_error("metadata network", "other values", "an object of strings")
    # Written as plain safetensors, such a network would be recognised as something else.
    if metadata.get("format", "").startswith("poolctl-"):
        raise header_error("metadata network", f"format {metadata['format']}", "that of a network")
    return metadata


def _check_positions(contents: Contents, name: str, form: Storage, size: int) -> None:
    """Raise `FormatError` unless the positions are those of the values in an entry of this size."""
    if form == "dense":
        return
    values = contents.entries[f"values/{name}"]
    entry = contents.entries[f"{form}/{name}"]
    if len(values.info.shape) != 1:
        raise FormatError(
            f"values of {name[:80]!r}", values.start, f"shape {values.info.shape}", "one dimension"
        )
    check = _find_mask_problem if form == "mask" else _find_index_problem
    problem = check(contents, f"{form}/{name}", size, values.info)
    if problem:
        raise FormatError(f"{form} of {name[:80]!r}", entry.start, problem[0], problem[1])


def _find_mask_problem(
    contents: Contents, stored: str, size: int, values: TensorInfo
) -> tuple[str, str] | None:
    info, kept = contents.entries[stored].info, values.shape[0]
    if info != TensorInfo("U8", (_mask_bytes(size),)):
        return f"{info.dtype} of shape {info.shape}", f"U8 of shape ({_mask_bytes(size)},)"
    mask = contents.array(stored)
    # Bits behind the end would change the bytes, but not the network that they stand for.
    if size % 8 and int(mask[-1]) >> (size % 8):
        return "bits behind the last number", "zeros"
    # Counted without unpacking, which would take eight times the memory.
    if (ones := int(np.bitwise_count(mask).sum())) != kept:
        return f"{ones} ones", f"{kept}, the number of values"
    return None


def _find_index_problem(
    contents: Contents, stored: str, size: int, values: TensorInfo
) -> tuple[str, str] | None:
    info, kept = contents.entries[stored].info, values.shape[0]
    if info != TensorInfo("I32", (kept,)):
        return f"{info.dtype} of shape {info.shape}", f"I32 of shape ({kept},)"
    if "index" not in storage_bytes(size, kept, ITEM_BYTES[values.dtype]):
        return f"{kept} of {size} numbers", f"at least 1/{MOST_EXPANSION} of the dense bytes"
    positions = contents.array(stored).view(np.int32)
    if kept and (int(positions[0]) < 0 or int(positions[-1]) >= size):
        return f"positions {positions[0]} to {positions[-1]}", f"0 to {size - 1}"
    # Sorted and distinct, each network has one file, and every value its own place.
    if (positions[1:] <= positions[:-1]).any():
        return "positions that do not increase", "increasing positions"
    return None


class _SparseTensors(Mapping[str, NDArray[np.generic]]):
    """The entries of a file, made dense when used."""

    def __init__(
        self, contents: Contents, forms: Mapping[str, Storage], infos: Mapping[str, TensorInfo]
    ) -> None:
        self._contents, self._forms, self._infos = contents, forms, infos
        self._stored = StoredTensors(contents)

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        form = self._forms[name]
        values = self._stored[f"values/{name}"]
        if form == "dense":
            return values
        shape = self._infos[name].shape
        dense = np.zeros(math.prod(shape), values.dtype)
        positions = self._contents.array(f"{form}/{name}")
        if form == "mask":
            mask = positions.view(np.uint8)
            dense[np.unpackbits(mask, count=dense.size, bitorder="little").view(bool)] = values
        else:
            dense[positions] = values
        return dense.reshape(shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._forms)

    def __len__(self) -> int:
        return len(self._forms)
