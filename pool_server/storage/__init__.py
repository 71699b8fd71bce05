"""Storages for model files: a folder, or a bucket of an S3 server."""

from pool_server.settings import PoolSettings
from pool_server.storage.contract import Checksum, PartWriter, Storage
from pool_server.storage.local import LocalStorage

__all__ = ["Checksum", "LocalStorage", "PartWriter", "Storage", "open_storage"]


def open_storage(settings: PoolSettings) -> Storage:
    """Open the storage that the settings name."""
    if settings.storage == "folder":
        return LocalStorage(settings.storage_folder)
    # Loads boto3, which takes long; a pool on a folder does without.
    from pool_server.storage.s3 import S3Storage

    return S3Storage(settings)
