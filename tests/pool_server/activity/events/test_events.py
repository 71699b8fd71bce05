"""The events of a site."""

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import pool_server
from pool_server.activity.events import TITLES, describe_event
from pool_server.registry.access import PUBLISH, QUARANTINE, RELEASE
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


def test_every_kind_of_event_has_a_sentence() -> None:
    assert {"version.flagged", "key.revoked", "model.deleted"} <= kinds_in_source()
    steps = {f"version.{step.word}" for step in (PUBLISH, QUARANTINE, RELEASE)}
    assert kinds_in_source() | steps == set(TITLES)
    assert describe_event("version.sung", "pool://a/b@1", {}) == "version.sung: a/b@1"


def kinds_in_source() -> set[str]:
    """Return the kinds of events that the server names: in constants, or where it writes one."""
    kinds = set()
    for path in Path(pool_server.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Assign(targets=[ast.Name(name)], value=ast.Constant(str(kind))):
                    kinds |= {kind} if name.endswith("_EVENT") else set()
                case ast.Call(func=ast.Name("write_event"), args=[_, _, ast.Constant(kind), *_]):
                    kinds.add(kind)
                case ast.Call(func=ast.Name("NewEvent"), args=[_, ast.Constant(kind), *_]):
                    kinds.add(kind)
    return kinds
