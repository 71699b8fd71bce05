"""Packing models of a pool into one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pool_server.wire.models.bundles import GrantedVersion, PortableVersion
from site_agent.bundles.writing import Blob, BundleWriter
from site_agent.errors import PoolAnswerError
from site_agent.pool import profiles
from site_agent.runs.progress import Progress, no_progress, part_of

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient

# Fetching takes the line, packing the disk: the shares of one progress bar.
_FETCHING_SHARE = 0.8


@dataclass(frozen=True)
class Exported:
    """A bundle that was written.

    Attributes
    ----------
    identifier : str
        SHA-256 of its manifest: to be told to whoever takes it in.
    addresses : tuple of str
        Parents before what was merged from them.
    """

    path: Path
    identifier: str
    addresses: tuple[str, ...]
    size_bytes: int


def export_bundle(
    pool: PoolClient,
    addresses: Sequence[str],
    destination: Path,
    *,
    with_parents: bool = False,
    evaluations: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Pack models with all that the pool knows of them; equal models give equal bytes.

    Parameters
    ----------
    addresses : sequence of str
        The newest version where none is named.
    with_parents : bool
        Also everything that they were merged from, as far as the pool has it and shows it.

    Raises
    ------
    ForbiddenError
        Some may not leave the pool; each is named with the reason.
    SignatureError
        What is not signed as it should be is not handed on.
    OSError
        The file cannot be written.
    """
    tell = progress or no_progress
    pinned = [pool.version(address).address for address in dict.fromkeys(addresses)]
    granted = pool.bundles.grant_export(pinned, with_parents=with_parents)
    writer = BundleWriter(destination)
    total, done = sum(each.size_bytes for each in granted), 0
    blobs = []
    with writer.collecting() as add:
        for item in granted:
            record = _record(pool, item, evaluations=evaluations)
            add(record)
            share, begun = item.size_bytes / max(total, 1), done / max(total, 1)
            path = pool.fetch(
                pool.version(item.address),
                progress=part_of(tell, _FETCHING_SHARE * begun, _FETCHING_SHARE * (begun + share)),
            ).path
            blobs.append(Blob(path, item.digest, item.size_bytes))
            done += item.size_bytes
        identifier = writer.write(blobs, part_of(tell, _FETCHING_SHARE, 1.0))
    return Exported(
        destination,
        identifier,
        tuple(each.address for each in granted),
        destination.stat().st_size,
    )


def _record(pool: PoolClient, item: GrantedVersion, *, evaluations: bool) -> PortableVersion:
    record = pool.bundles.portable_version(item.address, evaluations=evaluations)
    if (record.address, record.digest) != (item.address, item.digest):
        raise PoolAnswerError(
            f"{pool.endpoint} gave the record of {record.address} ({record.digest[:12]}...), asked "
            f"for was {item.address} ({item.digest[:12]}...)"
        )
    if record.statement is None or record.statement.origin is not None:
        return record
    # What was signed for this pool comes from it, for whoever takes it in elsewhere.
    origin = f"{record.site}@{profiles.host_of(pool.endpoint)}"
    statement = record.statement.model_copy(update={"origin": origin})
    return record.model_copy(update={"statement": statement})
