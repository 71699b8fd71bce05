"""``poolctl download`` and ``cache``: fetch models, and look after the copies kept here."""

import time
from pathlib import Path
from typing import Annotated

from cli.frame import options
from cli.frame.errors import InputMissingError, OutputExistsError, UsageError
from cli.frame.output import Invocation, Reply, TableText
from pool_server.wire.models import ModelVersionResponse
from site_agent.pool.cache import CacheEntry, ModelCache
from site_agent.pool.client import PoolClient
from site_agent.pool.restrictions import require_usable, warning_of
from site_agent.pool.sending import hash_file
from site_agent.tasks.model_files import fetch, file_name_of, note_standing
from site_agent.wording import count_words, size_words

app = options.single()


@options.command(
    app,
    "download",
    "download site-a/face-68",
    "download site-a/face-68@2 site-b/face-68 -o models/",
    "download pool://site-a/face-68@2 -o siteA.dat",
)
def download(
    invocation: Invocation,
    addresses: Annotated[
        list[str], options.Argument("[SITE/]NAME[@VERSION|@sha256:DIGEST].", "ADDRESS")
    ],
    output: Annotated[
        str,
        options.Option("File or folder to write. Default: SITE--NAME--vN, here.", "FILE|FOLDER"),
    ] = "",
    force: options.ForceOption = False,
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
                results.append(_place(invocation, pool, version, destination, force=force))
            except Exception:
                for entry in results:
                    invocation.note(f"written {entry['path']}  ({entry['note']})")
                raise
    lines = [f"{result['path']}  ({result['note']})" for result in results]
    return Reply({"items": results}, lines, [str(result["path"]) for result in results])


def _place(
    invocation: Invocation,
    pool: PoolClient,
    version: ModelVersionResponse,
    destination: Path,
    *,
    force: bool,
) -> dict[str, object]:
    """Put a version's file where it is wanted, unless it is there already."""
    require_usable(version)
    if destination.is_dir():
        raise OutputExistsError(f"{destination}: is a folder; expected the name of a file")
    if destination.exists():
        with invocation.progress(f"check {destination}") as report:
            digest = hash_file(destination, report)
        if digest == version.digest:
            signature = pool.signatures.verify(version)
            note_standing(invocation, version, signature)
            note = f"{version.address}, {signature.words}, was there already"
            return _result(version, destination, 0, note, signature.status)
        if not force:
            raise OutputExistsError(
                f"{destination}: another file already exists (digest {digest[:12]}..., "
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
    version: ModelVersionResponse, path: Path, received_bytes: int, note: str, signature: str
) -> dict[str, object]:
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


# ``poolctl cache``: the models kept on this machine.
cache_app = options.group("List and remove the models cached on this machine.")


@options.command(cache_app, "ls", "cache ls", "cache ls --json")
def ls(_invocation: Invocation) -> Reply:
    """List cached models, last used first.

    'poolctl download' compares the one that it copies with its digest, and removes a damaged one.
    """
    cache = ModelCache()
    entries = cache.entries()
    rows = [
        [
            entry.digest[:12],
            ", ".join(entry.addresses),
            size_words(entry.size_bytes),
            "whole" if entry.complete else "partial",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_used_s)),
        ]
        for entry in entries
    ]
    total = sum(entry.size_bytes for entry in entries)
    columns = ["digest", "addresses", "size", "state", "last used"]
    table = TableText(columns, rows, empty="the cache is empty")
    data = {"folder": cache.folder, "size_bytes": total, "items": entries}
    footer = f"{count_words(len(entries), 'file')}, {size_words(total)} in {cache.folder}"
    return Reply(data, [table, footer], [entry.digest for entry in entries])


@options.command(cache_app, "rm", "cache rm 9f86d081884c", "cache rm site-a/face-68@2 --yes")
def rm(
    invocation: Invocation,
    models: Annotated[
        list[str], options.Argument("A digest, its first digits, or an address.", "DIGEST|ADDRESS")
    ],
    *,
    yes: options.YesOption = False,
) -> Reply:
    """Remove models from the cache; the pool keeps them."""
    cache = ModelCache()
    known = cache.entries()
    named = [entry for word in models for entry in _matching(invocation, known, word)]
    entries = list({entry.digest: entry for entry in named}.values())
    total = sum(entry.size_bytes for entry in entries)
    what = f"{count_words(len(entries), 'file')}, {size_words(total)}"
    invocation.confirm(f"Remove {what} from {cache.folder}?", assume_yes=yes)
    removed = [entry for entry in entries if cache.remove(entry.digest)]
    for entry in entries:
        if entry not in removed:
            invocation.warn(f"{entry.digest[:12]} is in use by another process and was kept")
    freed = sum(entry.size_bytes for entry in removed)
    gone = [entry.digest for entry in removed]
    data = {"removed": gone, "size_bytes": freed}
    return Reply(data, f"removed {count_words(len(removed), 'file')}, {size_words(freed)}", gone)


def _matching(invocation: Invocation, entries: list[CacheEntry], word: str) -> list[CacheEntry]:
    """Return the entries that a word means: an address, or the start of one digest."""
    text = word.removeprefix("sha256:")
    by_digest = [entry for entry in entries if len(text) >= 4 and entry.digest.startswith(text)]
    if len({entry.digest for entry in by_digest}) > 1:
        raise UsageError(f"{word}: {len(by_digest)} digests begin like this; give more digits")
    if by_digest:
        return by_digest
    is_digest = not set(text) - set("0123456789abcdef")
    address = word if is_digest else invocation.address(word)
    address = f"pool://{address.removeprefix('pool://')}"
    by_address = [
        entry
        for entry in entries
        if any(known == address or known.startswith(f"{address}@") for known in entry.addresses)
    ]
    if not by_address:
        raise InputMissingError(f"{word}: not in the cache; see poolctl cache ls")
    return by_address
