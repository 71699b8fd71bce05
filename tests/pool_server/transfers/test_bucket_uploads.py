"""Uploads to and downloads from a pool with a bucket that moves the bytes itself."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pages.browser import Browser
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, pool_in_process, upload
from tests.pool_server.swift_server import S3Server
from tests.pool_server.transfers.test_kills import killed_while_completing, require_whole_or_nothing
from tests.waiting import wait_until

pytestmark = pytest.mark.s3
ENTRIES = 50_000  # some 200 kB, four parts


@pytest.fixture(scope="module")
def bucket_pool(swift: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    settings = swift.pool_settings(swift.make_bucket("uploads"))
    with pool_in_process(tmp_path_factory.mktemp("bucket-pool"), **settings) as driver:
        yield driver


def ask(client: httpx.Client, opened: dict[str, Any], *parts: dict[str, Any]) -> httpx.Response:
    return client.post(f"/api/v1/uploads/{opened['upload_id']}/parts", json={"parts": parts})


def test_parts_go_elsewhere(bucket_pool: PoolDriver) -> None:
    client, content = bucket_pool.admin, network_bytes(ENTRIES)
    opened = announce(client, "admin/elsewhere", content).json()
    checksum = "0" * 64
    addresses = ask(client, opened, *({"number": n, "checksum": checksum} for n in (2, 1))).json()
    assert [part["number"] for part in addresses["items"]] == [2, 1]
    assert all(part["url"].startswith("http://") for part in addresses["items"])
    assert all(part["headers"]["Content-Length"] == "65536" for part in addresses["items"])


def test_a_browser_sends_its_parts_through_the_pool(bucket_pool: PoolDriver) -> None:
    browser, content = Browser(bucket_pool).log_in(bucket_pool.admin_secret), network_bytes(ENTRIES)
    assert 'id="drop"' in browser.get("/upload").text
    headers = {"X-CSRF": browser.csrf("/upload")}
    file = {"file_name": "b.safetensors", "size_bytes": len(content), "digest": sha256(content)}
    opened = browser.client.post("/uploads", data={"name": "by-browser", **file}, headers=headers)
    assert opened.status_code == 200, opened.text
    path = f"/uploads/{opened.json()['upload_id']}"
    for part in opened.json()["parts"]:
        body = content[part["offset"] : part["offset"] + part["size_bytes"]]
        sent = browser.client.put(f"{path}/parts/{part['number']}", content=body, headers=headers)
        assert sent.status_code == 204, sent.text
    completed = browser.client.post(f"{path}/complete", headers=headers)
    assert completed.json()["version"]["address"] == "pool://admin/by-browser@1"
    address = "/api/v1/models/admin/by-browser/versions/1/content"
    assert bucket_pool.admin.get(address).content == content


@pytest.mark.parametrize(
    ("part", "code"),
    [
        ({"number": 1}, "part_mismatch"),
        ({"number": 1, "checksum": "0" * 32}, "part_mismatch"),
        ({"number": 5, "checksum": "0" * 64}, "part_mismatch"),
        ({"number": 0, "checksum": "0" * 64}, "invalid_request"),
        ({"number": 1, "checksum": "../" * 8}, "invalid_request"),
    ],
)
def test_addresses_that_are_not_given(
    bucket_pool: PoolDriver, part: dict[str, Any], code: str
) -> None:
    client, content = bucket_pool.admin, network_bytes(ENTRIES)
    opened = announce(client, "admin/not-given", content).json()
    assert error_of(ask(client, opened, part)) == (422, code)


def test_a_download_is_led_to_the_storage(bucket_pool: PoolDriver) -> None:
    client, content = bucket_pool.admin, network_bytes(ENTRIES)
    upload(client, "admin/led", content, file_name="Gäze.safetensors")
    address = "/api/v1/models/admin/led/versions/1/content"
    led = client.get(address, follow_redirects=False)
    assert led.status_code == 307
    assert led.headers["cache-control"] == "no-store"
    assert bucket_pool.admin_secret not in led.headers["location"]
    # The address needs no token: for those minutes it is the permission.
    answer = httpx.get(led.headers["location"], verify=False, trust_env=False, timeout=540)
    assert answer.content == content
    assert answer.headers["content-disposition"] == (
        "attachment; filename*=UTF-8''G%C3%A4ze.safetensors"
    )
    asked = client.head(address, follow_redirects=False)
    assert (asked.status_code, asked.headers["content-length"]) == (200, str(len(content)))


@pytest.mark.slow
@pytest.mark.parametrize("moment", [pytest.param("joined", marks=pytest.mark.slow), "published"])
def test_killed_while_completing(swift: S3Server, tmp_path: Path, moment: str) -> None:
    content = network_bytes(ENTRIES)
    bucket = swift.make_bucket(f"killed-{moment}")
    settings = swift.pool_environment(bucket, part_bytes=65536)
    digest = sha256(content)
    key = {"joined": "blobs/", "published": f"published/{digest[:2]}/{digest}"}[moment]
    with killed_while_completing(
        tmp_path, content, lambda: wait_for_key(swift, bucket, key), **settings
    ) as client:
        assert not list((tmp_path / "scratch").iterdir())
        require_whole_or_nothing(client, content)


def wait_for_key(server: S3Server, bucket: str, prefix: str) -> None:
    listed = partial(server.client().list_objects_v2, Bucket=bucket, Prefix=prefix)
    wait_until(lambda: listed().get("KeyCount"), interval_s=0)
