"""The cache by content."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from pool_server.wire.names import ModelAddress
from site_agent.errors import DigestMismatchError, NotFoundError
from site_agent.pool.cache import ModelCache


@pytest.fixture
def cache(tmp_path: Path) -> ModelCache:
    return ModelCache(tmp_path / "cache")


def put(cache: ModelCache, content: bytes, *, address: str = "", unused_s: float = 0.0) -> str:
    """Put a whole blob into the cache the way a download does."""
    digest = hashlib.sha256(content).hexdigest()
    cache.part_file(digest).write_bytes(content)
    path = cache.adopt(digest)
    moment = time.time() - unused_s
    os.utime(path, (moment, moment))
    if address:
        where = ModelAddress.parse(address)
        version = {"site": where.site, "name": where.name, "digest": digest}
        cache.remember("pool-8000", version | {"version": int(where.reference)}, "latest")
    return digest


def test_a_blob_is_found_by_its_digest_and_is_read_only(cache: ModelCache) -> None:
    digest = put(cache, b"model")
    path = cache.find(digest)
    assert path is not None
    assert path.read_bytes() == b"model"
    assert path.name == digest
    assert path.stat().st_mode & 0o222 == 0
    assert cache.find("0" * 64) is None


def test_nobody_else_reads_what_is_in_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        source = tmp_path / "given"
        source.mkdir()
        for folder in (tmp_path / "above" / "cache", source):
            cache = ModelCache(folder)
            whole, begun = (hashlib.sha256(content).hexdigest() for content in (b"one", b"two"))
            for digest, content in ((whole, b"one"), (begun, b"tw")):
                with cache.locked(digest), cache.open_part(digest) as file:
                    file.write(content)
            cache.adopt(whole)
            version = {"site": "site-a", "name": "face", "version": 1, "digest": whole}
            cache.remember("pool-8000", version, "latest")
            inside = list(folder.iterdir())
            assert {path.name for path in inside} == {"blobs", "locks", "refs"}
            files = [path for path in folder.rglob("*") if path.is_file()]
            assert len(files) == 7
            assert [oct(path.stat().st_mode & 0o777) for path in inside] == ["0o700"] * 3
            assert {path for path in files if path.stat().st_mode & 0o077} == set()
    finally:
        os.umask(before)
    assert (tmp_path / "above" / "cache").stat().st_mode & 0o777 == 0o700
    assert source.stat().st_mode & 0o777 == 0o777, "whose folder it is decides about it"


def test_what_leads_out_of_the_folder_is_no_digest(cache: ModelCache) -> None:
    for word in ("../../etc/passwd", "A" * 64, "", "0" * 63, "0" * 64 + "\n"):
        with pytest.raises(NotFoundError, match="not a digest"):
            cache.find(word)


def test_references_lead_to_what_the_pool_said(cache: ModelCache) -> None:
    digest = put(cache, b"model", address="site-a/face@2")
    for reference in ("", "latest", "2", f"sha256:{digest}"):
        known = cache.recall("pool-8000", ModelAddress("site-a", "face", reference))
        assert known is not None
        assert known["digest"] == digest
    assert cache.recall("pool-8000", ModelAddress("site-a", "face", "3")) is None
    assert cache.recall("other-pool", ModelAddress("site-a", "face", "2")) is None
    assert cache.entries()[0].addresses == ("pool://site-a/face@2",)
    assert cache.name_of(cache.path_of(digest)) == "site-a/face@2"
    assert cache.name_of(cache.path_of("0" * 64)) == "0" * 64
    assert cache.name_of(Path("mine.dat")) == "mine.dat"


def test_removing_takes_the_references_along(cache: ModelCache) -> None:
    digest = put(cache, b"model", address="site-a/face@2")
    assert cache.remove(digest)
    assert cache.find(digest) is None
    assert cache.recall("pool-8000", ModelAddress("site-a", "face", "2")) is None


def test_what_is_in_use_is_not_removed(cache: ModelCache) -> None:
    digest = put(cache, b"model")
    with cache.locked(digest):
        assert not cache.remove(digest)
    assert cache.find(digest) is not None


def test_a_copy_is_whole_and_verified(cache: ModelCache, tmp_path: Path) -> None:
    digest = put(cache, b"model")
    target = tmp_path / "mine.dat"
    target.write_bytes(b"something else")
    cache.copy_to(digest, target)
    assert target.read_bytes() == b"model"
    assert list(tmp_path.glob(".mine*")) == []


def test_a_damaged_blob_is_never_handed_out(cache: ModelCache, tmp_path: Path) -> None:
    digest = put(cache, b"model")
    path = cache.find(digest)
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(b"modem")
    with pytest.raises(DigestMismatchError, match="removed"):
        cache.copy_to(digest, tmp_path / "mine.dat")
    assert not (tmp_path / "mine.dat").exists()
    assert cache.find(digest) is None
