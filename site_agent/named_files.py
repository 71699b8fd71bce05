"""Find files by names in lists that another system may have written."""

import os
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path


def find_named(folder: Path, name: str) -> Path:
    """Return the file with a name from a list, relative to `folder`.

    The list may use backslashes (Windows), accents as characters of their own or combined with
    their letter (Unicode NFD of macOS, NFC), or UTF-8 bytes read as Latin-1 (dlib). The exact
    spelling is tried first. If no spelling exists, return the path with forward slashes.
    """
    for spelling in _spellings(name):
        if os.path.lexists(folder / spelling):
            return folder / spelling
    plain = name.replace("\\", "/")
    if Path(name).is_absolute():
        return Path(name)
    path = folder
    for part in plain.split("/"):
        named = path / part
        path = named if os.path.lexists(named) else path / _entries(path).get(_key(part), part)
    return path


def plain_name(name: str) -> str:
    """Return a name in the spelling by which two lists are compared."""
    return _key(name.replace("\\", "/").removeprefix("./"))


def _spellings(name: str) -> Iterator[str]:
    if "\0" in name:
        return
    yield name
    plain = name.replace("\\", "/")
    yield plain
    if plain.isascii():
        return
    for encoding in ("latin-1", "cp1252"):
        try:
            yield os.fsdecode(plain.encode(encoding))
        except UnicodeEncodeError:
            continue


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def _entries(folder: Path) -> dict[str, str]:
    """Return the names in a folder by their composed spelling."""
    try:
        return _listed(str(folder), folder.stat().st_mtime_ns)
    except (OSError, ValueError):
        return {}


@lru_cache(maxsize=64)
def _listed(folder: str, _changed: int) -> dict[str, str]:
    return {_key(entry.name): entry.name for entry in Path(folder).iterdir()}
