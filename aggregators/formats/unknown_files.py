"""Advice for files that are not model files, by their first bytes."""

from __future__ import annotations

import re

_EXPORT = (
    "parameters saved with safetensors.torch.save_file(network.state_dict(), ...), "
    "or a file saved by dlib's save method"
)

# First bytes, what the file is, what to use instead.
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"BZh", "a bzip2 archive", "the file inside; decompress it first: bunzip2"),
    (b"\x1f\x8b", "a gzip archive", "the file inside; decompress it first: gunzip"),
    (b"PK\x03\x04", "a zip archive", "the file inside; unzip it first"),
    (b"version https://git-lfs", "a git-lfs pointer", "the file it points to; run: git lfs pull"),
    (b"<", "a web page or XML file", "a model file; download it again"),
)

# Version 1, then the length of the loss's name and the name: "loss_mmod_".
_DLIB_NETWORK = re.compile(rb"\x01\x01[\x01-\x20]{1,4}(loss_[a-z_]+).*", re.DOTALL)

_PART_OF_ROUND = re.compile(rb'"format":"poolctl-([a-z-]+-contribution|optimiser-state)"')


def describe_unknown_file(head: bytes) -> tuple[str, str]:
    """Return what a file seems to be, and what to use instead (may be empty).

    Parameters
    ----------
    head : bytes
        First bytes of a file that no format recognises.
    """
    if len(head) < 9:
        return f"only {len(head)} bytes", "a model file; the download may be incomplete"
    if network := _DLIB_NETWORK.fullmatch(head):
        name = network[1].decode("ascii").rstrip("_")
        found = f"a neural network of dlib ({name}), such as its CNN face detector"
        return found, "a HOG-SVM detector (.svm) or a landmark model (.dat) of dlib"
    if part := _PART_OF_ROUND.search(head):
        return f"a {part[1].decode().replace('-', ' ')}", "a model file; merge it with its base"
    zip_with_pickle = head.startswith(b"PK\x03\x04") and b"/data.pkl" in head
    if zip_with_pickle or (head[0] == 0x80 and 2 <= head[1] <= 5):
        return "a Python pickle or PyTorch file", _EXPORT
    for signature, found, advice in _SIGNATURES:
        if head.lstrip().startswith(signature):
            return found, advice
    return f"bytes {head[:8].hex(' ')}", ""
