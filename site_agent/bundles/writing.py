"""Writing a bundle; its form stands in `site_agent.bundles.layout`."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aggregators.whole_file import whole_file
from pool_server.wire.models.bundles import PortableVersion
from site_agent.bundles.layout import (
    END,
    MANIFEST,
    MOST_RECORD_BYTES,
    SCHEMA,
    Manifest,
    Member,
    member_header,
    padding,
    record_bytes,
)
from site_agent.errors import BundleRefusedError, InvalidInputError
from site_agent.runs.file_chunks import chunks
from site_agent.runs.progress import Progress


@dataclass(frozen=True)
class Blob:
    """A model file that is to be packed."""

    path: Path
    digest: str
    size_bytes: int


class BundleWriter:
    """Writes a bundle beside its place, and moves it there as a whole."""

    def __init__(self, destination: Path) -> None:
        self.destination = destination

    @contextmanager
    def collecting(self) -> Iterator[Callable[[PortableVersion], None]]:
        """Give a function that takes records; they wait in a file, not in memory."""
        self._members: list[Member] = []
        with tempfile.NamedTemporaryFile(dir=self.destination.parent) as file:
            self._waiting = Path(file.name)

            def add(record: PortableVersion) -> None:
                content = record_bytes(record)
                if len(content) > MOST_RECORD_BYTES:
                    raise InvalidInputError(
                        f"the record of {record.address} has {len(content):,} bytes, expected at "
                        f"most {MOST_RECORD_BYTES:,}"
                    )
                number = len(self._members) + 1
                file.write(content)
                file.flush()
                self._members.append(
                    Member(
                        path=f"records/{number:05}.json",
                        size_bytes=len(content),
                        sha256=hashlib.sha256(content).hexdigest(),
                    )
                )

            yield add

    def write(self, blobs: list[Blob], progress: Progress) -> str:
        """Write everything that was collected, and the blobs; return the bundle's identifier.

        Within `collecting`.

        Raises
        ------
        BundleRefusedError
            A blob has other bytes than it should.
        """
        unique = {each.digest: each for each in blobs}
        ordered = [unique[digest] for digest in sorted(unique)]
        manifest = Manifest(
            schema=SCHEMA,
            members=(
                *self._members,
                *(
                    Member(
                        path=f"blobs/{each.digest}",
                        size_bytes=each.size_bytes,
                        sha256=each.digest,
                    )
                    for each in ordered
                ),
            ),
        ).to_bytes()
        with whole_file(self.destination) as file:
            self._write_all(file, manifest, ordered, progress)
        return hashlib.sha256(manifest).hexdigest()

    def _write_all(
        self, file: BinaryIO, manifest: bytes, blobs: list[Blob], progress: Progress
    ) -> None:
        file.write(member_header(MANIFEST, len(manifest)))
        file.write(manifest + padding(len(manifest)))
        with self._waiting.open("rb") as waiting:
            position = 0
            for member in self._members:
                file.write(member_header(member.path, member.size_bytes))
                for chunk in chunks(waiting, position, member.size_bytes):
                    file.write(chunk)
                file.write(padding(member.size_bytes))
                position += member.size_bytes
        total, done = sum(each.size_bytes for each in blobs), 0
        for blob in blobs:
            file.write(member_header(f"blobs/{blob.digest}", blob.size_bytes))
            hasher = hashlib.sha256()
            with blob.path.open("rb") as source:
                for chunk in chunks(source, 0, blob.size_bytes):
                    hasher.update(chunk)
                    file.write(chunk)
                    done += len(chunk)
                    progress(done / max(total, 1), f"packing {blob.digest[:12]}")
            if hasher.hexdigest() != blob.digest:
                raise BundleRefusedError(
                    f"{blob.path}: expected the digest {blob.digest}, found "
                    f"{hasher.hexdigest()}; nothing was written"
                )
            file.write(padding(blob.size_bytes))
        file.write(END)
