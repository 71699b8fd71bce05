"""``poolctl cache``: the models kept on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.addresses import size_words
from cli.frame.errors import InputMissingError, UsageError, VerificationError
from cli.frame.options import DryRunOption, YesOption, command, group
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.quantities import SIZE_UNITS, count_words, read_quantity

if TYPE_CHECKING:
    from site_agent.pool.cache import CacheEntry, ModelCache

app = group("List, verify and remove the models cached on this machine.")

_AGE_UNITS_S = {"h": 3600, "d": 86400, "w": 7 * 86400}


@command(app, "ls", examples=["cache ls", "cache ls --json"])
def ls(_invocation: Invocation) -> Reply:
    """List cached models, last used first."""
    cache = _cache()
    entries = cache.entries()
    rows = [
        [
            entry.digest[:12],
            size_words(entry.size_bytes),
            "whole" if entry.complete else "partial",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_used_s)),
            ", ".join(entry.addresses),
        ]
        for entry in entries
    ]
    total = sum(entry.size_bytes for entry in entries)
    table = TableText(
        ["digest", "size", "state", "last used", "addresses"], rows, empty="the cache is empty"
    )
    data = {"folder": cache.folder, "size_bytes": total, "items": entries}
    footer = f"{count_words(len(entries), 'file')}, {size_words(total)} in {cache.folder}"
    return Reply(data, [table, footer], [entry.digest for entry in entries])


@command(
    app,
    "rm",
    examples=[
        "cache rm 9f86d081884c",
        "cache rm site-a/face-68@2 --yes",
        "cache rm --max-size 10GB",
        "cache rm --older-than 30d --dry-run",
    ],
)
def rm(
    invocation: Invocation,
    models: Annotated[
        Sequence[str],
        typer.Argument(metavar="DIGEST|ADDRESS", help="A digest, its first digits, or an address."),
    ] = (),
    *,
    max_size: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Remove the longest unused models until the cache is this small, for "
            "example 10GB.",
        ),
    ] = "",
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Remove models not used for this time: 12h, 30d, 8w.")
    ] = "",
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Remove models from the cache, by name or the longest unused; the pool keeps them."""
    if bool(models) == bool(max_size or older_than):
        raise UsageError("name models, or give --max-size, --older-than or both")
    cache = _cache()
    entries = cache.entries()
    if models:
        named = [entry for word in models for entry in _matching(invocation, entries, word)]
        chosen = list({entry.digest: entry for entry in named}.values())
        return _remove(invocation, cache, chosen, yes=yes, dry_run=dry_run)
    surplus = cache.prunable(
        max_bytes=int(read_quantity(max_size, SIZE_UNITS, "--max-size")) if max_size else None,
        max_age_s=read_quantity(older_than, _AGE_UNITS_S, "--older-than") if older_than else None,
    )
    return _remove(invocation, cache, surplus, yes=yes, dry_run=dry_run)


@command(app, "verify", examples=["cache verify", "cache verify --remove"])
def verify(
    invocation: Invocation,
    remove: Annotated[bool, typer.Option("--remove", help="Remove damaged files.")] = False,
) -> Reply:
    """Verify the digest of every cached model."""
    cache = _cache()
    entries = [entry for entry in cache.entries() if entry.complete]
    total = sum(entry.size_bytes for entry in entries)
    damaged, done = [], 0
    with invocation.progress("verify") as report:
        for entry in entries:
            report(done / max(total, 1), entry.digest[:12])
            if not cache.is_intact(entry.digest):
                damaged.append(entry)
            done += entry.size_bytes
    if damaged and not remove:
        names = ", ".join(entry.digest[:12] for entry in damaged)
        raise VerificationError(
            f"damaged in {cache.folder}: {len(damaged)} of "
            f"{count_words(len(entries), 'file')}: {names}; "
            "remove them with: poolctl cache verify --remove"
        )
    for entry in damaged:
        cache.remove(entry.digest)
    digests = [entry.digest for entry in damaged]
    data = {"verified": len(entries), "size_bytes": total, "removed": digests}
    text = f"{count_words(len(entries), 'file')}, {size_words(total)}: {len(damaged)} damaged"
    return Reply(data, f"{text}{' and removed' if damaged else ''}", digests)


def _cache() -> ModelCache:
    from site_agent.pool.cache import ModelCache

    return ModelCache()


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


def _remove(
    invocation: Invocation,
    cache: ModelCache,
    entries: list[CacheEntry],
    *,
    yes: bool,
    dry_run: bool,
) -> Reply:
    total = sum(entry.size_bytes for entry in entries)
    what = f"{count_words(len(entries), 'file')}, {size_words(total)}"
    digests = [entry.digest for entry in entries]
    if dry_run or not entries:
        data = {"removed": [], "would_remove": digests, "size_bytes": total}
        return Reply(data, f"would remove {what}" if entries else "nothing to remove", digests)
    invocation.confirm(f"Remove {what} from {cache.folder}?", assume_yes=yes)
    removed = [entry for entry in entries if cache.remove(entry.digest)]
    for entry in entries:
        if entry not in removed:
            invocation.warn(f"{entry.digest[:12]} is in use by another process and was kept")
    freed = sum(entry.size_bytes for entry in removed)
    gone = [entry.digest for entry in removed]
    data = {"removed": gone, "would_remove": [], "size_bytes": freed}
    return Reply(data, f"removed {count_words(len(removed), 'file')}, {size_words(freed)}", gone)
