"""The feed of a site's events."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.pool_server.lineage.withdrawals.families import Family, three_merges
from tests.pool_server.pool_driver import PoolDriver, error_of


def read(client: httpx.Client, **parameters: Any) -> dict[str, Any]:
    answer = client.get("/api/v1/events", params=parameters)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_reading_continues_after_the_last_event(pool: PoolDriver) -> None:
    family = three_merges(pool, "feed")
    family.withdraw("a/bad", "quality")
    family.withdraw("c/fine", "licence")
    client = family.member("c", "viewer")
    whole = read(client)
    assert [event["kind"] for event in whole["items"]] == [
        "version.merged", "version.merged",
        "version.flagged", "version.withdrawn", "version.flagged",
    ]  # fmt: skip
    assert not whole["more"]
    pages, after = [], 0
    while True:
        page = read(client, after=after, limit=1)
        if not page["items"]:
            break
        pages += page["items"]
        after = page["last_id"]
    assert pages == whole["items"]
    assert read(client, after=after)["last_id"] == after
    assert len(read(client, kind="version.withdrawn")["items"]) == 1
    assert read(client, limit=1)["more"]


def test_a_site_reads_only_its_own_events(pool: PoolDriver) -> None:
    family = three_merges(pool, "own")
    family.withdraw("a/bad", "quality")
    assert read(family.member("d"))["items"] == []
    other = family.member("d", "admin").get("/api/v1/events", params={"site": family.site("c")})
    assert error_of(other) == (403, "not_allowed")
    flagged = {"site": family.site("c"), "kind": "version.flagged"}
    assert len(read(pool.admin, **flagged)["items"]) == 1


def test_a_request_can_wait_for_an_event(pool: PoolDriver) -> None:
    family = Family(pool, "wait")
    family.add("a/model")
    client = family.member("a")
    with ThreadPoolExecutor(1) as worker:
        waiting = worker.submit(read, client, wait_s=20)
        family.withdraw("a/model", "other", client=pool.member(family.site("a"), "admin"))
        assert [event["kind"] for event in waiting.result(540)["items"]] == ["version.withdrawn"]


@pytest.mark.both_shapes
def test_events_of_many_processes_arrive_in_order_without_gaps(pool: PoolDriver) -> None:
    family = Family(pool, "order")
    names = [f"a/model-{number}" for number in range(3)]
    for name in names:
        family.add(name)
    seen: list[dict[str, Any]] = []
    reader = family.member("a", "viewer")
    with ThreadPoolExecutor(3) as workers:
        jobs = [workers.submit(family.withdraw, name, "quality") for name in names]
        while True:
            # Asked before reading: what comes in between is read the next time.
            is_last = all(job.done() for job in jobs)
            page = read(reader, after=seen[-1]["event_id"] if seen else 0, limit=2)
            seen += page["items"]
            assert len(seen) <= len(names)
            if is_last and not page["items"]:
                break
        assert [job.result().status_code for job in jobs] == [200] * len(names)
    assert sorted(event["subject"] for event in seen) == [
        f"pool://{family.address(name)}@1" for name in names
    ]
