"""The table of formats, and the doors through which model files are read and written."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO

from aggregators.errors import ConversionError, FormatError, UnknownFormatError
from aggregators.formats.contract import ModelFormat
from aggregators.formats.dlib_stream import Buffer, view_bytes
from aggregators.formats.fhog_detector import FhogDetectorFormat
from aggregators.formats.forest_file import ForestFileFormat, HalfForestFileFormat
from aggregators.formats.shape_predictor import ShapePredictorFormat
from aggregators.formats.strangers import describe_stranger
from aggregators.formats.tensors import TensorsFormat
from aggregators.models import KIND_WORDS, Model
from aggregators.whole_file import whole_file

_ALL: tuple[ModelFormat, ...] = (
    FhogDetectorFormat(),
    ShapePredictorFormat(),
    ForestFileFormat(),
    HalfForestFileFormat(),
    TensorsFormat(),
)

FORMATS: dict[str, ModelFormat] = {member.name: member for member in _ALL}
"""Every format by its name; the first that holds a model is the one it is written in by default."""

HEAD_BYTES = 4096
_MAPPED_FROM_BYTES = 1024 * 1024
DEFAULT_MAX_BYTES = 4 * 1024**3


def recognise(path: Path | str) -> ModelFormat:
    """Tell a file's format from its first bytes; its name does not matter.

    Raises
    ------
    UnknownFormatError
        For a file of no known format, with advice where its kind is known (a pickle, an archive,
        a web page ...).
    OSError
        When the file cannot be opened.

    Examples
    --------
    >>> recognise("faces.svm").name  # doctest: +SKIP
    'dlib-fhog-detector'
    """
    with _open_regular(Path(path)) as file:
        return _recognise_head(file.read(HEAD_BYTES), str(path))


def read_model(path: Path | str, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Model:
    """Read a model file of any known format.

    Large files are mapped into memory, and models in safetensors containers keep them so: their
    arrays are read when used. Meanwhile the file may be replaced, as `write_model` does, but must
    not be cut short in place.

    Parameters
    ----------
    max_bytes : int
        Larger files are refused unread.

    Raises
    ------
    FormatError
        For a file that is too large, of no known format (`UnknownFormatError`) or malformed,
        with the file's name and the offset.
    OSError
        When the file cannot be opened or read.
    """
    path = Path(path)
    with _open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise FormatError(
                "file size",
                offset=max_bytes,
                found=f"{size} bytes",
                expected=f"at most {max_bytes}",
                subject=str(path),
            )
        model_format = _recognise_head(file.read(HEAD_BYTES), str(path))
        data = _load(file, size)
    try:
        return model_format.decode(data)
    except FormatError as error:
        raise error.about(str(path)) from error.__cause__


def decode_model(data: Buffer) -> Model:
    """Read a model from the bytes of a file of any known format.

    Raises
    ------
    FormatError
        As `read_model`, without a file name.
    """
    view = view_bytes(data)
    return _recognise_head(bytes(view[:HEAD_BYTES]), "").decode(data)


def encode_model(model: Model, format_name: str | None = None) -> bytes:
    """Return the bytes of a model's file.

    Parameters
    ----------
    format_name : str, optional
        A name of `FORMATS`; by default the first format that can hold the model.

    Raises
    ------
    ConversionError
        When there is no such format, or it cannot hold the model.
    """
    pieces = _format_for(model, format_name).encode(model)
    return b"".join(view_bytes(piece) for piece in pieces)


def write_model(model: Model, path: Path | str, *, format_name: str | None = None) -> str:
    """Write a model file, whole or not at all, and return its sha256 (hexadecimal).

    Parameters
    ----------
    format_name : str, optional
        A name of `FORMATS`; by default the format of the path's suffix, or, where that is
        none of theirs, the first format that can hold the model.

    Raises
    ------
    ConversionError
        When the format cannot hold the model.
    OSError
        When the folder is missing, full or not writable.
    """
    path = Path(path)
    if format_name is None:
        format_name = _name_of_suffix(path)
    pieces = _format_for(model, format_name, path).encode(model)
    with whole_file(path) as file:
        return _write_pieces(file, pieces)


def file_digest(path: Path | str) -> str:
    """Return the sha256 of a file's bytes, as 64 hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def default_format(model: Model) -> ModelFormat:
    """Return the format in which a model is written when nothing else is said."""
    return next(member for member in FORMATS.values() if member.holds(model))


def _open_regular(path: Path) -> IO[bytes]:
    if path.exists() and not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
        # Opening a pipe would wait for somebody to write into it.
        raise UnknownFormatError(
            "file", offset=0, found="a pipe or device", expected="a file", subject=str(path)
        )
    return path.open("rb")


def _recognise_head(head: bytes, subject: str) -> ModelFormat:
    for member in FORMATS.values():
        if member.recognises(head):
            return member
    found, advice = describe_stranger(head)
    names = ", ".join(sorted({member.summary for member in FORMATS.values()}))
    raise UnknownFormatError(
        "file format", offset=0, found=found, expected=advice or f"one of: {names}", subject=subject
    )


def _load(file: IO[bytes], size: int) -> Buffer:
    # A fresh page of memory costs more than decoding what would be copied into it.
    if size >= _MAPPED_FROM_BYTES:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    file.seek(0)
    return file.read(size)


def _format_for(model: Model, format_name: str | None, path: Path | None = None) -> ModelFormat:
    if format_name is None:
        return default_format(model)
    if format_name not in FORMATS:
        raise ConversionError(
            f"format: found {format_name!r}, expected one of {', '.join(FORMATS)}"
        )
    chosen = FORMATS[format_name]
    if chosen.holds(model):
        return chosen
    able = [member for member in FORMATS.values() if member.holds(model)]
    suggestions = " or ".join(
        f"{member.name} ({', '.join(member.suffixes)})" if member.suffixes else member.name
        for member in able
    )
    subject = f"{path}: " if path else ""
    raise ConversionError(
        f"{subject}{chosen.name} cannot hold a {KIND_WORDS[type(model)]}; "
        f"it fits into {suggestions}"
    )


def _name_of_suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next(
        (member.name for member in FORMATS.values() if name.endswith(tuple(member.suffixes))), None
    )


def _write_pieces(file: IO[bytes], pieces: Iterable[Buffer]) -> str:
    """Write and hash each piece while the next one is encoded; return the digest."""
    digest = hashlib.sha256()

    def store(part: memoryview) -> None:
        digest.update(part)
        file.write(part)

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="write-model") as background:
        pending: Future[None] | None = None
        for piece in pieces:
            if pending is not None:
                pending.result()
            pending = background.submit(store, view_bytes(piece))
        if pending is not None:
            pending.result()
    return digest.hexdigest()
