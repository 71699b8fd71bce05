"""Exporting models of a pool as a bundle; its format is described in `layout`."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from aggregators.whole_file import whole_file
from pool_server.wire.bundles import GrantedVersion, PortableVersion
from site_agent import bundles
from site_agent.errors import BundleRefusedError, InvalidInputError, PoolAnswerError
from site_agent.pool import profiles
from site_agent.work import Progress, no_progress, part_of
from site_agent.work.files import chunks

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient

# Fetching takes the line, packing the disk: the shares of one progress bar.
_FETCHING_SHARE = 0.8


@dataclass(frozen=True)
class Exported:
    """A bundle that was written."""

    path: Path
    identifier: str
    """SHA-256 of its manifest, for the importer."""
    addresses: tuple[str, ...]
    """Parents before their children."""
    size_bytes: int


def export_bundle(
    pool: "PoolClient",
    addresses: Sequence[str],
    destination: Path,
    *,
    with_parents: bool = False,
    evaluations: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Pack models with all that the pool knows of them; equal models give equal bytes.

    An address without a version means the newest. `with_parents` also packs their ancestors, as
    far as the pool has and shows them.

    Raises `ForbiddenError`: a model must not leave the pool. `SignatureError`: one is not signed as
    it should be.
    """
    report = progress or no_progress
    pinned = [pool.version(address).address for address in dict.fromkeys(addresses)]
    granted = pool.bundles.grant_export(pinned, with_parents=with_parents)
    writer = BundleWriter(destination)
    total, written = sum(item.size_bytes for item in granted), 0
    blobs = []
    with writer.collecting() as add:
        for item in granted:
            record = read_record(pool, item, evaluations=evaluations)
            add(record)
            share, begun = item.size_bytes / max(total, 1), written / max(total, 1)
            path = pool.fetch(
                pool.version(item.address),
                progress=part_of(
                    report, _FETCHING_SHARE * begun, _FETCHING_SHARE * (begun + share)
                ),
            ).path
            blobs.append(Blob(path, item.digest, item.size_bytes))
            written += item.size_bytes
        identifier = writer.write(blobs, part_of(report, _FETCHING_SHARE, 1.0))
    return Exported(
        destination, identifier, tuple(item.address for item in granted), destination.stat().st_size
    )


def read_record(pool: "PoolClient", item: GrantedVersion, *, evaluations: bool) -> PortableVersion:
    """Return the record of a version that may leave, with the place of its signing."""
    record = pool.bundles.portable_version(item.address, evaluations=evaluations)
    if (record.address, record.digest) != (item.address, item.digest):
        raise PoolAnswerError(
            f"{pool.endpoint} gave the record of {record.address} ({record.digest[:12]}...), asked "
            f"for was {item.address} ({item.digest[:12]}...)"
        )
    if record.statement is None or record.statement.origin is not None:
        return record
    # The pool supplies statements signed for it, so that importers elsewhere can verify them.
    origin = f"{record.site}@{profiles.host_of(pool.endpoint)}"
    statement = record.statement.model_copy(update={"origin": origin})
    return record.model_copy(update={"statement": statement})


@dataclass(frozen=True)
class Blob:
    """A model file to pack."""

    path: Path
    digest: str
    size_bytes: int


class BundleWriter:
    """Writes a bundle next to its destination, and moves it there as a whole."""

    def __init__(self, destination: Path) -> None:
        self.destination = destination

    @contextmanager
    def collecting(self) -> Iterator[Callable[[PortableVersion], None]]:
        """Yield a function that takes records and keeps them in a file, not in memory."""
        self._members: list[bundles.Member] = []
        with tempfile.NamedTemporaryFile(dir=self.destination.parent) as file:
            self._waiting = Path(file.name)

            def add(record: PortableVersion) -> None:
                content = bundles.record_bytes(record)
                if len(content) > bundles.MOST_RECORD_BYTES:
                    raise InvalidInputError(
                        f"the record of {record.address} has {len(content):,} bytes, expected at "
                        f"most {bundles.MOST_RECORD_BYTES:,}"
                    )
                number = len(self._members) + 1
                file.write(content)
                file.flush()
                self._members.append(
                    bundles.Member(
                        path=f"records/{number:05}.json",
                        size_bytes=len(content),
                        sha256=hashlib.sha256(content).hexdigest(),
                    )
                )

            yield add

    def write(self, blobs: list[Blob], progress: Progress) -> str:
        """Within `collecting`, write the collected records and the blobs; return the identifier."""
        unique = {blob.digest: blob for blob in blobs}
        ordered = [unique[digest] for digest in sorted(unique)]
        manifest = bundles.Manifest(
            schema=bundles.SCHEMA,
            members=(
                *self._members,
                *(
                    bundles.Member(
                        path=f"blobs/{blob.digest}", size_bytes=blob.size_bytes, sha256=blob.digest
                    )
                    for blob in ordered
                ),
            ),
        ).to_bytes()
        with whole_file(self.destination) as file:
            self._write_all(file, manifest, ordered, progress)
        return hashlib.sha256(manifest).hexdigest()

    def _write_all(
        self, file: BinaryIO, manifest: bytes, blobs: list[Blob], progress: Progress
    ) -> None:
        file.write(bundles.member_header(bundles.MANIFEST, len(manifest)))
        file.write(manifest + bundles.padding(len(manifest)))
        with self._waiting.open("rb") as waiting:
            position = 0
            for member in self._members:
                file.write(bundles.member_header(member.path, member.size_bytes))
                for chunk in chunks(waiting, position, member.size_bytes):
                    file.write(chunk)
                file.write(bundles.padding(member.size_bytes))
                position += member.size_bytes
        total, written = sum(blob.size_bytes for blob in blobs), 0
        for blob in blobs:
            file.write(bundles.member_header(f"blobs/{blob.digest}", blob.size_bytes))
            hasher = hashlib.sha256()
            with blob.path.open("rb") as source:
                for chunk in chunks(source, 0, blob.size_bytes):
                    hasher.update(chunk)
                    file.write(chunk)
                    written += len(chunk)
                    progress(written / max(total, 1), f"packing {blob.digest[:12]}")
            if hasher.hexdigest() != blob.digest:
                raise BundleRefusedError(
                    f"{blob.path}: expected the digest {blob.digest}, found "
                    f"{hasher.hexdigest()}; nothing was written"
                )
            file.write(bundles.padding(blob.size_bytes))
        file.write(bundles.END)
