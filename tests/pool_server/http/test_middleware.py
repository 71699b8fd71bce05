"""Identifiers, headers, limits and log lines around every request."""

import json
import logging
from typing import Any

import pytest

from pool_server.http.middleware import MOST_MEMBERS, count_members
from pool_server.wire.versions import API_VERSION, OLDEST_CLIENT, VERSION_HEADER
from tests.pool_server.pool_driver import PoolDriver, error_of
from tests.waiting import wait_until

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("path", ["/", "/healthz", "/api/v1/models", "/nowhere", "/openapi.json"])
def test_every_answer_has_the_security_headers(pool: PoolDriver, path: str) -> None:
    headers = pool.client(None).get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    # With none at all, browsers do not say either which site sent a form of a page.
    is_page = path in ("/", "/nowhere")
    assert headers["referrer-policy"] == ("same-origin" if is_page else "no-referrer")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers
    assert headers["x-request-id"]


def test_the_client_may_name_its_request(pool: PoolDriver) -> None:
    named = pool.admin.get("/api/v1/models/no/no", headers={"X-Request-ID": "mine-1"})
    assert named.headers["x-request-id"] == "mine-1"
    assert named.json()["error"]["request_id"] == "mine-1"
    odd = pool.admin.get("/healthz", headers={"X-Request-ID": "a b\tc"})
    assert odd.headers["x-request-id"] != "a b\tc"


def test_a_body_over_the_limit_is_refused(pool: PoolDriver) -> None:
    huge = b" " * (pool.settings.max_request_bytes + 1)
    assert error_of(pool.admin.post("/api/v1/sites", content=huge)) == (413, "too_large")
    unannounced = pool.admin.post("/api/v1/sites", content=iter([huge]))
    assert error_of(unannounced) == (413, "too_large")
    beside_a_part = f"/api/v1/uploads/{'0' * 32}/parts/1%0A"
    assert error_of(pool.admin.put(beside_a_part, content=huge)) == (413, "too_large")


def test_who_does_not_say_who_it_is_sends_little(pool: PoolDriver) -> None:
    nobody, body = pool.client(None), b"[" + b"1," * 10_000 + b"1]"
    assert error_of(nobody.post("/api/v1/sites", content=body)) == (413, "too_large")
    accept = "/api/v1/invitations/accept"
    assert error_of(nobody.post(accept, content=body)) == (413, "too_large")
    assert error_of(pool.admin.post(accept, content=body)) == (413, "too_large")
    assert error_of(nobody.post(accept, json={"secret": "x"}))[0] != 413


def test_unknown_names_are_counted_before_they_are_described(pool: PoolDriver) -> None:
    body = {"name": "many", **{f"k{number}": 0 for number in range(150_000)}}
    answer = pool.admin.post("/api/v1/sites", json=body)
    assert error_of(answer) == (422, "invalid_request")
    assert "more than 20,000 names" in answer.json()["error"]["message"]
    some = {"name": "some", **{f"k{number}": 0 for number in range(12)}}
    message = pool.admin.post("/api/v1/sites", json=some).json()["error"]["message"]
    assert message.count("body.k") == 5
    assert message.endswith("; and 7 more")
    assert count_members(b'{"a" \n: 1}' * MOST_MEMBERS + b'{"b\\\\": 2}') == MOST_MEMBERS + 1
    text = json.dumps({"text": json.dumps(dict.fromkeys(map(str, range(30_000)), 0))})
    assert count_members(text.encode()) == 1, "a text that is JSON is one value"


def test_what_cannot_be_read_is_named_but_not_repeated(pool: PoolDriver) -> None:
    answer = pool.admin.post("/api/v1/sites", json={"name": "NOT A NAME hunter2"})
    assert error_of(answer) == (422, "invalid_request")
    assert "body.name" in answer.json()["error"]["message"]
    assert "hunter2" not in answer.text
    assert error_of(pool.admin.post("/api/v1/sites", content=b"{")) == (422, "invalid_request")
    assert error_of(pool.admin.post("/api/v1/sites", content=b"\xff")) in {
        (422, "invalid_request"),
        (400, "invalid_request"),
    }
    assert error_of(pool.admin.put("/api/v1/sites")) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    "half", [rb'"\ud800"', rb'"\uD83D\u0041"', rb'"\\\udc00"', b'"\xed\xa0\x80"']
)
def test_text_that_is_not_unicode_is_refused_wherever_it_is(pool: PoolDriver, half: bytes) -> None:
    for start, end in (
        (b'{"name":', b"}"),
        (b'{"recipe":{"options":[', b"]}}"),
        (b'{"labels":{', b":1}}"),
    ):
        refused = pool.admin.post("/api/v1/uploads", content=start + half + end, headers=JSON)
        assert error_of(refused) == (422, "invalid_request")
        assert "not Unicode" in refused.json()["error"]["message"]
    for whole in (rb'{"name":"\ud83d\ude00"}', rb'{"name":"\\ud800"}'):
        read = pool.admin.post("/api/v1/sites", content=whole, headers=JSON)
        assert "body.name" in read.json()["error"]["message"]
    wide = pool.admin.post("/api/v1/sites", content='{"name":"x"}'.encode("utf-16"), headers=JSON)
    assert error_of(wide) == (422, "invalid_request")


def test_one_line_for_each_request_and_never_a_token(
    embedded_pool: PoolDriver, caplog: pytest.LogCaptureFixture
) -> None:
    pool = embedded_pool

    def lines() -> list[dict[str, Any]]:
        # Other servers of this process write what they were asked before.
        fields = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
        return [line for line in fields if str(line.get("request_id", "")).startswith("told-")]

    with caplog.at_level(logging.INFO, logger="pool_server.requests"):
        query = {"text": pool.admin_secret}
        pool.admin.get("/api/v1/models", params=query, headers={"X-Request-Id": "told-1"})
        wrong = pool.client("pool_wrong-secret")
        wrong.get("/api/v1/whoami", headers={"X-Request-Id": "told-2"})
        wait_until(lambda: len(lines()) == 2)  # written once the answer is out
    assert [line["status"] for line in lines()] == [200, 401]
    assert lines()[0]["path"] == "/api/v1/models"
    assert "GET /api/v1/models 200 in " in caplog.text
    assert "pool_" not in caplog.text.replace("pool_server", "")


@pytest.mark.parametrize(
    ("version", "code", "said"),
    [
        (OLDEST_CLIENT - 1, "client_too_old", "Install a newer poolctl here"),
        (API_VERSION + 1, "client_too_new", "upgrade the pool"),
    ],
)
def test_clients_too_old_or_too_new_learn_which_and_change_nothing(
    pool: PoolDriver, version: int, code: str, said: str
) -> None:
    name = f"by-{code}".replace("_", "-")
    headers = {VERSION_HEADER: str(version)}
    refused = pool.admin.post("/api/v1/sites", json={"name": name}, headers=headers)
    assert error_of(refused) == (426, code)
    assert said in refused.json()["error"]["hint"]
    assert name not in pool.admin.get("/api/v1/sites").text
    # Clients that name no version, as other programs do, and those in between are served.
    for fits in ({}, {VERSION_HEADER: str(API_VERSION)}, {VERSION_HEADER: "unknown"}):
        assert pool.admin.get("/api/v1/whoami", headers=fits).is_success
