"""The board of the secure sum: its users, its messages, its end."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from pool_server.app import open_parts
from pool_server.database.records import SecureSessionRecord, now_utc
from pool_server.operations.maintenance import collect_garbage, open_pool_offline
from pool_server.secure import endpoints, service
from tests.pool_server.pool_driver import PoolDriver, error_of, pool_in_process, upload
from tests.pool_server.secure.session_driver import (
    SESSIONS,
    announce_file,
    fetch_file,
    post,
    posts,
    send_file,
    session_request,
    start_session,
)

SITES = ("board-a", "board-b", "board-server")
OTHER = "board-other"


@pytest.fixture(scope="module", autouse=True)
def _sites(pool: PoolDriver) -> None:
    for site in (*SITES, OTHER):
        pool.secret(site, "contributor")


@pytest.mark.both_shapes
def test_sites_exchange_messages_and_files(pool: PoolDriver) -> None:
    lab, server = pool.member(SITES[0]), pool.member(SITES[2])
    key = start_session(lab, SITES, "exchange ä")
    assert key == hashlib.sha256("exchange ä".encode()).hexdigest()
    assert server.get(f"{SESSIONS}/{key}").json()["descriptor"] == "exchange ä"
    first = post(lab, key, SITES[0], "share", "{1}")
    assert first.status_code == 201
    assert post(lab, key, SITES[0], "share", "{1}").status_code == 200
    assert error_of(post(lab, key, SITES[0], "share", "{2}")) == (409, "post_exists")
    assert post(server, key, SITES[2], "share", "{3}").status_code == 201
    messages = posts(server, key)
    assert [(item["sender"], item["envelope"]) for item in messages] == [
        (SITES[0], "{1}"), (SITES[2], "{3}"),
    ]  # fmt: skip
    assert posts(server, key, first.json()["number"]) == messages[1:]
    content = os.urandom(300_000)
    assert send_file(lab, key, SITES[0], content).status_code == 201
    assert send_file(lab, key, SITES[0], content).json()["state"] == "complete"
    assert fetch_file(server, key, content).content == content


@pytest.mark.both_shapes
def test_one_of_many_messages_at_once_stands_and_none_is_missed(pool: PoolDriver) -> None:
    client = pool.member(SITES[0])
    key = start_session(client, SITES, "at once")
    with ThreadPoolExecutor(8) as threads:
        racing = list(
            threads.map(lambda n: post(client, key, SITES[0], "tag", f"{{{n}}}"), range(8))
        )
        assert sorted(answer.status_code for answer in racing) == [201, *[409] * 7]
        phases = [threads.submit(post, client, key, SITES[0], f"phase-{n}") for n in range(25)]
        seen: list[int] = []
        while not all(phase_future.done() for phase_future in phases):
            seen += [post["number"] for post in posts(client, key, seen[-1] if seen else 0)]
    while new := posts(client, key, seen[-1] if seen else 0):
        seen += [item["number"] for item in new]
    assert len(seen) == 26
    assert seen == sorted(set(seen))


def test_a_session_is_there_for_its_sites_only(pool: PoolDriver) -> None:
    lab, other = pool.member(SITES[0]), pool.member(OTHER)
    key = start_session(lab, SITES, "members")
    assert error_of(other.get(f"{SESSIONS}/{key}")) == (404, "session_not_found")
    assert other.get(SESSIONS).json()["items"] == []
    assert key in {item["session_id"] for item in lab.get(SESSIONS).json()["items"]}
    # Nobody posts for another site, nor does a site that takes no part.
    assert error_of(post(lab, key, SITES[1], "share")) == (403, "not_allowed")
    assert error_of(post(pool.admin, key, OTHER, "share")) == (403, "not_allowed")
    assert error_of(announce_file(lab, key, SITES[1], b"x")) == (403, "not_allowed")
    # A file of another session is not there in this one.
    foreign, content = start_session(lab, SITES[:2], "members of another"), os.urandom(99)
    assert send_file(lab, foreign, SITES[0], content).status_code == 201
    assert error_of(fetch_file(lab, key, content)) == (404, "file_not_found")
    assert post(pool.member(SITES[0], "viewer"), key, SITES[0], "share").status_code == 403


def test_a_descriptor_stands_for_one_session(pool: PoolDriver) -> None:
    lab = pool.member(SITES[0])
    key = start_session(lab, SITES, "one")
    again = pool.member(SITES[1]).post(SESSIONS, json=session_request(SITES, "one"))
    assert (again.status_code, again.json()["session_id"]) == (200, key)
    fewer = lab.post(SESSIONS, json=session_request(SITES[:2], "one"))
    assert error_of(fewer) == (409, "session_exists")
    past = (now_utc() - timedelta(minutes=1)).isoformat()
    refused = lab.post(SESSIONS, json=session_request(SITES, "past", ends_at=past))
    assert error_of(refused) == (422, "refused")
    unknown = lab.post(SESSIONS, json=session_request(SITES, "of a round", round_id="0" * 16))
    assert error_of(unknown) == (404, "round_not_found")


def test_a_sites_messages_and_sessions_are_limited(
    pool: PoolDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_POSTS", 2)
    monkeypatch.setattr(endpoints, "MOST_FILES", 1)
    lab = pool.member(SITES[0])
    key = start_session(lab, SITES, "limits")
    answers = [post(lab, key, SITES[0], f"phase-{n}") for n in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 409]
    assert send_file(lab, key, SITES[0], b"one").status_code == 201
    assert error_of(send_file(lab, key, SITES[0], b"two")) == (409, "too_many_files")
    with monkeypatch.context() as fewer:
        fewer.setattr(service, "MOST_SESSIONS_A_DAY", 1)
        today = lab.post(SESSIONS, json=session_request(SITES, "too many today"))
        assert error_of(today) == (409, "too_many_sessions")
        assert "within 24 hours" in today.text
    monkeypatch.setattr(service, "MOST_SESSIONS", 0)
    another = lab.post(SESSIONS, json=session_request(SITES, "one too many"))
    assert error_of(another) == (409, "too_many_sessions")


def test_files_of_a_session_count_for_the_quota(pool: PoolDriver) -> None:
    lab = pool.member(SITES[1])
    key = start_session(lab, SITES, "quota")
    assert send_file(lab, key, SITES[1], os.urandom(1000)).status_code == 201
    pool.admin.patch(f"/api/v1/sites/{SITES[1]}", json={"quota_bytes": 1500}).raise_for_status()
    try:
        refused = send_file(lab, key, SITES[1], os.urandom(1000))
        assert error_of(refused) == (409, "quota_exceeded")
    finally:
        pool.admin.patch(f"/api/v1/sites/{SITES[1]}", json={"quota_bytes": None})


def test_messages_and_sessions_count_for_the_quota(pool: PoolDriver) -> None:
    lab = pool.member(OTHER)
    sites = (OTHER, SITES[0])
    key = start_session(lab, sites, "d" * 500)
    pool.admin.patch(f"/api/v1/sites/{OTHER}", json={"quota_bytes": 1500}).raise_for_status()
    try:
        assert post(lab, key, OTHER, "first", "e" * 600).status_code == 201
        assert error_of(post(lab, key, OTHER, "second", "e" * 600)) == (409, "quota_exceeded")
        opened = lab.post(SESSIONS, json=session_request(sites, "f" * 600))
        assert error_of(opened) == (409, "quota_exceeded")
        used = pool.member(OTHER, "admin").get("/api/v1/usage").json()["items"]
        assert [usage["size_bytes"] for usage in used] == [1100]
    finally:
        pool.admin.patch(f"/api/v1/sites/{OTHER}", json={"quota_bytes": None})


def test_the_length_of_an_answer_with_messages_is_limited(
    pool: PoolDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "CHARACTERS_PER_PAGE", 1000)
    lab = pool.member(SITES[0])
    key = start_session(lab, SITES, "long messages")
    for phase in ("one", "two", "three"):
        assert post(lab, key, SITES[0], phase, "e" * 600).status_code == 201
    seen: list[str] = []
    after, more = 0, True
    while more:
        path = f"{SESSIONS}/{key}/posts"
        answer = lab.get(path, params={"after": after}).json()
        assert len(answer["items"]) == 1
        seen.append(answer["items"][0]["phase"])
        after, more = answer["items"][0]["number"], answer["more"]
    assert seen == ["one", "two", "three"]


def test_an_ended_session_is_deleted_with_its_files(tmp_path: Path) -> None:
    with pool_in_process(tmp_path) as pool:
        for site in SITES:
            pool.secret(site, "contributor")
        lab = pool.member(SITES[0])
        only, shared = os.urandom(200_000), os.urandom(9)
        ended, going_on = (start_session(lab, SITES, name) for name in ("ended", "going on"))
        for content, keys in ((only, [ended]), (shared, [ended, going_on])):
            for key in keys:
                assert send_file(lab, key, SITES[0], content).status_code == 201
        post(lab, ended, SITES[0], "share")
        upload(lab, f"{SITES[0]}/model")
        pool.change(
            update(SecureSessionRecord)
            .where(SecureSessionRecord.key == ended)
            .values(ends_at=now_utc() - endpoints.RETENTION - timedelta(seconds=1))
        )
        parts = open_parts(pool.settings)
        assert endpoints.delete_ended_sessions(parts) == 1
        parts.database.close()
        assert error_of(lab.get(f"{SESSIONS}/{ended}")) == (404, "session_not_found")
        assert fetch_file(lab, going_on, shared).content == shared
        with open_pool_offline(pool.settings) as opened:
            assert collect_garbage(opened, remove=True).digests == ()
            assert len(list(opened.storage.published_digests())) == 2
