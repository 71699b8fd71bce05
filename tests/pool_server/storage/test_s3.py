"""A bucket keeps the laws of storage, on an S3 server that checks signatures, and some more."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from pool_server.settings import PoolSettings
from pool_server.storage import Storage, open_storage
from tests.conformance.storage import StorageLaws
from tests.pool_server.swift_server import S3Server

pytestmark = pytest.mark.s3
_prefixes = itertools.count(1)


@pytest.fixture(scope="session")
def bucket(swift: S3Server) -> str:
    return swift.make_bucket("storage-laws")


def open_bucket(server: S3Server, bucket: str, folder: Path, **fields: Any) -> Storage:
    chosen = server.pool_settings(bucket, **fields)
    return open_storage(PoolSettings(data_folder=folder, **chosen))


class TestS3Storage(StorageLaws):
    @pytest.fixture
    def storage(self, swift: S3Server, bucket: str, tmp_path: Path) -> Storage:
        return open_bucket(swift, bucket, tmp_path, s3_prefix=f"laws-{next(_prefixes)}")
