"""The table of formats; recognising, reading, writing and converting model files."""

import codecs
import hashlib
import mmap
import os
import re
import stat
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from aggregators.errors import ConversionError, FormatError, UnknownFormatError
from aggregators.formats.contract import ModelFormat
from aggregators.formats.dlib_stream import Buffer, view_bytes
from aggregators.formats.fhog_detector import MOST_UPSAMPLING, FhogDetectorFormat
from aggregators.formats.forest_file import ForestFileFormat, HalfForestFileFormat
from aggregators.formats.safetensors_file import TensorsFormat
from aggregators.formats.shape_predictor import ShapePredictorFormat
from aggregators.formats.sparse_tensors import SparseTensorsFormat
from aggregators.models import KIND_WORDS, FhogDetector, ForestEnsemble, Model
from aggregators.whole_file import whole_file

Decoded = TypeVar("Decoded")

_ALL: tuple[ModelFormat[Any], ...] = (
    FhogDetectorFormat(),
    ShapePredictorFormat(),
    ForestFileFormat(),
    HalfForestFileFormat(),
    TensorsFormat(),
    SparseTensorsFormat(),
)

# Recognised in this order, too: forest files and sparse files are safetensors containers, and
# `TensorsFormat` leaves out those that name a format of poolctl.
FORMATS: dict[str, ModelFormat[Any]] = {member.name: member for member in _ALL}
"""All formats by name. A model is written in the first that holds it, unless asked otherwise."""

NETWORK_FORMATS = frozenset({TensorsFormat.name, SparseTensorsFormat.name})
"""Formats of networks."""

HEAD_BYTES = 4096
DEFAULT_MAX_BYTES = 4 * 1024**3
_MAPPED_FROM_BYTES = 1024 * 1024


def recognise(path: Path | str) -> ModelFormat[Any]:
    """Return a file's format, from its first bytes; the file's name does not matter.

    Raises
    ------
    UnknownFormatError
        No known format; with advice for a pickle, an archive, a git-lfs pointer ...

    Examples
    --------
    >>> recognise("a.svm").name
    'dlib-fhog-detector'
    """
    with _open_regular(Path(path)) as file:
        return _recognise_head(file.read(HEAD_BYTES), str(path))


def read_model(path: Path | str, *, max_bytes: int = DEFAULT_MAX_BYTES) -> Model:
    """Read a model file of any known format.

    Large files are mapped into memory; arrays in safetensors containers are read when used.
    Such a file may be replaced meanwhile, as `write_model` does, but not truncated in place.

    `max_bytes`: Larger files are refused unread.

    Raises `FormatError` if the file is too large, of no known format (`UnknownFormatError`) or
    malformed.

    Examples
    --------
    >>> read_model("site-a.dat").part_count
    68
    """
    path = Path(path)
    with _open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise FormatError(
                "file size", max_bytes, f"{size} bytes", f"at most {max_bytes}", subject=str(path)
            )
        model_format = _recognise_head(file.read(HEAD_BYTES), str(path))
        data = load_bytes(file)
    model: Model = decode_named(model_format.decode, data, path)
    return model


def decode_model(data: Buffer) -> Model:
    """Read a model from the bytes of a file of any known format."""
    view = view_bytes(data)
    model: Model = _recognise_head(bytes(view[:HEAD_BYTES]), "").decode(data)
    return model


def encode_model(model: Model, format_name: str | None = None) -> bytes:
    """Return the bytes of a model's file.

    `format_name`: a name of `FORMATS`; by default the first format that holds the model.
    """
    chosen = default_format(model) if format_name is None else format_for(model, format_name)
    return b"".join(view_bytes(piece) for piece in chosen.encode(model))


def write_model(model: Model, path: Path | str, *, format_name: str | None = None) -> str:
    """Write a model file, whole or not at all, and return its SHA-256 (hexadecimal).

    `format_name`: A name of `FORMATS`; by default the format of the path's suffix, else the first
    that holds the model.

    Raises `ConversionError` if the format cannot hold the model.
    """
    path = Path(path)
    name = format_name or format_of_suffix(path)
    chosen = format_for(model, name, f"{path}: ") if name else default_format(model)
    pieces = chosen.encode(model)
    with whole_file(path) as file:
        return _write_pieces(file, pieces)


