"""Which version of the program this is."""

from __future__ import annotations


def installed_version() -> str:
    """Return the installed distribution's version; ``0+source`` when run from a bare checkout."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("poolctl")
    except PackageNotFoundError:
        return "0+source"
