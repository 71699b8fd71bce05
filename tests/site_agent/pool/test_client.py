"""The pool from Python, against a real server."""

import hashlib
import socketserver
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from aggregators.formats import write_model
from pool_server.wire.people import IdentityResponse
from site_agent import ModelCache, PoolClient
from site_agent.errors import (
    ConflictError,
    DigestMismatchError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    NotLoggedInError,
    PoolAnswerError,
    PoolRefusedFileError,
    PoolRefusedRequestError,
    PoolUnreachableError,
)
from site_agent.pool.connection import PoolConnection
from tests.benchmarks.paper_size import make_paper_size_predictor
from tests.site_agent.live_pool import LivePool, UnreliableLine, live_pool


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePool]:
    with live_pool(tmp_path_factory.mktemp("pool")) as running:
        yield running


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Landmark models of some megabytes each, all different."""
    folder = tmp_path_factory.mktemp("models")
    paths = [folder / f"model-{seed}.dat" for seed in range(4)]
    for seed, path in enumerate(paths):
        write_model(make_paper_size_predictor(seed, levels=2, trees=100, depth=5), path)
    return paths


@pytest.fixture(scope="module")
def shared_model(pool: LivePool, models: list[Path]) -> Path:
    """A model that is in the pool as site-a/shared."""
    with PoolClient(pool.url, pool.tokens["site-a"]) as client:
        client.upload(models[0], "site-a/shared", labels={"population": "infant"})
    return models[0]


@pytest.fixture
def cache(tmp_path: Path) -> ModelCache:
    return ModelCache(tmp_path / "cache")


@pytest.fixture
def client(pool: LivePool, cache: ModelCache) -> Iterator[PoolClient]:
    with PoolClient(pool.url, pool.tokens["site-a"], cache=cache) as opened:
        yield opened


@pytest.fixture
def line(pool: LivePool) -> Iterator[UnreliableLine]:
    with UnreliableLine(pool.url) as opened:
        yield opened


@pytest.fixture
def far_client(line: UnreliableLine, pool: LivePool, cache: ModelCache) -> Iterator[PoolClient]:
    """A client at the other end of the line."""
    with PoolClient(line.url, pool.tokens["site-a"], cache=cache) as opened:
        yield opened


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_model_goes_up_and_comes_down_unchanged(client: PoolClient, models: list[Path]) -> None:
    told: list[float] = []
    upload = client.upload(
        models[0],
        "site-a/round-trip",
        description="for tests",
        labels={"population": "infant"},
        metrics={"mean_error": 0.07},
        progress=lambda fraction, _text: told.append(fraction),
    )
    assert upload.version.digest == digest_of(models[0])
    assert upload.version.kind == "ert"
    assert (upload.version.labels, upload.version.metrics) == (
        {"population": "infant"},
        {"mean_error": 0.07},
    )
    assert upload.sent_bytes == models[0].stat().st_size
    assert told == sorted(told)
    assert told[-1] == 1.0
    received = client.download("site-a/round-trip")
    assert received.path.read_bytes() == models[0].read_bytes()
    assert received.received_bytes == models[0].stat().st_size


def test_a_file_that_the_pool_has_is_not_sent_again(
    far_client: PoolClient, line: UnreliableLine, models: list[Path]
) -> None:
    first = far_client.upload(models[1], "site-a/twice")
    before = line.sent_bytes
    again = far_client.upload(models[1], "site-a/twice")
    assert again.sent_bytes == 0
    assert again.version == first.version
    assert line.sent_bytes - before < 10_000


def test_a_cached_download_is_one_request_without_model_bytes(
    far_client: PoolClient, line: UnreliableLine, shared_model: Path
) -> None:
    far_client.download("site-a/shared@1")
    requests, received = line.requests, line.received_bytes
    again = far_client.download("site-a/shared@1")
    assert again.received_bytes == 0
    assert line.requests - requests == 1
    assert line.received_bytes - received < 10_000


def test_a_download_goes_on_after_the_line_breaks(
    far_client: PoolClient, line: UnreliableLine, shared_model: Path
) -> None:
    size_bytes = shared_model.stat().st_size
    line.cut_after_bytes, line.cuts_left = size_bytes // 3, 2
    received = far_client.download("site-a/shared")
    assert line.cuts_left == 0
    assert digest_of(received.path) == digest_of(shared_model)
    assert line.received_bytes < 1.4 * size_bytes, "nothing came twice"


def test_an_upload_goes_on_after_the_line_breaks(
    far_client: PoolClient, line: UnreliableLine, models: list[Path]
) -> None:
    line.cut_after_bytes, line.cuts_left = models[3].stat().st_size // 4, 2
    upload = far_client.upload(models[3], "site-a/broken-upload")
    assert line.cuts_left == 0
    assert upload.version.digest == digest_of(models[3])


def test_a_part_file_is_continued_and_not_fetched_again(
    client: PoolClient, shared_model: Path, cache: ModelCache
) -> None:
    content = shared_model.read_bytes()
    cache.part_file(digest_of(shared_model)).write_bytes(content[:-1000])
    received = client.download("site-a/shared")
    assert received.received_bytes == 1000
    assert received.path.read_bytes() == content


def test_bytes_that_do_not_fit_are_never_shown(
    client: PoolClient, shared_model: Path, cache: ModelCache
) -> None:
    digest = digest_of(shared_model)
    cache.part_file(digest).write_bytes(b"x" * 5000)
    with pytest.raises(DigestMismatchError, match=r"expected [0-9a-f]{64}; nothing was kept"):
        client.download("site-a/shared")
    assert cache.find(digest) is None
    assert cache.entries() == []
    assert digest_of(client.download("site-a/shared").path) == digest


def test_many_at_once_fetch_a_model_once(
    pool: LivePool, line: UnreliableLine, shared_model: Path, cache: ModelCache
) -> None:
    def fetch(_number: int) -> int:
        with PoolClient(line.url, pool.tokens["site-b"], cache=cache) as other_client:
            received = other_client.download("site-a/shared")
            assert digest_of(received.path) == digest_of(shared_model)
            return received.received_bytes

    with ThreadPoolExecutor(4) as workers:
        counts = sorted(workers.map(fetch, range(4)))
    assert counts == [0, 0, 0, shared_model.stat().st_size]


def test_offline_the_cache_is_all_there_is(
    client: PoolClient, shared_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.download("site-a/shared")
    monkeypatch.setenv("POOL_OFFLINE", "1")
    for address in ("site-a/shared", "site-a/shared@1"):
        assert client.download(address).path.read_bytes() == shared_model.read_bytes()
    with pytest.raises(NotFoundError, match="POOL_OFFLINE"):
        client.download("site-a/shared@2")
    with pytest.raises(PoolUnreachableError, match="POOL_OFFLINE"):
        client.whoami()
    monkeypatch.setenv("POOL_OFFLINE", "0")
    assert client.whoami().site == "site-a"


def test_errors_are_told_apart(
    client: PoolClient, pool: LivePool, models: list[Path], cache: ModelCache, tmp_path: Path
) -> None:
    with (
        PoolClient(pool.url, "no-such-token", cache=cache) as stranger,
        pytest.raises(NotLoggedInError),
    ):
        stranger.whoami()
    with (
        PoolClient(pool.url, pool.tokens["reader"], cache=cache) as reader,
        pytest.raises(ForbiddenError),
    ):
        reader.upload(models[0], "site-a/not-mine")
    with pytest.raises(ForbiddenError):
        client.upload(models[0], "site-b/not-mine")
    with pytest.raises(ForbiddenError):
        client.sites.create("new-site")
    with pytest.raises(NotFoundError):
        client.version("site-a/never-heard-of")
    with pytest.raises(InvalidInputError, match="expected SITE/NAME"):
        client.version("Not An Address")
    with pytest.raises(PoolRefusedRequestError, match="labels"):
        client.upload(models[0], "site-a/x", labels={"UPPER": "case"})
    with PoolClient(pool.url, pool.admin_token, cache=cache) as admin, pytest.raises(ConflictError):
        admin.sites.create("site-a")
    stranger_file = tmp_path / "letter.dat"
    stranger_file.write_text("Dear colleague")
    with pytest.raises(PoolRefusedFileError):
        client.upload(stranger_file, "site-a/letter")
    stranger_file.write_bytes(b"")
    with pytest.raises(PoolRefusedRequestError, match="empty"):
        client.upload(stranger_file, "site-a/letter")


class _Script(BaseHTTPRequestHandler):
    """Answers by a list of (status, headers, body); remembers the requests."""

    answers: list[tuple[int, dict[str, str], bytes]]
    asked: list[dict[str, str]]

    def do_GET(self) -> None:
        self.asked.append(dict(self.headers))
        status, headers, body = self.answers.pop(0)
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def scripted() -> Iterator[tuple[str, type[_Script]]]:
    """A plain web server with scripted answers."""
    script = type("Script", (_Script,), {"answers": [], "asked": []})
    with HTTPServer(("127.0.0.1", 0), script) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", script
        server.shutdown()
        thread.join()


IDENTITY = IdentityResponse(site="site-a", token_name="laptop", role="viewer", expires_at=None)


def test_what_passes_is_waited_for(scripted: tuple[str, type[_Script]], cache: ModelCache) -> None:
    url, script = scripted
    script.answers = [
        (503, {}, b""),
        (429, {"Retry-After": "1"}, b""),
        (200, {}, IDENTITY.model_dump_json().encode()),
    ]
    with PoolClient(url, "token", cache=cache) as client:
        assert client.whoami() == IDENTITY
    assert len(script.asked) == 3


def test_what_does_not_pass_is_given_up(
    scripted: tuple[str, type[_Script]], cache: ModelCache
) -> None:
    url, script = scripted
    script.answers = [(503, {}, b"")] * 3 + [(429, {"Retry-After": "86400"}, b"")]
    with PoolClient(url, "token", cache=cache, attempts=3) as client:
        with pytest.raises(PoolUnreachableError, match="503"):
            client.whoami()
        with pytest.raises(PoolUnreachableError) as caught:
            client.whoami()
        assert "86400" in caught.value.hint


def test_another_program_at_the_address_is_recognised(
    scripted: tuple[str, type[_Script]], cache: ModelCache
) -> None:
    url, script = scripted
    script.answers = [(200, {}, b"<html>hello</html>"), (301, {"Location": "/x"}, b"")]
    with PoolClient(url, "token", cache=cache) as client:
        with pytest.raises(PoolAnswerError, match="IdentityResponse"):
            client.whoami()
        with pytest.raises(PoolAnswerError, match="301"):
            client.whoami()


def test_a_pool_that_speaks_tls_is_asked_for_by_https() -> None:
    class Hangup(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4096)

    with socketserver.TCPServer(("127.0.0.1", 0), Hangup) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        line = PoolConnection(f"http://127.0.0.1:{server.server_address[1]}", "secret", attempts=1)
        with pytest.raises(PoolUnreachableError, match="does not answer in plain HTTP") as refused:
            line.send("GET", "/part")
        assert "try https" in refused.value.hint
        line.close()
        server.shutdown()


def test_the_token_goes_to_no_other_host(scripted: tuple[str, type[_Script]]) -> None:
    url, script = scripted
    script.answers = [(200, {}, b"")] * 2
    line = PoolConnection("http://localhost:1", "secret")
    line.send("GET", f"{url}/part")
    assert "Authorization" not in script.asked[0]
    line.close()
    line = PoolConnection(url, "secret")
    line.send("GET", "/part")
    assert script.asked[1]["Authorization"] == "Bearer secret"
    line.close()
