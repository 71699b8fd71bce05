"""`poolctl upload` and `poolctl download` killed half-way, and run again."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregators.formats import file_digest, write_model
from pool_server.wire.uploads import UploadRequest, UploadResponse
from site_agent import ModelCache, ModelQuery, PoolClient
from site_agent.pool.connection import PoolConnection
from tests.benchmarks.paper_size import make_paper_size_predictor
from tests.cli.conftest import Run, run_process, start_process
from tests.pool_server.pool_driver import announce, pool_in_thread
from tests.site_agent.live_pool import LivePool, UnreliableLine, live_pool
from tests.waiting import wait_until

PART_BYTES = 2 << 20
LINE_BYTES_PER_S = 5_000_000


@pytest.fixture(scope="module")
def pool_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pool")


@pytest.fixture(scope="module")
def pool(pool_folder: Path) -> Iterator[LivePool]:
    with live_pool(pool_folder, part_bytes=PART_BYTES) as running:
        yield running


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A landmark model of some 25 MB."""
    path = tmp_path_factory.mktemp("models") / "large.dat"
    write_model(make_paper_size_predictor(3, levels=2), path)
    return path


def test_a_killed_upload_goes_on(
    pool: LivePool, pool_folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-a"])
    arguments = ("upload", model, "--name", "site-a/large", "--json")
    size_bytes, digest = model.stat().st_size, file_digest(model)
    request = UploadRequest(
        site="site-a", name="large", size_bytes=size_bytes, digest=digest, file_name=model.name
    )
    connection = PoolConnection(pool.url, pool.tokens["site-a"])
    client = PoolClient(pool.url, pool.tokens["site-b"])

    def received() -> int:
        state = connection.post("/api/v1/uploads", UploadResponse, request, repeatable=True)
        assert state.state == "receiving"
        return sum(part.size_bytes for part in state.parts if part.received)

    with UnreliableLine(pool.url) as line:
        line.bytes_per_s = LINE_BYTES_PER_S
        process = start_process(*arguments, POOL_ENDPOINT=line.url)
        wait_until(lambda: line.sent_bytes > 2 * PART_BYTES and received() >= 2 * PART_BYTES)
        process.kill()
        process.communicate()
    # The pool may be keeping a part at this moment whose sender is dead.
    wait_until(lambda: not list(pool_folder.glob("**/uploads/*/0*.tmp")))
    there_bytes = received()
    assert 2 * PART_BYTES <= there_bytes < size_bytes
    assert list(client.models.find(ModelQuery(name="large"))) == [], "nothing half is listed"

    again = run_process(*arguments, POOL_ENDPOINT=pool.url)
    assert again.data["sent_bytes"] == size_bytes - there_bytes
    assert again.data["version"]["digest"] == digest
    [version] = client.models.find(ModelQuery(name="large"))
    assert (version.digest, version.version) == (digest, 1)
    connection.close()
    client.close()


@pytest.mark.slow
def test_a_killed_download_goes_on(
    pool: LivePool, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-a"])
    with PoolClient(pool.url, pool.tokens["site-a"]) as client:
        digest = client.upload(model, "site-a/large").version.digest
    target = tmp_path / "folder" / "mine.dat"
    target.parent.mkdir()
    arguments = ("download", "site-a/large", "-o", target, "--json")
    part = ModelCache().part_file(digest)

    with UnreliableLine(pool.url) as line:
        line.bytes_per_s = LINE_BYTES_PER_S
        process = start_process(*arguments, POOL_ENDPOINT=line.url)
        wait_until(lambda: part.exists() and part.stat().st_size > 2 * PART_BYTES)
        process.kill()
        process.communicate()
        there_bytes = part.stat().st_size
        assert there_bytes < model.stat().st_size
        assert list(target.parent.iterdir()) == [], "no partial file is visible"
        assert ModelCache().find(digest) is None

    again = run_process(*arguments, POOL_ENDPOINT=pool.url)
    [item] = again.data["items"]
    assert f"{model.stat().st_size / 1e6:.1f} MB, the last " in item["note"]
    assert item["received_bytes"] == model.stat().st_size - there_bytes
    assert file_digest(target) == digest == file_digest(model)
    assert [path.name for path in target.parent.iterdir()] == ["mine.dat"]


@pytest.mark.slow
def test_an_interrupted_upload_says_130(
    pool: LivePool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-a"])
    other = tmp_path / "other.dat"
    write_model(make_paper_size_predictor(4, levels=2), other)
    with UnreliableLine(pool.url) as line:
        line.bytes_per_s = LINE_BYTES_PER_S
        arguments = ("upload", other, "--name", "site-a/interrupted")
        process = start_process(*arguments, POOL_ENDPOINT=line.url)
        wait_until(lambda: line.sent_bytes > PART_BYTES)
        line.bytes_per_s = 1  # Ctrl-C does not wait for a silent pool
        assert_ends_at_ctrl_c(process)


def assert_ends_at_ctrl_c(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    # Less than a connection waits for an answer.
    _, error = process.communicate(timeout=25)
    assert process.returncode == 130
    assert "Error: interrupted" in error
    assert "Hint: run the same command again to continue" in error
    assert "Traceback" not in error


def test_a_site_at_its_limit_ends_what_nobody_goes_on_with(
    poolctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pool_in_thread(tmp_path / "pool", max_open_uploads_per_site=2) as pool:
        monkeypatch.setenv("POOL_ENDPOINT", pool.url)
        monkeypatch.setenv("POOL_TOKEN", pool.secret("site-a", "contributor"))
        assert "no uploads" in poolctl("uploads").out
        member = pool.member("site-a")
        old, new = (
            announce(member, f"site-a/{name}", b"x" * 2000).json()["upload_id"]
            for name in ("old", "new")
        )
        refused = announce(member, "site-a/third", b"x").json()["error"]
        assert "poolctl uploads" in refused["hint"]
        shown = poolctl("uploads")
        assert "site-a/old" in shown.out
        assert "2.0 kB" in shown.out
        assert poolctl("uploads", "-q").out.split() == [new, old]
        assert poolctl("uploads", "--limit", "1", "--json").data["items"][0]["name"] == "new"
        assert poolctl("uploads", old[:9], "--cancel").code == 0
        assert poolctl("uploads", old, "--cancel", "--json").error["code"] == "not_found"
        assert poolctl("uploads", "site-a/new", "--cancel").code == 2
        assert announce(member, "site-a/third", b"x").status_code == 201
        assert poolctl("uploads", "--site", "admin", "--json").error["code"] == "forbidden"
