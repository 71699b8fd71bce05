"""What to tell somebody whose file is no model file: the usual mix-ups, by their first bytes."""

from __future__ import annotations

import re

_EXPORT = "parameters saved with safetensors.torch.save_file(network.state_dict(), ...)"
_DOWNLOAD = "the model file itself; download it again"

# First bytes, what the file is, what to do about it.
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"BZh", "a bzip2 archive", "the file inside; decompress it first: bunzip2"),
    (b"\x1f\x8b", "a gzip archive", "the file inside; decompress it first: gunzip"),
    (b"\xfd7zXZ\x00", "an xz archive", "the file inside; decompress it first: unxz"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "the file inside; decompress it first: unzstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "the file inside; unpack it first"),
    (b"version https://git-lfs", "a git-lfs pointer", "the file it points to; run: git lfs pull"),
    (b"\x89HDF", "an HDF5 file (Keras or MATLAB)", _EXPORT),
    (b"\x89PNG", "a PNG image", "a model file"),
    (b"\xff\xd8\xff", "a JPEG image", "a model file"),
    (
        b"\x01\x01\x01\x00\x81\x01\x01\x00",
        "a shape predictor of dlib without training",
        "a trained one",
    ),
    (
        b"\x01\x01\x01\x01\x01\x00\x01\x00",
        "a dlib object detector of version 1",
        "version 2; load it with dlib and save it again",
    ),
)


# A version, then the length of the name of the network's loss and the name: "loss_mmod_".
_DLIB_NETWORK = re.compile(rb"\x01\x01[\x01-\x20]{1,4}(loss_[a-z_]+).*", re.DOTALL)


def describe_stranger(head: bytes) -> tuple[str, str]:
    """Return what a file seems to be, and what was expected of it (may be empty).

    Parameters
    ----------
    head : bytes
        First bytes of a file that no format recognises.
    """
    if not any(head):
        found = "zeros only" if head else "an empty file"
        return found, "a model file; the transfer may have been cut off"
    if network := _DLIB_NETWORK.fullmatch(head):
        name = network[1].decode("ascii").rstrip("_")
        found = f"a neural network of dlib ({name}), such as its CNN face detector"
        return found, "a HOG-SVM detector (.svm) or a landmark model (.dat) of dlib"
    for signature, found, advice in _SIGNATURES:
        if head.startswith(signature):
            return found, advice
    described = _describe_python(head) or _describe_text(head)
    if described is None and len(head) < 9:
        described = f"only {len(head)} bytes", "a model file; the transfer may have been cut off"
    return described or (f"bytes {head[:8].hex(' ')}", "")


def _describe_python(head: bytes) -> tuple[str, str] | None:
    if head.startswith(b"PK\x03\x04"):
        if b"/data.pkl" in head or b"archive/" in head:
            return "a PyTorch file (a zip archive with a pickle)", _EXPORT
        return "a zip archive", "the file inside; unzip it first"
    if head[0] == 0x80 and len(head) > 1 and 2 <= head[1] <= 5:
        return "a Python pickle", f"{_EXPORT}, or a file saved by dlib's save method"
    return None


def _describe_text(head: bytes) -> tuple[str, str] | None:
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:512].lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page", _DOWNLOAD
    if start.startswith(b"<"):
        if b"opencv_storage" in start or b"cascade" in start:
            return "an OpenCV cascade", "a detector of dlib (.svm)"
        return "an XML file (a data set?)", "a model file"
    if start.startswith(b"{"):
        return "JSON text", _DOWNLOAD
    if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head[:64]):
        return f"text beginning {head[:24].decode('latin-1')!r}", "a model file"
    return None
