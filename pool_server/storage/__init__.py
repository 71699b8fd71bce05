"""Storages for model files: a folder, or a bucket of an S3 server."""

from collections.abc import Callable

from pool_server.settings import PoolSettings
from pool_server.storage.contract import Checksum, PartWriter, Storage
from pool_server.storage.local import LocalStorage

__all__ = ["STORAGES", "Checksum", "LocalStorage", "PartWriter", "Storage", "open_storage"]


def open_folder(settings: PoolSettings) -> Storage:
    return LocalStorage(settings.storage_folder)


def open_bucket(settings: PoolSettings) -> Storage:
    # Loads boto3, which takes long; a pool on a folder does without.
    from pool_server.storage.s3 import S3Storage

    return S3Storage(settings)


STORAGES: dict[str, Callable[[PoolSettings], Storage]] = {"folder": open_folder, "s3": open_bucket}
"""By the setting `storage`."""


def open_storage(settings: PoolSettings) -> Storage:
    """Open the storage that the settings name."""
    return STORAGES[settings.storage](settings)
