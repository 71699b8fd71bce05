"""``poolctl download``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.addresses import fetch, file_name_of, note_signature, size_words, warn_of_standing
from cli.frame.errors import OutputExistsError, UsageError
from cli.frame.options import DryRunOption, ForceOption, command, single
from cli.frame.output import Invocation, Reply

if TYPE_CHECKING:
    from pool_server.wire.models import ModelVersionResponse
    from site_agent.pool.client import PoolClient

app = single()


@command(
    app,
    "download",
    examples=[
        "download site-a/face-68",
        "download site-a/face-68@2 site-b/face-68 -o models/",
        "download pool://site-a/face-68@2 -o siteA.dat",
    ],
)
def download(
    invocation: Invocation,
    addresses: Annotated[
        list[str], typer.Argument(metavar="ADDRESS", help="[SITE/]NAME[@VERSION|@sha256:DIGEST].")
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|FOLDER",
            help="File or folder to write. Default: SITE--NAME--vN, here.",
        ),
    ] = "",
    force: ForceOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Download models from the pool.

    Files are verified against their digest and their site's signature, and kept in the cache. A
    cached model needs one small request, and none with POOL_OFFLINE=1. To resume an interrupted
    download, run the command again.

    The first download remembers the keys of a site. A signature by another key is refused, and so
    is a missing signature of a site with keys. POOL_SIGNATURES=require refuses everything unsigned;
    POOL_SIGNATURES=ignore checks no signatures.

    A withdrawn model is refused or causes a warning, depending on the reason. A model that was
    merged from one causes a warning.
    """
    is_folder = not output or output.endswith("/") or Path(output).is_dir()
    if len(addresses) > 1 and not is_folder:
        raise UsageError(f"-o {output}: several models need a folder; end its name with /")
    results = []
    with invocation.pool() as pool:
        # All are looked up before the first is fetched: a wrong one stops nothing half-way.
        versions = [pool.version(address) for address in dict.fromkeys(addresses)]
        for version in versions:
            name = file_name_of(version)
            destination = Path(output) / name if is_folder else Path(output)
            try:
                results.append(
                    _plan(version, destination)
                    if dry_run
                    else _place(invocation, pool, version, destination, force=force)
                )
            except Exception:
                for done in results:
                    invocation.note(f"written {done['path']}  ({done['note']})")
                raise
    lines = [f"{result['path']}  ({result['note']})" for result in results]
    return Reply({"items": results}, lines, [str(result["path"]) for result in results])


def _plan(version: ModelVersionResponse, destination: Path) -> dict[str, object]:
    note = f"would be {version.address}, {size_words(version.size_bytes)}"
    return _result(version, destination, 0, note)


def _place(
    invocation: Invocation,
    pool: PoolClient,
    version: ModelVersionResponse,
    destination: Path,
    *,
    force: bool,
) -> dict[str, object]:
    """Put a version's file where it is wanted, unless it is there already."""
    from site_agent.pool.restrictions import require_usable
    from site_agent.pool.sending import hash_file

    require_usable(version)
    if destination.is_dir():
        raise OutputExistsError(f"{destination}: is a folder; expected the name of a file")
    if destination.exists():
        with invocation.progress(f"check {destination}") as report:
            found = hash_file(destination, report)
        if found == version.digest:
            signature = pool.signatures.verify(version)
            note_signature(invocation, signature)
            warn_of_standing(invocation, version)
            note = f"{version.address}, {signature.words}, was there already"
            return _result(version, destination, 0, note, signature.status)
        if not force:
            raise OutputExistsError(
                f"{destination}: another file already exists (digest {found[:12]}..., "
                f"expected {version.digest[:12]}... of {version.address})"
            )
    downloaded = fetch(invocation, pool, version)
    destination.parent.mkdir(parents=True, exist_ok=True)
    pool.cache.copy_to(version.digest, destination)
    source = "from cache"
    if downloaded.received_bytes:
        source = size_words(version.size_bytes)
        if downloaded.received_bytes < version.size_bytes:
            source += f", the last {size_words(downloaded.received_bytes)} of it now"
    signature = downloaded.signature
    note = f"{version.address}, {source}, {signature.words}"
    return _result(version, destination, downloaded.received_bytes, note, signature.status)


def _result(
    version: ModelVersionResponse,
    path: Path,
    received_bytes: int,
    note: str,
    signature: str = "unchecked",
) -> dict[str, object]:
    from site_agent.pool.restrictions import warning_of

    return {
        "address": version.address,
        "digest": version.digest,
        "size_bytes": version.size_bytes,
        "path": path,
        "received_bytes": received_bytes,
        "signature": signature,
        "warning": warning_of(version),
        "successors": version.successors,
        "note": note,
    }
