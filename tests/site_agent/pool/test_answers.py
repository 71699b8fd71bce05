"""Answers that are truthful, but about another subject than the request."""

import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from aggregators.formats import write_model
from site_agent import ModelCache, PoolClient
from site_agent.errors import PoolAnswerError
from site_agent.pool.client import ModelQuery
from site_agent.pool.signing import create_key
from site_agent.pool.storage_connection import MOST_ANSWER_BYTES
from tests.aggregators.small_models import make_detector
from tests.pool_server.storage.faulty_s3 import Answer, Fault, FaultyProxy
from tests.site_agent.live_pool import LivePool, live_pool

MODELS = "/api/v1/models"


@dataclass
class LyingPool(FaultyProxy):
    """Stands before a real pool and alters requests to it as `instead` says.

    Attributes
    ----------
    instead : dict of str to str
        Replacements in the path and the body of a request.
    changed : callable
        Given the path of a request and the body of its answer, returns headers and the body to
        send.
    """

    instead: dict[str, str] = field(default_factory=dict)
    changed: Callable[[str, bytes], tuple[dict[str, str], bytes]] = lambda _, body: ({}, body)

    def receive(self, _head: str, path: str, body: bytes) -> tuple[str, bytes]:
        for asked, other in self.instead.items():
            path, body = path.replace(asked, other), body.replace(asked.encode(), other.encode())
        return path, body

    def __enter__(self) -> "LyingPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fault_of(self, _method: str, path: str) -> Fault:
        return partial(self.change, path)

    def change(self, path: str, answer: Answer) -> Answer:
        headers, body = self.changed(path, answer.body)
        return Answer(answer.status, [*headers.items()], body)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LivePool]:
    """A pool with two versions of site-a/face and one of site-b/other, all signed."""
    folder = tmp_path_factory.mktemp("pool")
    with live_pool(folder) as pool, pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOL_HOME", str(folder / "home"))
        for site, name, count in (("site-a", "face", 2), ("site-b", "other", 1)):
            with PoolClient(pool.url, pool.tokens[site]) as client:
                made = create_key(client.signatures.key_folder, site)
                client.signatures.register_key(made.key, site, "laptop")
                for number in range(count):
                    path = folder / f"{name}-{number}.svm"
                    write_model(make_detector(number + 10 * count), path)
                    client.upload(path, f"{site}/{name}")
        yield pool


@pytest.fixture
def liar(honest: LivePool) -> Iterator[LyingPool]:
    with LyingPool(honest.url) as server:
        yield server


@pytest.fixture
def client(
    honest: LivePool, liar: LyingPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PoolClient]:
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("POOL_SIGNATURES", "require")
    cache = ModelCache(tmp_path / "cache")
    with PoolClient(liar.url, honest.tokens["site-a"], cache=cache, attempts=1) as opened:
        yield opened


def test_the_answers_of_an_honest_pool_are_believed(client: PoolClient) -> None:
    first = client.download("site-a/face@1").version
    assert client.download(f"site-a/face@sha256:{first.digest}").version == first
    assert client.download("site-a/face").version.version == 2
    assert [item.version for item in client.models.find(ModelQuery(name="face"))] == [2, 1]
    assert client.models.lineage_of_digest(first.digest).root == first.digest
    assert client.models.card("site-a/face@1").address == first.address
    assert client.models.sharing("site-a/face@1").visibility == "consortium"


@pytest.mark.parametrize("other", ["site-a/face/versions/1", "site-b/other/versions/1"])
def test_another_signed_version_is_not_believed(
    client: PoolClient, liar: LyingPool, other: str
) -> None:
    second = client.version("site-a/face@2")
    for reference in ("2", f"sha256:{second.digest}"):
        liar.instead = {f"site-a/face/versions/{reference}": other}
        with pytest.raises(PoolAnswerError, match=r"was asked for .*answered with"):
            client.download(f"site-a/face@{reference}")
    liar.instead = {"site-a/face/versions/latest": "site-b/other/versions/latest"}
    with pytest.raises(PoolAnswerError, match=r"answered with pool://site-b/other"):
        client.download("site-a/face")
    assert client.cache.entries() == []


def test_other_answers_are_compared_too(client: PoolClient, liar: LyingPool) -> None:
    second = client.version("site-a/face@2")
    liar.instead = {
        "versions/2": "versions/1",
        "site=site-a": "site=site-b",
        "site-a/k": "site-b/k",
    }
    liar.instead["face@2"] = "face@1"
    liar.instead[f"lineage/{second.digest}"] = f"lineage/{client.version('site-b/other').digest}"
    questions: list[Callable[[], object]] = [
        lambda: client.models.card("site-a/face@2"),
        lambda: client.signatures.statement(second),
        lambda: client.signatures.keys("site-a"),
        lambda: client.models.lineage_of_digest(second.digest),
        lambda: list(client.models.find(ModelQuery(site="site-a"))),
        lambda: client.withdrawals.preview("site-a/face@2"),
        lambda: client.models.export("site-a/face@2"),
    ]
    for ask in questions:
        with pytest.raises(PoolAnswerError, match=r"was asked for .*answered with"):
            ask()


def test_compressed_and_endless_answers_are_refused(client: PoolClient, liar: LyingPool) -> None:
    blank = bytes(MOST_ANSWER_BYTES + 1)
    liar.changed = lambda *_: ({"Content-Encoding": "gzip"}, gzip.compress(blank))
    with pytest.raises(PoolAnswerError, match=r"compressed answer \(gzip\)"):
        client.whoami()
    liar.changed = lambda *_: ({}, blank)
    with pytest.raises(PoolAnswerError, match="more than 67,108,864 bytes"):
        client.whoami()
