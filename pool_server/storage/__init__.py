"""Where model files lie: the contract and its members."""

from __future__ import annotations

from pool_server.storage.contract import PartWriter, Storage
from pool_server.storage.local import LocalStorage

__all__ = ["LocalStorage", "PartWriter", "Storage"]
