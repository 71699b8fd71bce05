"""Read MATLAB files of version 5: numbers, texts, cells and structs, and nothing else.

Files come from elsewhere, and a few bytes can crash the general readers, which are written in C:
of 2,000 damaged files, `scipy.io.loadmat` ended two of three runs by a segmentation fault. This
one takes every size from the file only after comparing it with the bytes that are there.

=========================  ==================================================================
part                       content
=========================  ==================================================================
header                     128 bytes; the last four are the version and ``IM``: little-endian
element                    type and number of bytes (4 + 4), the bytes, padding to a multiple
                           of 8; up to 4 bytes stand within the tag (2 + 2 + 4)
element of type 15         elements compressed with zlib, without padding
element of type 14         an array: flags, sizes, name, then by class: values, cells or fields
=========================  ==================================================================

The source is "MAT-File Format", The MathWorks, level 5.
"""

import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

MOST_BYTES = 1 << 30
"""A file may hold this number of bytes once it is decompressed."""
MOST_DIMENSIONS = 8
_MOST_DEPTH = 8
_ARRAY, _COMPRESSED = 14, 15
_CELL, _STRUCT, _CHAR = 1, 2, 4
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4"} | dict(
    zip((9, 12, 13, 16, 17, 18), ("f8", "i8", "u8", "u1", "u2", "u4"), strict=True)
)
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4"} | {
    13: "u4",
    14: "i8",
    15: "u8",
}
_COMPLEX = 0x0800


def read_matlab(stored: bytes) -> dict[str, Any]:
    """Return the variables of a file by name.

    Numbers are arrays of the class that the file names; a text is a str; cells are a list in the
    order of MATLAB; a struct is a dict; an array of structs is a list of dicts.

    Raises `ValueError`: it is damaged, or holds a type that this does not read.
    """
    if stored[:10] == b"MATLAB 7.3" or stored[:4] == b"\x89HDF":
        raise ValueError(
            "found a MATLAB file of version 7.3 (HDF5), expected one of version 5; in MATLAB: "
            "load FILE, then save FILE -v7"
        )
    if len(stored) < 128 or stored[124:128] != b"\x00\x01IM":
        raise ValueError("expected a little-endian MATLAB file of version 5 (saved with -v7)")
    arrays: dict[str, Any] = {}
    left = MOST_BYTES
    for kind, body in _elements(memoryview(stored)[128:]):
        inside = [(kind, body)]
        if kind == _COMPRESSED:
            unpacked = _decompress(body, left)
            left -= len(unpacked)
            inside = list(_elements(memoryview(unpacked)))
        for element, content in inside:
            if element != _ARRAY:
                raise ValueError(f"has an element of type {element} where a variable should be")
            name, value = _array(content, 0)
            arrays[name] = value
    return arrays


def _decompress(body: memoryview, most: int) -> bytes:
    try:
        unpacked = zlib.decompressobj().decompress(body, most + 1)
    except zlib.error as error:
        raise ValueError(f"has compressed bytes that are damaged ({error})") from error
    if len(unpacked) > most:
        raise ValueError(f"holds more than {MOST_BYTES:,} bytes")
    return unpacked


def _elements(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError("ends within an element")
        kind, size = (int.from_bytes(data[at + i : at + i + 4], "little") for i in (0, 4))
        start, padded = at + 8, -size % 8
        if kind >> 16:
            kind, size = kind & 0xFFFF, kind >> 16
            start, padded = at + 4, 4 - size
        if size > len(data) - start or padded < 0:
            raise ValueError(f"names {size:,} bytes where {len(data) - start:,} are left")
        yield kind, data[start : start + size]
        at = start + size + (0 if kind == _COMPRESSED else padded)


def _array(data: memoryview, depth: int) -> tuple[str, Any]:
    """Return name and value of an array."""
    if not data:
        return "", np.empty((0, 0))
    if depth > _MOST_DEPTH:
        raise ValueError(f"has cells and structs more than {_MOST_DEPTH} deep")
    parts = _elements(data)
    header = _numbers(*_next(parts))
    if len(header) != 2:
        raise ValueError("has an array with damaged flags")
    flags = int(header[0])
    sizes = tuple(int(code) for code in _numbers(*_next(parts)))
    if not 2 <= len(sizes) <= MOST_DIMENSIONS or min(sizes) < 0:
        raise ValueError(f"has an array of the sizes {sizes[:MOST_DIMENSIONS]}")
    name, kind, count = _text(_next(parts)[1]), flags & 0xFF, math.prod(sizes)
    if kind in _CLASSES and not flags & _COMPLEX:
        values = _numbers(*_next(parts))
        if len(values) != count:
            raise ValueError(f"{name or 'an array'} has {len(values)} values for {sizes}")
        return name, values.astype(_CLASSES[kind]).reshape(sizes, order="F")
    if kind == _CHAR:
        values = _numbers(*_next(parts))
        if len(values) != count or values.dtype.kind != "u":
            raise ValueError(f"{name or 'a text'} is no text of {sizes}")
        return name, "".join(chr(min(code, 0xFFFD)) for code in values.tolist())
    if kind == _CELL:
        return name, [_inner(parts, depth) for _ in range(count)]
    if kind == _STRUCT:
        return name, _structs(parts, count, depth)
    raise ValueError(f"{name or 'an array'} is of a class that is not read ({kind})")


def _structs(parts: Iterator[tuple[int, memoryview]], count: int, depth: int) -> Any:
    lengths = _numbers(*_next(parts))
    length = int(lengths[0]) if len(lengths) == 1 else 0
    names = bytes(_next(parts)[1])
    if not 1 <= length <= 64 or len(names) % length:
        raise ValueError("has a struct with damaged names")
    fields = [_text(names[at : at + length]) for at in range(0, len(names), length)]
    if not fields:
        return []
    structs = [{field: _inner(parts, depth) for field in fields} for _ in range(count)]
    return structs[0] if count == 1 else structs


def _inner(parts: Iterator[tuple[int, memoryview]], depth: int) -> Any:
    kind, body = _next(parts)
    if kind != _ARRAY:
        raise ValueError(f"has an element of type {kind} where an array should be")
    return _array(body, depth + 1)[1]


def _next(parts: Iterator[tuple[int, memoryview]]) -> tuple[int, memoryview]:
    try:
        return next(parts)
    except StopIteration:
        raise ValueError("ends within an array") from None


def _numbers(kind: int, body: memoryview) -> np.ndarray[Any, Any]:
    if kind not in _TYPES:
        raise ValueError(f"has numbers of type {kind}")
    item = np.dtype(f"<{_TYPES[kind]}")
    if len(body) % item.itemsize:
        raise ValueError(f"has {len(body)} bytes for numbers of {item.itemsize} bytes each")
    return np.frombuffer(body, item)


def _text(raw: bytes | memoryview) -> str:
    return bytes(raw).split(b"\0")[0].decode("ascii", "replace")
