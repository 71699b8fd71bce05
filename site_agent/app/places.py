"""Folders that the dialog may list: this user's own, never hidden ones, keys or devices.

An address of the app never holds a path: each listed folder gets a name that only this process
can read back.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from site_agent import own_folders
from site_agent.errors import InvalidInputError

MOST_ENTRIES = 1000
_SYSTEM = tuple(Path(name) for name in ("/dev", "/proc", "/sys", "/etc", "/boot"))
_HOMES = (Path("/home"), Path("/Users"), Path("C:/Users"))


@dataclass(frozen=True)
class Place:
    """A folder of the dialog."""

    id: str
    name: str
    path: Path


class Places:
    """The folders that this process has listed, by names that tell nothing."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._paths: dict[str, Path] = {}

    def starts(self, used: tuple[str, ...]) -> list[Place]:
        """Return the places to begin from: used folders, those of the home, drives."""
        home = Path.home()
        named = [Path(path) for path in used]
        named += [home / name for name in ("Videos", "Movies", "Documents", "Desktop")] + [home]
        with suppress(OSError, psutil.Error):
            named += [Path(part.mountpoint) for part in psutil.disk_partitions()]
        starts = {}
        for path in named:
            with suppress(InvalidInputError, OSError):
                starts[path] = self.place(path)
        return list(starts.values())

    def place(self, path: Path) -> Place:
        """Name a folder that may be listed."""
        real = allowed_folder(path)
        number = hmac.new(self._key, os.fsencode(real), hashlib.sha256).hexdigest()[:24]
        self._paths[number] = real
        return Place(number, real.name or str(real), real)

    def find(self, number: str) -> Place:
        """Return a listed folder, checked again."""
        if number not in self._paths:
            raise InvalidInputError("this folder was not listed; choose it again")
        return self.place(self._paths[number])

    def below(self, place: Place) -> list[Place]:
        """Return the folders in a folder."""
        with os.scandir(place.path) as entries:
            names = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        folders = []
        for name in names[:MOST_ENTRIES]:
            with suppress(InvalidInputError, OSError):
                folders.append(self.place(Path(name)))
        return folders


def found_below(folders: Iterable[Path], names: Set[str]) -> dict[str, list[Path]]:
    """Look for files by name in folders that may be listed, and one level below."""
    hits: dict[str, set[Path]] = {}
    for folder in folders:
        with suppress(OSError, InvalidInputError):
            with os.scandir(allowed_folder(folder)) as entries:
                inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
            for place in (folder, *map(Path, sorted(inner)[:MOST_ENTRIES])):
                if not place.name.startswith("."):
                    for name in names:
                        if (place / name).is_file() and not (place / name).is_symlink():
                            hits.setdefault(name, set()).add(place / name)
    return {name: sorted(paths) for name, paths in hits.items()}


def allowed_folder(path: Path) -> Path:
    """Return the real path of a folder that may be listed.

    Raises `InvalidInputError` with the reason where it may not.
    """
    try:
        real = path.resolve(strict=True)
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror or error}") from error
    if not real.is_dir():
        raise InvalidInputError(f"{path}: is a file, expected a folder")
    home, private = Path.home().resolve(), own_folders.config_folder().resolve()
    inner = real.relative_to(home) if real.is_relative_to(home) else real
    if any(part.startswith(".") for part in inner.parts):
        raise InvalidInputError(f"{path}: is hidden; expected a folder of videos")
    if real.is_relative_to(private) or any(real.is_relative_to(place) for place in _SYSTEM):
        raise InvalidInputError(f"{path}: belongs to the system or to poolctl, not to videos")
    # Homes lie side by side, but of root, whose home is next to all other folders.
    siblings = [part for part in (real, *real.parents) if part.parent == home.parent]
    if siblings and siblings[0] != home and home.parent in _HOMES:
        raise InvalidInputError(f"{path}: belongs to another user of this machine")
    if not os.access(real, os.R_OK | os.X_OK):
        raise InvalidInputError(f"{path}: may not be read by you")
    return real
