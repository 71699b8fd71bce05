"""The events of a site: of its own models, and of acts by others on them."""

import ast
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import pool_server
from pool_server.activity.events import TITLES, describe_event
from pool_server.registry.access import PUBLISH, QUARANTINE, RELEASE
from tests.pool_server.conftest import OpenPool
from tests.pool_server.lineage.withdrawals.families import Family, three_merges
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, error_of, upload
from tests.pool_server.rounds.round_driver import start_round, upload_base
from tests.pool_server.transfers.test_recipes import recipe_for


def read(client: httpx.Client, **parameters: Any) -> dict[str, Any]:
    answer = client.get("/api/v1/events", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


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
    assert {"version.flagged", "key.revoked"} <= kinds_in_source()
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


def heard(client: httpx.Client, kind: str, **parameters: Any) -> list[tuple[str, dict[str, Any]]]:
    answer = client.get("/api/v1/events", params={"kind": kind, "limit": 200, **parameters})
    return [(item["subject"], item["details"]) for item in answer.json()["items"]]


def test_an_owner_is_notified_of_downloads_merges_and_copies(pool: PoolDriver) -> None:
    owner, user = pool.member("uses"), pool.member("uses-b")
    content = network_bytes()
    version = upload(owner, "uses/face", content)
    for client in (owner, user, user, pool.member("uses-b", "viewer")):
        assert client.get("/api/v1/models/uses/face/versions/1/content").status_code == 200
    of_it = "pool://uses/face@1"
    assert heard(owner, "version.downloaded") == [(of_it, {"by": "uses-b"})], "once a site"
    for name, visibility in (("open", "consortium"), ("hidden", "private")):
        made = network_bytes()
        recipe = recipe_for(made, version["digest"], "0" * 64)
        upload(user, f"uses-b/{name}", made, recipe=recipe, visibility=visibility)
    assert heard(owner, "version.merged") == [
        (of_it, {"into": "pool://uses-b/open@1", "by": "uses-b"}),
        (of_it, {"into": "a private model", "by": "uses-b"}),
    ]
    merged = network_bytes()
    upload(owner, "uses/own", merged, recipe=recipe_for(merged, version["digest"]))
    assert len(heard(owner, "version.merged")) == 2, "not of what the site does itself"
    sharing = {"visibility": "consortium", "rights": ["download", "merge", "redistribute"]}
    assert owner.put("/api/v1/models/uses/face/sharing", json=sharing).status_code == 200
    upload(user, "uses-b/copy", content)
    assert heard(owner, "version.handed-on") == [
        (of_it, {"as": "pool://uses-b/copy@1", "by": "uses-b"})
    ]
    assert heard(user, "version.merged") + heard(user, "version.downloaded") == []


def test_sites_are_notified_of_invitations_to_a_round(pool: PoolDriver) -> None:
    _, address = upload_base(pool, "asked", seed=907)
    sites = ("round-a", "round-b", "round-c")
    started = start_round(pool, address, sites)
    asked = dict(heard(pool.member("round-b"), "round.asked"))[started["round_id"]]
    assert (asked["base"], asked["by"]) == (address, "round-a")
    assert started["round_id"] not in dict(heard(pool.member("round-a"), "round.asked"))


def test_curators_are_notified_of_waiting_drafts(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path, curated=True) as pool:
        version = upload(pool.member("drafting"), "drafting/face")
        assert version["state"] == "draft"
        [(subject, details)] = heard(pool.admin, "version.waiting")
        assert subject == f"sha256:{version['digest']}", "whoever reads this may not see drafts"
        assert details["see"] == "poolctl models ls --state waiting"
        assert heard(pool.member("drafting"), "version.waiting") == []
