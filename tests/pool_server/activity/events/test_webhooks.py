"""Calling the addresses that sites gave."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pool_server.activity.events import calling, delivering
from pool_server.activity.events.calling import CallFailedError, call, is_public
from pool_server.activity.events.webhooks import MOST_WEBHOOKS
from pool_server.settings import PoolSettings
from tests.pool_server.activity.events.receiver import Receiver, receiving, wait_until
from tests.pool_server.conftest import OpenPool
from tests.pool_server.lineage.withdrawals.families import Family
from tests.pool_server.pool_driver import PoolDriver, error_of


@pytest.fixture(scope="module")
def calling_pool(
    open_pool: OpenPool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PoolDriver]:
    """A pool of a closed network, which calls this machine and is quick to try again."""
    with pytest.MonkeyPatch.context() as constants:
        constants.setattr(delivering, "FIRST_WAIT_S", 0.05)
        constants.setattr(delivering, "MOST_ATTEMPTS", 3)
        with open_pool(
            tmp_path_factory.mktemp("pool"),
            webhook_allow_http=True,
            webhook_allow_private=True,
            poll_interval_s=0.05,
        ) as pool:
            yield pool


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def create(client: httpx.Client, url: str, **fields: Any) -> dict[str, Any]:
    answer = client.post("/api/v1/webhooks", json={"url": url, **fields})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def listed(client: httpx.Client, webhook: dict[str, Any]) -> dict[str, Any]:
    [found] = [
        each
        for each in client.get("/api/v1/webhooks").json()["items"]
        if each["webhook_id"] == webhook["webhook_id"]
    ]
    assert isinstance(found, dict)
    return found


@pytest.mark.both_shapes
def test_an_event_arrives_signed(calling_pool: PoolDriver, receiver: Receiver) -> None:
    family = Family(calling_pool, "signed")
    family.add("a/model")
    admin = family.member("a", "admin")
    webhook = create(admin, receiver.url)
    assert webhook["secret"].startswith("hook_")
    assert "secret" not in listed(admin, webhook)
    family.withdraw("a/model", "quality")
    [arrived] = receiver.wait_for(1)
    assert arrived.is_signed_with(webhook["secret"])
    assert not arrived.is_signed_with("hook_another")
    assert arrived.headers["x-pool-event"] == "version.withdrawn"
    assert arrived.event == admin.get("/api/v1/events").json()["items"][0]
    wait_until(lambda: listed(admin, webhook)["waiting"] == 0)


def test_only_the_kinds_asked_for(calling_pool: PoolDriver, receiver: Receiver) -> None:
    family = Family(calling_pool, "kinds")
    family.add("a/base")
    family.add("a/merged", "a/base")
    create(family.member("a", "admin"), receiver.url, kinds=["version.flagged"])
    family.withdraw("a/base", "quality")
    [arrived] = receiver.wait_for(1)
    assert arrived.event["kind"] == "version.flagged"


def test_failures_are_tried_again_until_it_works(
    calling_pool: PoolDriver, receiver: Receiver
) -> None:
    family = Family(calling_pool, "again")
    family.add("a/model")
    admin = family.member("a", "admin")
    receiver.answers = [500, 503, 200]
    webhook = create(admin, receiver.url)
    family.withdraw("a/model", "quality")
    calls = receiver.wait_for(3)
    assert len({each.headers["x-pool-delivery"] for each in calls}) == 1
    assert all(each.is_signed_with(webhook["secret"]) for each in calls)
    wait_until(lambda: listed(admin, webhook)["waiting"] == 0)
    assert listed(admin, webhook)["disabled_at"] is None


def test_an_address_that_fails_for_good_is_disabled(
    calling_pool: PoolDriver, receiver: Receiver
) -> None:
    family = Family(calling_pool, "broken")
    family.add("a/model")
    family.add("a/other")
    admin = family.member("a", "admin")
    receiver.answers = [500]
    webhook = create(admin, receiver.url)
    family.withdraw("a/model", "quality")
    wait_until(lambda: listed(admin, webhook)["disabled_at"] is not None)
    assert len(receiver.calls) == 3
    assert listed(admin, webhook)["last_error"] == "it answered 500"
    family.withdraw("a/other", "quality")
    kinds = [event["kind"] for event in admin.get("/api/v1/events").json()["items"]]
    assert kinds == ["version.withdrawn", "webhook.disabled", "version.withdrawn"]
    assert listed(admin, webhook)["waiting"] == 0
    assert len(receiver.calls) == 3, "nothing is called any more"


def test_redirects_are_not_followed(calling_pool: PoolDriver, receiver: Receiver) -> None:
    admin = calling_pool.member("redirects", "admin")
    with receiving() as elsewhere:
        receiver.answers, receiver.location = [307], elsewhere.url
        webhook = create(admin, receiver.url)
        said = admin.post(f"/api/v1/webhooks/{webhook['webhook_id']}/test").json()
        assert said == {"delivered": False, "status": 307, "error": "it answered 307"}
        assert elsewhere.calls == []


def test_trying_and_deleting(calling_pool: PoolDriver, receiver: Receiver) -> None:
    family = Family(calling_pool, "tries")
    family.add("a/model")
    admin = family.member("a", "admin")
    webhook = create(admin, receiver.url)
    path = f"/api/v1/webhooks/{webhook['webhook_id']}"
    assert admin.post(f"{path}/test").json() == {"delivered": True, "status": 204, "error": ""}
    assert receiver.calls[0].event["kind"] == "webhook.test"
    other = family.member("b", "admin")
    for refused in (other.post(f"{path}/test"), other.delete(path)):
        assert error_of(refused) == (404, "webhook_not_found")
    assert admin.delete(path).status_code == 204
    assert admin.get("/api/v1/webhooks").json()["items"] == []
    family.withdraw("a/model", "quality")
    assert error_of(admin.delete(path)) == (404, "webhook_not_found")


def test_only_admins_and_not_too_many(calling_pool: PoolDriver) -> None:
    member = calling_pool.member("many")
    url = "https://lab.example/events"
    refused = member.post("/api/v1/webhooks", json={"url": url})
    assert error_of(refused) == (403, "not_allowed")
    admin = calling_pool.member("many", "admin")
    foreign = admin.post("/api/v1/webhooks", json={"url": url, "site": "admin"})
    assert error_of(foreign) == (403, "not_allowed")
    for _ in range(MOST_WEBHOOKS):
        create(admin, url)
    assert error_of(admin.post("/api/v1/webhooks", json={"url": url})) == (
        409, "too_many_webhooks",
    )  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "http://lab.example/events",
        "https://127.0.0.1/events",
        "https://[::1]:8443/events",
        "https://169.254.169.254/latest/meta-data",
        "https://user:word@lab.example/",
    ],
)
def test_addresses_that_a_pool_does_not_call(pool: PoolDriver, url: str) -> None:
    answer = pool.member("refused", "admin").post("/api/v1/webhooks", json={"url": url})
    assert answer.status_code == 422, answer.text
    assert pool.member("refused", "admin").get("/api/v1/webhooks").json()["items"] == []


def test_a_name_that_leads_inside_is_not_called(tmp_path: Path, receiver: Receiver) -> None:
    port = httpx.URL(receiver.url).port
    careful = PoolSettings(data_folder=tmp_path, webhook_allow_http=True)
    with pytest.raises(CallFailedError, match="no public address"):
        call(f"http://localhost:{port}/", b"{}", {}, careful)
    assert receiver.calls == []
    closed = careful.model_copy(update={"webhook_allow_private": True})
    assert call(f"http://localhost:{port}/", b"{}", {}, closed) == 204


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1:248:1893:25c8:1946", True),
        ("10.1.2.3", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("::1", False),
        ("fd00::1", False),
        ("::ffff:192.168.1.1", False),
        ("::ffff:93.184.216.34", False),
        ("64:ff9b::10.0.0.1", False),
        ("64:ff9b::93.184.216.34", False),
        ("64:ff9b:1::93.184.216.34", False),
        ("2001::93.184.216.34", False),
        ("2001:db8::1", False),
        ("2002:5db8:d822::1", False),
        ("3fff::1", False),
        ("4000::1", False),
        ("fec0::1", False),
        ("ff0e::1", False),
        ("2002:a00:1::1", False),
    ],
)
def test_which_addresses_are_public(address: str, expected: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is expected


def test_who_never_finishes_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "TIMEOUT_S", 0.5)
    """An answer that comes a byte at a time never meets the limit of a single wait."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stop = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                while not stop.wait(0.05):
                    try:
                        connection.sendall(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        settings = PoolSettings(
            data_folder=tmp_path,
            webhook_allow_http=True,
            webhook_allow_private=True,
        )
        with pytest.raises(CallFailedError, match="no answer in time"):
            call(f"http://127.0.0.1:{listener.getsockname()[1]}/", b"{}", {}, settings)
        stop.set()
        thread.join(10)


def test_a_suspended_site_hears_nothing_until_it_is_back(
    calling_pool: PoolDriver, receiver: Receiver
) -> None:
    family = Family(calling_pool, "paused")
    family.add("a/model")
    webhook = create(family.member("a", "admin"), receiver.url)
    site = f"/api/v1/sites/{family.site('a')}"
    assert calling_pool.admin.patch(site, json={"suspended": True}).status_code == 200
    family.withdraw("a/model", "quality", client=calling_pool.admin)
    with receiving() as other:
        # What is due is looked at in order: once this came, the other would have come.
        family.add("b/model")
        create(family.member("b", "admin"), other.url)
        family.withdraw("b/model", "quality")
        other.wait_for(1)
    assert receiver.calls == []
    assert calling_pool.admin.patch(site, json={"suspended": False}).status_code == 200
    [arrived] = receiver.wait_for(1)
    assert arrived.is_signed_with(webhook["secret"])
