"""An S3 server that the tests of this folder share; each takes a bucket or prefix of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pool_server.swift_server import S3Server, swift_server


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with swift_server(tmp_path_factory.mktemp("swift")) as server:
        yield server
