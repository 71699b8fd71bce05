"""The contract of model file formats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from aggregators.formats.dlib_stream import Buffer
from aggregators.models import Model


class ModelFormat(Protocol):
    """One file format, without state.

    A new format is a module with such a class, a line in `FORMATS` and a subclass of the suite
    ``tests/conformance/model_formats.py``, which tests these laws:

    1. ``encode(decode(file)) == file``, byte for byte, for every file that the format's own
       program or this package wrote;
    2. ``decode(encode(model)) == model`` where `exact`; otherwise encoding the decoded model
       gives the same bytes;
    3. the same model gives the same bytes at all times and on all machines;
    4. `recognises` is true of every file that `encode` writes, and of no other format's files;
    5. `decode` either returns a model that can be encoded, or raises `FormatError` with an offset
       inside the file (or at its end); it uses at most a small multiple of the file's size in
       memory;
    6. `encode` raises `ConversionError` for a model that the format cannot hold.

    Attributes
    ----------
    name : str
        Stable; clients and servers exchange it.
    suffixes : tuple of str
        File name endings, with their dot, from which `write_model` infers the format.
    summary : str
        What the format is, in a few words.
    exact : bool
        Whether all numbers are preserved.
    """

    @property
    def name(self) -> str: ...

    @property
    def suffixes(self) -> tuple[str, ...]: ...

    @property
    def summary(self) -> str: ...

    @property
    def exact(self) -> bool: ...

    def recognises(self, head: bytes) -> bool:
        """Return whether a file with these first bytes (at most 4096) is of this format."""
        ...

    def holds(self, model: Model) -> bool:
        """Return whether models of this type can be written in this format."""
        ...

    def decode(self, data: Buffer) -> Model:
        """Read the bytes of a whole file.

        The model may keep views into `data`, which must not change afterwards.

        Raises
        ------
        FormatError
            Without the file's name.
        """
        ...

    def encode(self, model: Model) -> Iterator[Buffer]:
        """Yield the bytes of the file, piece by piece; the pieces are not reused.

        Raises
        ------
        ConversionError
            The format cannot hold the model.
        """
        ...
