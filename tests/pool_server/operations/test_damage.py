"""Files that were lost or damaged: found, named, left out of backups, and brought back.

Also files that only seem lost, because the pool goes on serving.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pool_server.operations.backup import MANIFEST, check_snapshot, list_snapshots, make_backup
from pool_server.operations.maintenance import (
    Pool,
    Problem,
    check_pool,
    collect_garbage,
    open_pool_offline,
)
from pool_server.operations.restore import restore_snapshot
from pool_server.settings import PoolSettings
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


def remove_as_told(pool: Pool, problem: Problem) -> None:
    """Remove the file that the text of a problem names."""
    storage = pool.storage
    if isinstance(storage, LocalStorage):
        [path] = re.findall(r"remove the file (\S+),", problem.text)
        Path(path).unlink()
        return
    assert isinstance(storage, S3Storage)
    [key] = re.findall(r"remove the object (\S+) in the bucket", problem.text)
    storage.bucket.delete(key)


def kinds(problems: Any) -> list[tuple[str, str]]:
    return [(problem.kind, problem.subject) for problem in problems]


def test_files_that_come_and_go_meanwhile_are_no_damage(
    driver: PoolDriver, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = driver.member("lab")
    upload(member, "lab/first")
    listing, asking = pool.storage.published_digests, pool.storage.has_content
    passing = upload(member, "lab/passing")["digest"]
    came: list[str] = []

    def list_slowly() -> Iterator[str]:
        digests = list(listing())
        came.append(upload(member, "lab/came")["digest"])
        return iter(digests)

    def ask_late(digest: str) -> bool:
        if asking(passing):
            assert member.delete(f"{API}/models/lab/passing/versions/1").is_success
            collect_garbage(pool, remove=True)
        return asking(digest)

    with monkeypatch.context() as patched:
        patched.setattr(pool.storage, "published_digests", list_slowly)
        patched.setattr(pool.storage, "has_content", ask_late)
        report = check_pool(pool)
    assert kinds(report.problems) == []
    assert asking(came[0])
    assert not asking(passing)


@pytest.mark.both_shapes
def test_a_lost_file_comes_back_when_its_site_uploads_it_again(
    driver: PoolDriver, pool: Pool
) -> None:
    member, content = driver.member("lab"), network_bytes(50_000, seed=3)  # several parts
    before = upload(member, "lab/lost", content, labels={"population": "infant"})
    overwrite(pool, sha256(content), None)
    assert member.get(f"{API}/models/lab/lost/versions/1/content").status_code == 500
    problems = check_pool(pool).problems
    assert kinds(problems) == [("file-missing", "lab/lost@1")]
    assert "poolctl upload FILE --name lab/lost" in problems[0].text
    opened = announce(member, "lab/lost", content)
    assert (opened.status_code, opened.json()["state"]) == (201, "receiving")
    assert announce(member, "lab/lost", content).json()["upload_id"] == opened.json()["upload_id"]
    # Another site that may copy it has to send it as well.
    rights = {"visibility": "consortium", "rights": ["download", "merge", "redistribute"]}
    assert member.put(f"{API}/models/lab/lost/sharing", json=rights).is_success
    assert announce(driver.member("other-lab"), "other-lab/copy", content).status_code == 201
    after = upload(member, "lab/lost", content, description="a later text, which is ignored")
    same = ("version", "digest", "description", "labels", "created_at", "state")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert member.get(f"{API}/models/lab/lost/versions/1/content").content == content
    assert announce(member, "lab/lost", content).json()["state"] == "complete"
    assert check_pool(pool).problems == ()


def test_a_damaged_file_stops_no_backup_and_comes_back(
    driver: PoolDriver, pool: Pool, tmp_path: Path
) -> None:
    member, content = driver.member("lab"), network_bytes(500, seed=4)
    upload(member, "lab/damaged", content)
    whole = upload(member, "lab/whole")["digest"]
    overwrite(pool, sha256(content), content[:-1] + b"!")
    made = make_backup(pool, tmp_path / "backup")
    [kept] = list_snapshots(tmp_path / "backup")
    assert (kept.folder / MANIFEST).is_file()
    assert kept.missing == (sha256(content),)
    assert kept == made.snapshot
    [told] = check_snapshot(kept)
    assert sha256(content) in told
    assert not list((tmp_path / "backup" / "blobs").glob("*/*.tmp"))
    target = PoolSettings(data_folder=tmp_path / "target", port=0)
    target.data_folder.mkdir()
    assert restore_snapshot(target, kept).files == len(kept.files) - 1
    with open_pool_offline(target) as restored:
        assert restored.storage.has_content(whole)
        assert kinds(check_pool(restored).problems) == [("file-missing", "lab/damaged@1")]

    [problem] = check_pool(pool).problems
    assert (problem.kind, problem.subject) == ("file-damaged", "lab/damaged@1")
    assert announce(member, "lab/damaged", content).json()["state"] == "complete", "it is there"
    remove_as_told(pool, problem)
    assert upload(member, "lab/damaged", content)["version"] == 1
    assert member.get(f"{API}/models/lab/damaged/versions/1/content").content == content
    assert check_pool(pool).is_sound
    assert make_backup(pool, tmp_path / "backup").snapshot.missing == ()