def file_digest(path: Path | str) -> str:
    """Return the SHA-256 of a file, as 64 hexadecimal digits."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def default_format(model: Model) -> ModelFormat[Any]:
    """Return the first format that holds the model."""
    return next(member for member in FORMATS.values() if member.holds(model))


def format_for(model: Model, name: str, prefix: str = "") -> ModelFormat[Any]:
    """Return the format of this name, if it can hold the model."""
    if name not in FORMATS:
        raise ConversionError(f"format: found {name!r}, expected one of {', '.join(FORMATS)}")
    if not FORMATS[name].holds(model):
        possible = list_formats(*(m.name for m in FORMATS.values() if m.holds(model)))
        raise ConversionError(
            f"{prefix}{name} cannot hold a {KIND_WORDS[type(model)]}; use {possible}"
        )
    return FORMATS[name]


def format_of_suffix(path: Path) -> str | None:
    """Return the name of the format with the path's suffix, or None."""
    name = path.name.lower()
    return next((m.name for m in FORMATS.values() if name.endswith(tuple(m.suffixes))), None)


def list_formats(*names: str) -> str:
    """Return format names with their suffixes, for messages: ``a (.x) or b``."""
    return " or ".join(
        " ".join([name, *(f"({suffix})" for suffix in FORMATS[name].suffixes)]) for name in names
    )


def decode_named(decode: Callable[[Buffer], Decoded], data: Buffer, path: Path) -> Decoded:
    """Decode the bytes of a file; a `FormatError` names the file."""
    try:
        return decode(data)
    except FormatError as error:
        raise error.about(str(path)) from error.__cause__


def decode_file(decode: Callable[[Buffer], Decoded], path: Path | str) -> Decoded:
    """Decode a file; large ones are mapped into memory, and a `FormatError` names the file."""
    with Path(path).open("rb") as file:
        data = load_bytes(file)
    return decode_named(decode, data, Path(path))


def load_bytes(file: IO[bytes]) -> Buffer:
    """Return the bytes of an open file; a large one is mapped into memory."""
    # Copying a large file costs more than decoding it.
    if os.fstat(file.fileno()).st_size >= _MAPPED_FROM_BYTES:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    file.seek(0)
    return file.read()


def _open_regular(path: Path) -> IO[bytes]:
    if path.exists() and not path.is_dir() and not stat.S_ISREG(path.stat().st_mode):
        # Opening a pipe would block until something writes to it.
        raise UnknownFormatError("file", 0, "a pipe or device", "a file", subject=str(path))
    return path.open("rb")


def _recognise_head(head: bytes, subject: str) -> ModelFormat[Any]:
    for member in FORMATS.values():
        if member.recognises(head):
            return member
    summary, advice = describe_unknown_file(head)
    names = ", ".join(sorted({member.summary for member in FORMATS.values()}))
    raise UnknownFormatError(
        "file format", 0, summary, advice or f"one of: {names}", subject=subject
    )


def _write_pieces(file: IO[bytes], pieces: Iterable[Buffer]) -> str:
    """Write and hash each piece while the next one is encoded; return the digest."""
    digest = hashlib.sha256()
    # Hashing and writing release the interpreter's lock, so they cost no time next to the encoding
    # of the next piece. One piece at a time is under way, which bounds the memory.
    with ThreadPoolExecutor(max_workers=2, thread_name_prefix="write-model") as background:
        pending: list[Future[Any]] = []
        for piece in pieces:
            for stored in pending:
                stored.result()
            part = view_bytes(piece)
            pending = [background.submit(file.write, part), background.submit(digest.update, part)]
        for stored in pending:
            stored.result()
    return digest.hexdigest()


_EXPORT = (
    "parameters saved with safetensors.torch.save_file(network.state_dict(), ...), "
    "or a file saved by dlib's save method"
)

_OF_OTHER_KIND = "a model: a detector or landmark model of dlib, or a network (.safetensors)"

# First bytes, what the file is, what to use instead.
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"BZh", "a bzip2 archive", "the file inside; decompress it first: bunzip2"),
    (b"\x1f\x8b", "a gzip archive", "the file inside; decompress it first: gunzip"),
    (b"PK\x03\x04", "a zip archive", "the file inside; unzip it first"),
    (b"version https://git-lfs", "a git-lfs pointer", "the file it points to; run: git lfs pull"),
    (b"<", "a web page or XML file", "a model file; download it again"),
)

_OTHER_KINDS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG", "a picture (PNG)"),
    (0, b"\xff\xd8\xff", "a picture (JPEG)"),
    (0, b"GIF8", "a picture (GIF)"),
    (0, b"BM", "a picture (BMP)"),
    (8, b"WEBP", "a picture (WebP)"),
    (4, b"ftyphei", "a picture (HEIF)"),
    (4, b"ftypmif", "a picture (HEIF)"),
    (4, b"ftypavi", "a picture (AVIF)"),
    (4, b"ftypqt", "a video (QuickTime)"),
    (4, b"ftyp", "a video (MP4)"),
    (8, b"AVI ", "a video (AVI)"),
    (0, b"\x1aE\xdf\xa3", "a video (Matroska or WebM)"),
    (0, b"\0\0\x01\xba", "a video (MPEG)"),
    (0, b"%PDF", "a document (PDF)"),
    (0, b"\x89HDF", "an HDF5 file"),
)
"""Offsets and bytes that show files of other kinds, the more special first."""

