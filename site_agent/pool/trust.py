"""Trust on this machine: the keys of sites, pinned when first met, and the sites to work with.

``trust.toml`` next to the profiles holds, for each pool and site, the keys that its signatures may
be made with. The keys of an unknown site are taken from the pool, with a notice; from then on any
other key is refused until somebody, having asked the site, trusts it explicitly.
``trusted_sites.toml`` lists, for each pool, the trusted sites: only their models may be part of a
model that one's own faces are fitted to.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pool_server.wire.signatures import KeyResponse
from pool_server.wire.signatures.keys import PublicKey
from site_agent import own_folders
from site_agent.errors import InvalidInputError
from site_agent.pool import profiles
from site_agent.work.locks import locked

How = Literal["first use", "trusted"]


@dataclass(frozen=True)
class TrustedKey:
    """A key that a site's signatures may be made with."""

    key_id: str
    """SHA-256 of the raw key."""
    public_key: str
    name: str
    origin: str
    """``SITE@POOL`` for the key of an imported version; empty for one of the site itself."""
    how: str
    """``first use``, or ``trusted`` by a decision of the user."""
    since: str
    registered_at: str
    """Time at which the site registered the key, by the pool's account."""

    @property
    def public(self) -> PublicKey:
        """The key itself."""
        try:
            key = PublicKey.from_text(self.public_key)
        except ValueError as error:
            raise InvalidInputError(f"{trust_file()}: key {self.key_id}: {error}") from error
        if key.key_id != self.key_id:
            raise InvalidInputError(f"{trust_file()}: key {self.key_id} is actually {key.key_id}")
        return key


def trust_file() -> Path:
    """Return the path of ``trust.toml``."""
    return own_folders.config_folder() / "trust.toml"


def trusted_keys(pool: str, site: str) -> dict[str, TrustedKey]:
    """Return the keys pinned for a site of a pool (`profiles.host_of`), by their identifier."""
    return _keys_in(profiles.read_toml(trust_file()), pool, site)


def all_trusted_keys() -> Iterator[tuple[str, str, TrustedKey]]:
    """Yield pool, site and key of everything that is pinned."""
    content = profiles.read_toml(trust_file())
    for pool in sorted(content):
        for site in sorted(profiles.table(content, pool, trust_file())):
            for key in _keys_in(content, pool, site).values():
                yield pool, site, key


def trust_keys(pool: str, site: str, keys: Iterable[KeyResponse], how: How) -> list[TrustedKey]:
    """Pin further keys of a site; return the new ones."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with _changing(trust_file()) as content:
        entries = content.setdefault(pool, {}).setdefault(site, {})
        added = []
        for key in keys:
            if key.key_id in entries:
                continue
            entry = TrustedKey(
                key_id=key.key_id,
                public_key=key.public_key,
                name=key.name,
                origin=key.origin or "",
                how=how,
                since=now,
                registered_at=key.created_at.isoformat(timespec="seconds"),
            )
            fields = asdict(entry)
            entries[fields.pop("key_id")] = fields
            added.append(entry)
        return added


def forget_keys(pool: str, site: str, key_ids: Iterable[str]) -> None:
    """Take pinned keys away."""
    with _changing(trust_file()) as content:
        entries = content.get(pool, {}).get(site, {})
        for key_id in key_ids:
            entries.pop(key_id, None)
        if not entries:
            content.get(pool, {}).pop(site, None)
        if not content.get(pool, True):
            content.pop(pool, None)


@contextmanager
def _changing(file: Path) -> Iterator[dict[str, Any]]:
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked(file.with_name(f".{file.name}.lock")):
        content = profiles.read_toml(file)
        yield content
        profiles.write_private_toml(content, file)


def _keys_in(content: dict[str, Any], pool: str, site: str) -> dict[str, TrustedKey]:
    keys, pinned = {}, profiles.table(content, pool, trust_file())
    for key_id, fields in profiles.table(pinned, site, trust_file()).items():
        try:
            keys[key_id] = TrustedKey(key_id=key_id, **fields)
        except TypeError as error:
            raise InvalidInputError(f"{trust_file()}: key {key_id} of {site}: {error}") from error
    return keys


def trusted_sites(pool: str) -> frozenset[str]:
    """Return the sites that are trusted here, of a pool's host and port (`profiles.host_of`)."""
    sites = profiles.read_toml(_sites_file()).get(pool, [])
    if not isinstance(sites, list) or not all(isinstance(site, str) for site in sites):
        raise InvalidInputError(f"{_sites_file()}: {pool!r} should be a list of names of sites")
    return frozenset(sites)


def set_trusted_sites(pool: str, sites: Iterable[str]) -> None:
    """Replace the list of a pool."""
    with _changing(_sites_file()) as content:
        content[pool] = sorted(set(sites))


def _sites_file() -> Path:
    return own_folders.config_folder() / "trusted_sites.toml"
