"""The contract of model file formats."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, TypeVar

from aggregators.errors import ConversionError
from aggregators.formats.dlib_stream import Buffer
from aggregators.models import KIND_WORDS, Model

ModelT = TypeVar("ModelT", bound=Model)


class ModelFormat(ABC, Generic[ModelT]):
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
    """

    name: ClassVar[str]
    """Stable; clients and servers exchange it."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """File name endings, with their dot, from which `write_model` infers the format."""
    summary: ClassVar[str]
    """The format in a few words."""
    exact: ClassVar[bool] = True
    """True if all numbers are preserved."""
    model_types: tuple[type[ModelT], ...]
    """The models that can be written in this format."""

    @abstractmethod
    def recognises(self, head: bytes) -> bool:
        """Return whether a file with these first bytes (at most 4096) is of this format."""

    def holds(self, model: Model) -> bool:
        """Return whether models of this type can be written in this format."""
        return isinstance(model, self.model_types)

    @abstractmethod
    def decode(self, data: Buffer) -> ModelT:
        """Read the bytes of a whole file.

        The model may keep views into `data`, which must not change afterwards.

        Raises `FormatError`: without the file's name.
        """

    def encode(self, model: Model) -> Iterator[Buffer]:
        """Return the bytes of the file, piece by piece; the pieces are not reused.

        Raises `ConversionError` if the format cannot hold the model; raised before the first piece.
        """
        if not isinstance(model, self.model_types):
            raise ConversionError(f"{self.name} cannot hold a {KIND_WORDS[type(model)]}")
        return self.pieces(model)

    @abstractmethod
    def pieces(self, model: ModelT) -> Iterator[Buffer]:
        """Return the pieces that `encode` returns, for a model of the right type."""
