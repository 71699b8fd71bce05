"""Downloaded models on this machine, by content.

::

    blobs/<sha256>               a whole, verified file (read-only)
    blobs/<sha256>.part          a download under way, or interrupted
    locks/<sha256>               held by the process that writes, copies or removes that blob
    refs/<pool>/<site>/<name>/<reference>.json
                                 the pool's answer for an address: the version with its digest

No links are needed, and any number of processes may use one cache. Only its owner can read the
files, because a site may share a model with few others.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from aggregators.whole_file import private_opener, sync_folder, whole_file, write_whole
from pool_server.wire.names import DIGEST_PATTERN, ModelAddress
from site_agent import own_folders
from site_agent.errors import DigestMismatchError, NotFoundError
from site_agent.work.files import portable_name, remove_file
from site_agent.work.locks import locked

_CHUNK_BYTES = 1 << 20
_PART = ".part"
_FOLDER_MODE, _FILE_MODE, _BLOB_MODE = 0o700, 0o600, 0o400


@dataclass(frozen=True)
class CacheEntry:
    """One file of the cache; `last_used_s` is in seconds since 1970."""

    digest: str
    size_bytes: int
    last_used_s: float
    complete: bool
    addresses: tuple[str, ...] = field(default_factory=tuple)


class ModelCache:
    """The cache in one folder: by default that of ``POOL_CACHE``, ``POOL_HOME`` or the platform."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or own_folders.cache_folder()
        self._blobs = self.folder / "blobs"
        self._locks = self.folder / "locks"
        self._refs = self.folder / "refs"

    def find(self, digest: str) -> Path | None:
        """Return the path of a whole blob and note that it was used; None if it is not here."""
        path = self.path_of(digest)
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        return path

    def path_of(self, digest: str) -> Path:
        """Return the path of a blob, whether or not it is here; it does not count as used."""
        return self._blobs / _require_digest(digest)

    def part_file(self, digest: str) -> Path:
        """Return where a download of `digest` is written until it is whole."""
        self._make(self._blobs)
        return self.path_of(digest).with_suffix(_PART)

    def open_part(self, digest: str) -> BinaryIO:
        """Open the part file of `digest`, to be read and added to."""
        return open(self.part_file(digest), "a+b", opener=private_opener)

    def adopt(self, digest: str) -> Path:
        """Move a part file into place; its bytes must have been verified by the caller."""
        blob, part = self.path_of(digest), self.part_file(digest)
        # Windows replaces no file that is read-only.
        remove_file(blob)
        part.replace(blob)
        blob.chmod(_BLOB_MODE)
        sync_folder(blob.parent)
        return blob

    def locked(self, digest: str, *, busy: Exception | None = None) -> AbstractContextManager[None]:
        """Hold the lock of one blob; see `site_agent.work.locks`."""
        self._make(self._locks)
        return locked(self._locks / _require_digest(digest), busy=busy)

    def copy_to(self, digest: str, destination: Path) -> None:
        """Copy a blob to a file, verified on the way and moved into place as a whole.

        A damaged blob (`DigestMismatchError`) is removed from the cache.
        """
        if not self.path_of(digest).is_file():
            raise NotFoundError(f"no file with the digest {digest} in {self.folder}")
        with self.path_of(digest).open("rb") as source, whole_file(destination) as target:
            hasher = hashlib.sha256()
            while chunk := source.read(_CHUNK_BYTES):
                hasher.update(chunk)
                target.write(chunk)
            actual_digest = hasher.hexdigest()
            if actual_digest != digest:
                # Windows removes no file that is open.
                source.close()
                self.remove(digest)
                raise DigestMismatchError(
                    f"{self.path_of(digest)}: expected the digest {digest}, found {actual_digest}; "
                    "the damaged file was removed",
                    hint="run the same command again to fetch it again",
                )

    def remember(self, pool: str, version: dict[str, Any], reference: str) -> None:
        """Store the pool's record of a version under each name that leads to it.

        `pool` is its host and port (`profiles.host_of`), `version` the JSON form of a
        `ModelVersionResponse`, `reference` the requested one: a number, ``latest`` or
        ``sha256:...``.
        """
        self._make(self._refs)
        folder = self._folder_of(pool, str(version["site"]), str(version["name"]))
        folder.mkdir(parents=True, exist_ok=True)
        # So that offline work finds it by whatever name it is asked for.
        names = {reference or "latest", str(version["version"]), f"sha256:{version['digest']}"}
        text = json.dumps(version, ensure_ascii=False, indent=2)
        for name in names:
            path = folder / f"{name.replace(':', '-')}.json"
            write_whole(path, text, mode=_FILE_MODE)

    def recall(self, pool: str, address: ModelAddress) -> dict[str, Any] | None:
        """Return the stored record of an address; None if the pool was never asked for it."""
        name = (address.reference or "latest").replace(":", "-")
        path = self._folder_of(pool, address.site, address.name) / f"{name}.json"
        return _read_reference(path)

    def versions_of_size(self, size_bytes: int) -> list[dict[str, Any]]:
        """Return the stored records of files of one size: candidates for a local file."""
        return [
            version
            for _path, version in self._references()
            if version.get("size_bytes") == size_bytes
        ]

    def name_of(self, path: Path) -> str:
        """Return the address of a blob, ``site-a/eyes@4``, and of another file its name."""
        if path == self._blobs / path.name:
            for _, version in self._references():
                if version["digest"] == path.name:
                    return f"{version['site']}/{version['name']}@{version['version']}"
        return path.name

    def entries(self) -> list[CacheEntry]:
        """Return everything in the cache, last used first."""
        addresses: dict[str, set[str]] = {}
        for _path, version in self._references():
            address = f"pool://{version['site']}/{version['name']}@{version['version']}"
            addresses.setdefault(str(version["digest"]), set()).add(address)
        entries = []
        for path in self._blobs.glob("*") if self._blobs.is_dir() else ():
            digest = path.name.removesuffix(_PART)
            if not re.fullmatch(DIGEST_PATTERN, digest):
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # another process removed or finished it
            entries.append(
                CacheEntry(
                    digest,
                    status.st_size,
                    status.st_mtime,
                    path.suffix != _PART,
                    tuple(sorted(addresses.get(digest, ()))),
                )
            )
        return sorted(entries, key=lambda entry: entry.last_used_s, reverse=True)

    def remove(self, digest: str) -> bool:
        """Remove a blob, its part file and references to it; False where somebody is using it."""
        try:
            with self.locked(digest, busy=BlockingIOError()):
                remove_file(self.path_of(digest))
                self.path_of(digest).with_suffix(_PART).unlink(missing_ok=True)
                for path, version in self._references():
                    if version["digest"] == digest:
                        path.unlink(missing_ok=True)
        except BlockingIOError:
            return False
        return True

    def _folder_of(self, pool: str, site: str, name: str) -> Path:
        return self._refs / pool / portable_name(site) / portable_name(name)

    def _make(self, folder: Path) -> None:
        """Make one of the cache's own folders; one that is there stays as it is."""
        for directory in (self.folder, folder):
            directory.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)

    def _references(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        for path in self._refs.glob("*/*/*/*.json") if self._refs.is_dir() else ():
            version = _read_reference(path)
            if version is not None:
                yield path, version


def _require_digest(digest: str) -> str:
    if not re.fullmatch(DIGEST_PATTERN, digest):
        raise NotFoundError(f"{digest!r} is not a digest; expected 64 digits 0-9, a-f")
    return digest


def _read_reference(path: Path) -> dict[str, Any] | None:
    try:
        version = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # absent, or written by a process that was killed: as good as absent
    known = isinstance(version, dict) and {"site", "name", "version", "digest"} <= version.keys()
    return version if known else None