# Version 1, then the length of the loss's name and the name: "loss_mmod_".
_DLIB_NETWORK = re.compile(rb"\x01\x01[\x01-\x20]{1,4}(loss_[a-z_]+).*", re.DOTALL)

_PART_OF_ROUND = re.compile(
    rb'"format":"poolctl-([a-z-]+-contribution|optimiser-state|personal-part|site-reply)"'
)


def describe_unknown_file(head: bytes) -> tuple[str, str]:
    """Return a description of an unknown file, and advice (may be empty).

    `head`: first bytes of a file that no format recognises.
    """
    if len(head) < 9:
        return f"only {len(head)} bytes", "a model file; the download may be incomplete"
    if network := _DLIB_NETWORK.fullmatch(head):
        name = network[1].decode("ascii").rstrip("_")
        summary = f"a neural network of dlib ({name}), such as its CNN face detector"
        return summary, "a HOG-SVM detector (.svm) or a landmark model (.dat) of dlib"
    if part := _PART_OF_ROUND.search(head):
        hint = "the round's result; a site's own part of a network stays at the site"
        is_own = part[1] in {b"personal-part", b"site-reply"}
        advice = hint if is_own else "a model file; merge it with its base"
        return f"a {part[1].decode().replace('-', ' ')}", advice
    zip_with_pickle = head.startswith(b"PK\x03\x04") and b"/data.pkl" in head
    if zip_with_pickle or (head[0] == 0x80 and 2 <= head[1] <= 5):
        return "a Python pickle or PyTorch file", _EXPORT
    for signature, summary, advice in _SIGNATURES:
        if head.lstrip().startswith(signature):
            return summary, advice
    kinds = (kind for at, mark, kind in _OTHER_KINDS if head[at:].startswith(mark))
    kind = _text_kind(head) or next(kinds, "")
    return (kind, _OF_OTHER_KIND) if kind else (f"bytes {head[:8].hex(' ')}", "")


def _text_kind(head: bytes) -> str:
    """Return a description of a text by its beginning; empty for other files."""
    try:
        # The last character may be cut off.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError:
        return ""
    if not text.strip() or not all(letter.isprintable() or letter.isspace() for letter in text):
        return ""
    if text.lstrip()[0] in "{[":
        return "a text (JSON)"
    first = text.splitlines()[0]
    return "a table (CSV)" if "," in first or ";" in first or "\t" in first else "a text"


DetectorKind = Literal["object_detector", "simple_object_detector"]
"""The two kinds of `.svm` files: that of C++ (``fhog_object_detector`` in Python), and that of
Python, which also stores how often an image is doubled first."""


def convert_model(
    model: Model,
    format_name: str | None = None,
    *,
    detector_kind: DetectorKind | None = None,
    upsampling: int | None = None,
) -> Model:
    """Return a model in the form that a format can hold.

    `format_name`: A name of `FORMATS`; by default the model's own. `detector_kind`: For detectors.
    Unchanged by default; Python's kind when `upsampling` is given. `upsampling`: For Python's kind:
    how often an image is doubled first, 0 to 16. Unchanged by default; 0 for a file of C++.

    Raises `ConversionError` if the format cannot hold the model, or the model does not have such an
    option.
    """
    name = default_format(model).name if format_name is None else format_name
    if isinstance(model, FhogDetector):
        model = _of_kind(model, detector_kind, upsampling)
    elif detector_kind is not None or upsampling is not None:
        raise ConversionError(
            f"only detectors have a kind and an upsampling; found a {KIND_WORDS[type(model)]}"
        )
    if isinstance(model, ForestEnsemble) and len(model.members) == 1:
        # One forest alone is an ordinary landmark model, whatever its weight.
        model = model.members[0]
    try:
        format_for(model, name)
    except ConversionError as error:
        if isinstance(model, ForestEnsemble):
            raise ConversionError(f"{error}, or merge by wba-cascade to get one forest") from None
        raise
    return model


def _of_kind(
    model: FhogDetector, kind: DetectorKind | None, upsampling: int | None
) -> FhogDetector:
    if kind == "object_detector":
        if upsampling is not None:
            raise ConversionError(
                "an object_detector does not store an upsampling; use simple_object_detector"
            )
        return replace(model, upsampling=None)
    if kind is None and upsampling is None:
        return model
    doublings = upsampling if upsampling is not None else model.upsampling or 0
    if not 0 <= doublings <= MOST_UPSAMPLING:
        raise ConversionError(f"upsampling: found {doublings}, expected 0 to {MOST_UPSAMPLING}")
    return replace(model, upsampling=doublings)
