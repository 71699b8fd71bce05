"""The sites whose trained models may be in a model that one's own faces are fitted to.

``trusted_sites.toml`` beside the profiles has a list for each pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from site_agent.errors import InvalidInputError
from site_agent.pool import profiles
from site_agent.runs.lock import locked


def trusted_sites(pool: str) -> frozenset[str]:
    """Return the sites that are trusted here, of a pool's host and port (`profiles.host_of`)."""
    sites = profiles.read_toml(_file()).get(pool, [])
    if not isinstance(sites, list) or not all(isinstance(site, str) for site in sites):
        raise InvalidInputError(f"{_file()}: {pool!r} should be a list of names of sites")
    return frozenset(sites)


def set_trusted_sites(pool: str, sites: Iterable[str]) -> None:
    """Replace the list of a pool."""
    file = _file()
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked(file.with_name(f".{file.name}.lock")):
        content = profiles.read_toml(file)
        content[pool] = sorted(set(sites))
        profiles.write_private_toml(content, file)


def _file() -> Path:
    return profiles.config_folder() / "trusted_sites.toml"
