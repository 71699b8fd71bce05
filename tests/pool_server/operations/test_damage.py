"""Files that were lost or damaged: found, named, left out of backups, and brought back.

And what only seems so, because the pool goes on serving.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pool_server.operations.checking import check_pool
from pool_server.operations.maintenance import Pool, open_pool_offline
from pool_server.storage import LocalStorage
from pool_server.storage.s3 import S3Storage
from tests.pool_server.conftest import OpenPool
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, announce, upload

API = "/api/v1"


@pytest.fixture(scope="module")
def driver(open_pool: OpenPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    with open_pool(tmp_path_factory.mktemp("damage")) as driver:
        yield driver


@pytest.fixture
def pool(driver: PoolDriver) -> Iterator[Pool]:
    """The same pool as the commands on its own machine open it."""
    with open_pool_offline(driver.settings) as pool:
        yield pool


def overwrite(pool: Pool, digest: str, content: bytes | None) -> None:
    """Have the storage lose a published file, or give it other bytes, behind the pool's back."""
    storage = pool.storage
    if isinstance(storage, LocalStorage):
        path = storage.blobs / digest[:2] / digest
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        return
    assert isinstance(storage, S3Storage)
    pointer = storage.bucket.read(storage.places.published(digest), 4096)
    assert pointer is not None
    key = storage.places.blob(json.loads(pointer)["upload_id"])
    storage.bucket.delete(key)
    if content is not None:
        storage.bucket.write(key, content)


def kinds(problems: Any) -> list[tuple[str, str]]:
    return [(each.kind, each.subject) for each in problems]


@pytest.mark.both_shapes
def test_a_lost_file_comes_back_when_its_site_uploads_it_again(
    driver: PoolDriver, pool: Pool
) -> None:
    member, content = driver.member("lab"), network_bytes(50_000, seed=3)  # several parts
    before = upload(member, "lab/lost", content, labels={"population": "infant"})
    overwrite(pool, sha256(content), None)
    assert member.get(f"{API}/models/lab/lost/versions/1/content").status_code == 500
    found = check_pool(pool).problems
    assert kinds(found) == [("file-missing", "lab/lost@1")]
    assert "poolctl upload FILE --name lab/lost" in found[0].text
    opened = announce(member, "lab/lost", content)
    assert (opened.status_code, opened.json()["state"]) == (201, "receiving")
    assert announce(member, "lab/lost", content).json()["upload_id"] == opened.json()["upload_id"]
    # Another site that may copy it has to send it as well.
    rights = {"visibility": "consortium", "rights": ["download", "merge", "redistribute"]}
    assert member.put(f"{API}/models/lab/lost/sharing", json=rights).is_success
    assert announce(driver.member("other-lab"), "other-lab/copy", content).status_code == 201
    after = upload(member, "lab/lost", content, description="said anew, and of no account")
    same = ("version", "digest", "description", "labels", "created_at", "state")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert member.get(f"{API}/models/lab/lost/versions/1/content").content == content
    assert announce(member, "lab/lost", content).json()["state"] == "complete"
    assert check_pool(pool).problems == ()
