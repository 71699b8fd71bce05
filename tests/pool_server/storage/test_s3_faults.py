"""Every fault of an S3 server, on the pool's own connections, under everything a site does."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from pool_server.storage import s3_bucket
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    complete,
    pool_in_process,
    send_parts,
)
from tests.pool_server.storage.faulty_s3 import FAULTS, FaultyProxy
from tests.pool_server.swift_server import S3Server

pytestmark = pytest.mark.s3
API = "/api/v1"
CONTENT = network_bytes(200, seed=5)
PATIENCE_S = 120.0
# Those that hang take the time of the limits.
ALL = [pytest.param(name, marks=pytest.mark.slow) if name == "hang" else name for name in FAULTS]


@pytest.fixture(scope="module")
def proxy(swift: S3Server) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(swift.endpoint_url)
    yield proxy
    proxy.close()


@pytest.fixture(scope="module")
def faulty_pool(
    swift: S3Server, proxy: FaultyProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PoolDriver]:
    """Run a pool with the proxy before its own connections; its sites go to the S3 server."""
    settings = swift.pool_settings(
        swift.make_bucket("faults"),
        s3_endpoint_url=proxy.url,
        s3_public_endpoint_url=swift.endpoint_url,
        lease_s=3,
        poll_interval_s=0.05,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3_bucket, "SHORT_TIMEOUT_S", 2.0)
        patch.setattr(s3_bucket, "READ_TIMEOUT_S", 4.0)
        patch.setattr(s3_bucket, "PAUSE_S", 1)
        with pool_in_process(tmp_path_factory.mktemp("faults"), **settings) as pool:
            assert upload(pool.member("site-a"), "first", CONTENT).is_success
            yield pool


@pytest.fixture
def site(faulty_pool: PoolDriver, proxy: FaultyProxy) -> Iterator[httpx.Client]:
    yield faulty_pool.member("site-a")
    proxy.damage(None)


def patiently(act: Callable[[], httpx.Response]) -> httpx.Response:
    """Repeat a request after each 503, and after nothing else, as the client of a site does."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        answer = act()
        if answer.status_code != 503 or time.monotonic() > end_s:
            return answer
        time.sleep(0.1)


def upload(client: httpx.Client, name: str, content: bytes) -> httpx.Response:
    answer = patiently(lambda: announce(client, f"site-a/{name}", content))
    if answer.is_success and answer.json()["state"] != "complete":
        begun = answer.json()
        send_parts(client, begun, content)
        answer = patiently(lambda: complete(client, begun))
    return answer


def download(client: httpx.Client) -> httpx.Response:
    path = f"{API}/models/site-a/first/versions/1/content"
    answer = patiently(lambda: client.get(path))
    assert not answer.is_success or answer.content == CONTENT
    return answer


def merge(client: httpx.Client, name: str) -> dict[str, Any]:
    recipe = {
        "schema": "poolctl-recipe/1",
        "method": {"name": "fedavg", "version": 2},
        "options": {},
        "inputs": [{"digest": sha256(CONTENT)}],
    }
    request = {"site": "site-a", "name": name, "recipe": recipe}
    return client.post(f"{API}/merges", json=request).json()


def end_of(client: httpx.Client, job: dict[str, Any]) -> dict[str, Any]:
    end_s = time.monotonic() + PATIENCE_S
    while job["state"] in {"queued", "running"} and time.monotonic() < end_s:
        time.sleep(0.05)
        job = client.get(f"{API}/merges/{job['merge_id']}").json()
    return job


def look(client: httpx.Client) -> list[int]:
    """Return the answers to a page's, a list's and a search's address."""
    paths = ("/models", f"{API}/models", f"{API}/models?text=first", f"{API}/models/site-a/first")
    return [client.get(path).status_code for path in paths]


@pytest.mark.parametrize("fault", ALL)
@pytest.mark.parametrize("act", ["upload", "download", "merge", "pages and search"])
def test_one_fault_of_each_request_is_mended_and_blamed_on_nobody(
    site: httpx.Client, proxy: FaultyProxy, fault: str, act: str
) -> None:
    """The first answer to each kind of request is damaged; the next ones are not."""
    name = f"{act}-{fault}".replace(" ", "-").lower()
    proxy.damage(FAULTS[fault], is_once=True)
    if act == "upload":
        answer = upload(site, name, network_bytes(200))
        assert answer.status_code == 201, answer.text
        proxy.damage(None)
        assert site.get(f"{API}/models/site-a/{name}/versions/1/content").is_success
    elif act == "download":
        assert download(site).status_code == 200
    elif act == "merge":
        assert end_of(site, merge(site, name))["state"] == "finished"
    else:
        assert look(site) == [200] * 4
    assert proxy.hit or act == "pages and search"


# A storage that changes bytes in every answer cannot be told from one that has lost files.
@pytest.mark.parametrize(
    "fault",
    [
        name if name in {"cut", "503"} else pytest.param(name, marks=pytest.mark.slow)
        for name in FAULTS
        if name != "flipped byte"
    ],
)
def test_a_fault_that_stays_is_told_as_the_storage_s_and_passes(
    site: httpx.Client, proxy: FaultyProxy, fault: str
) -> None:
    name = f"stays-{fault}".replace(" ", "-").lower()
    content = network_bytes(200)
    proxy.damage(FAULTS[fault])
    job = merge(site, name)
    answers = [
        announce(site, f"site-a/{name}-sent", content),
        site.get(f"{API}/models/site-a/first/versions/1/content"),
    ]
    for answer in answers:
        assert answer.is_success or answer.status_code == 503, answer.text
    assert look(site) == [200] * 4
    assert site.get(f"{API}/merges/{job['merge_id']}").json()["state"] != "failed"
    proxy.damage(None)
    assert upload(site, f"{name}-sent", content).status_code == 201
    assert download(site).status_code == 200
    assert end_of(site, job)["state"] == "finished"


def test_the_breaker_refuses_at_once_and_says_when_to_come_again(
    site: httpx.Client, proxy: FaultyProxy
) -> None:
    proxy.damage(FAULTS["500"])
    answers = [
        site.get(f"{API}/models/site-a/first/versions/1/content")
        for _ in range(s3_bucket.MOST_FAILURES + 1)
    ]
    sent = len(proxy.hit)
    assert {answer.status_code for answer in answers} == {503}
    assert int(answers[-1].headers["Retry-After"]) > 0
    assert len(proxy.hit) == sent, "nothing more is sent"
    proxy.damage(None)
    assert download(site).status_code == 200
