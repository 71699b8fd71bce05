"""The work of a site at home: train, evaluate, talk to the pool, analyse blinks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from site_agent.pool.cache import ModelCache
    from site_agent.pool.client import ModelQuery, PoolClient

__all__ = ["ModelCache", "ModelQuery", "PoolClient"]


def __getattr__(name: str) -> Any:
    """Load the public names when they are asked for: the command line starts faster without."""
    from importlib import import_module

    homes = {"ModelCache": "pool.cache", "ModelQuery": "pool.client", "PoolClient": "pool.client"}
    if name not in homes:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{homes[name]}"), name)
