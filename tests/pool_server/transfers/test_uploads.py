"""Uploads over HTTP: they become a version, or are refused."""

from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.pool_server.conftest import OpenPool
from tests.pool_server.model_files import detector_bytes, network_bytes, sha256
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    at_once,
    complete,
    error_of,
    let_hand_on,
    send_part,
    send_parts,
    upload,
)

LARGE = 50_000  # entries: some 200 kB, four parts


def versions(pool: PoolDriver, address: str) -> list[dict[str, Any]]:
    answer = pool.admin.get(f"/api/v1/models/{address}")
    items: list[dict[str, Any]] = answer.json()["items"] if answer.status_code == 200 else []
    return items


def listed(version: dict[str, Any]) -> dict[str, Any]:
    """Return a version as listings have it."""
    single = {k: v for k, v in version["fingerprint"].items() if not isinstance(v, list | dict)}
    return version | {"fingerprint": single}


@pytest.mark.both_shapes
def test_a_file_becomes_a_version_with_all_that_was_said(pool: PoolDriver) -> None:
    content = network_bytes(LARGE)
    version = upload(
        pool.member("up-1"),
        "up-1/gaze",
        content,
        description="first\nsecond line",
        labels={"population": "infant", "images": "1111"},
        metrics={"mean_error": 0.0727, "negative": -1e-300},
    )
    assert version["version"] == 1
    assert version["digest"] == sha256(content)
    assert version["size_bytes"] == len(content)
    assert (version["kind"], version["format"]) == ("network", "safetensors")
    assert version["fingerprint"]["tensors"] == {"weight": ["F32", [LARGE]]}
    assert version["labels"] == {"population": "infant", "images": "1111"}
    assert version["metrics"] == {"mean_error": 0.0727, "negative": -1e-300}
    methods = ["fedavg", "geometric-median", "krum", "median", "norm-clip", "trimmed-mean"]
    assert version["mergeable_by"] == methods
    assert version["created_by"] == "up-1/test-contributor"
    assert not version["has_recipe"]
    assert versions(pool, "up-1/gaze") == [listed(version)]
    assert pool.admin.get("/api/v1/models/up-1/gaze/versions/1/content").content == content


@pytest.mark.both_shapes
def test_an_interrupted_upload_goes_on(pool: PoolDriver) -> None:
    client, content = pool.member("up-3"), network_bytes(LARGE)
    opened = announce(client, "up-3/gaze", content).json()
    send_parts(client, {**opened, "parts": opened["parts"][2:3]}, content)
    resumed = announce(client, "up-3/gaze", content, labels={"said": "later"})
    assert resumed.status_code == 200
    assert resumed.json()["upload_id"] == opened["upload_id"]
    assert [part["received"] for part in resumed.json()["parts"]] == [False, False, True, False]
    refused = complete(client, opened)
    assert error_of(refused) == (409, "upload_incomplete")
    assert refused.json()["error"]["details"]["missing"] == [1, 2, 4]
    send_parts(client, resumed.json(), content)
    completed = complete(client, opened).json()
    assert completed["version"]["labels"] == {"said": "later"}
    assert completed["state"] == "complete"
    assert client.get(f"/api/v1/uploads/{opened['upload_id']}").json() == completed
    assert complete(client, opened).json()["version"] == completed["version"]


def test_the_same_file_again_is_the_same_version(pool: PoolDriver) -> None:
    client, content = pool.member("up-4"), network_bytes()
    first = upload(client, "up-4/gaze", content)
    again = announce(client, "up-4/gaze", content)
    assert again.status_code == 200
    assert again.json()["state"] == "complete"
    assert again.json()["version"] == first
    assert versions(pool, "up-4/gaze") == [listed(first)]


def test_a_file_known_elsewhere_is_not_sent_again(pool: PoolDriver) -> None:
    content = network_bytes()
    first = upload(pool.member("up-5"), "up-5/gaze", content)
    let_hand_on(pool.member("up-5"), "up-5/gaze")
    copy = announce(pool.member("up-6"), "up-6/copied", content, labels={"copy": "yes"})
    assert copy.status_code == 201
    assert copy.json()["state"] == "complete"
    version = copy.json()["version"]
    assert (version["site"], version["name"], version["version"]) == ("up-6", "copied", 1)
    assert version["labels"] == {"copy": "yes"}
    assert version["fingerprint"] == first["fingerprint"]
    assert version["mergeable_by"] == first["mergeable_by"]


def test_a_model_stays_of_one_kind(pool: PoolDriver) -> None:
    client = pool.member("up-8")
    upload(client, "up-8/gaze")
    content = detector_bytes()
    opened = announce(client, "up-8/gaze", content).json()
    send_parts(client, opened, content)
    assert error_of(complete(client, opened)) == (409, "kind_differs")
    assert len(versions(pool, "up-8/gaze")) == 1


@pytest.mark.both_shapes
def test_another_digest_is_refused_for_good(pool: PoolDriver) -> None:
    client, content = pool.member("up-9"), network_bytes()
    opened = announce(client, "up-9/gaze", content).json()
    send_parts(client, opened, content[:-1] + b"!")
    refused = complete(client, opened)
    assert error_of(refused) == (422, "digest_mismatch")
    assert sha256(content) in refused.json()["error"]["message"]
    assert client.get(f"/api/v1/uploads/{opened['upload_id']}").json()["state"] == "refused"
    assert error_of(complete(client, opened)) == (409, "upload_closed")
    assert error_of(send_part(client, opened, 1, content)) == (409, "upload_closed")
    assert upload(client, "up-9/gaze", content)["version"] == 1


def test_parts_of_a_wrong_size_number_or_digest(embedded_pool: PoolDriver) -> None:
    pool = embedded_pool
    client, content = pool.member("up-10"), network_bytes()
    opened = announce(client, "up-10/gaze", content).json()
    address = f"/api/v1/uploads/{opened['upload_id']}/parts/1"
    for wrong in (content[:-1], content + b"!", b""):
        assert error_of(client.put(address, content=wrong)) == (422, "part_mismatch")
    wrong_digest = client.put(address, content=content, headers={"X-Part-SHA256": "0" * 64})
    assert error_of(wrong_digest) == (422, "part_mismatch")
    elsewhere = address.removesuffix("1") + "2"
    assert error_of(client.put(elsewhere, content=content)) == (422, "part_mismatch")
    beyond = client.put(address.removesuffix("1") + "99999999999999999999", content=b"x")
    assert error_of(beyond) == (422, "invalid_request")
    assert (
        client.get(f"/api/v1/uploads/{opened['upload_id']}").json()["parts"][0]["received"] is False
    )
    right = client.put(address, content=content, headers={"X-Part-SHA256": sha256(content)})
    assert right.status_code == 204
    assert client.put(address, content=content).status_code == 204


def test_an_upload_is_given_up(pool: PoolDriver) -> None:
    client, content = pool.member("up-12"), network_bytes()
    opened = announce(client, "up-12/gaze", content).json()
    send_parts(client, opened, content)
    address = f"/api/v1/uploads/{opened['upload_id']}"
    assert client.delete(address).status_code == 204
    assert error_of(client.get(address)) == (404, "upload_not_found")
    assert error_of(send_part(client, opened, 1, content)) == (404, "upload_not_found")


@pytest.mark.parametrize(
    "fields",
    [
        {"size_bytes": 0},
        {"size_bytes": -1},
        {"digest": "A" * 64},
        {"name": "../up"},
        {"name": "Face"},
        {"file_name": "../../etc/passwd"},
        {"file_name": "a\\b"},
        {"file_name": ".."},
        {"file_name": "a\nb"},
        {"labels": {"Upper": "x"}},
        {"labels": {"a": "\x1b[31mred"}},
        {"labels": {"camera": "Basler\u202e"}},
        {"labels": {"camera": "Bas\u200bler"}},
        {"file_name": "a\u2066b.dat"},
        {"labels": {"a": ""}},
        {"labels": {f"a{i}": "x" for i in range(65)}},
        {"description": "nul \x00"},
        {"unknown": 1},
        {"metrics": {"a": "NaN"}},
        {"metrics": {"a": "Infinity"}},
    ],
    ids=str,
)
def test_announcements_that_cannot_be(pool: PoolDriver, fields: dict[str, Any]) -> None:
    answer = announce(pool.admin, "admin/gaze", b"x", **fields)
    assert error_of(answer) == (422, "invalid_request")


def test_too_large_or_to_no_site(pool: PoolDriver) -> None:
    huge = announce(pool.admin, "admin/gaze", b"x", size_bytes=2**70)
    assert error_of(huge) == (413, "too_large")
    assert error_of(announce(pool.admin, "nowhere/gaze", b"x")) == (404, "site_not_found")


@pytest.mark.both_shapes
def test_uploads_at_once_get_numbers_of_their_own(pool: PoolDriver) -> None:
    clients = [pool.member("up-15"), pool.admin]
    contents = [network_bytes() for _ in range(6)]
    at_once(
        *[partial(upload, clients[i % 2], "up-15/gaze", made) for i, made in enumerate(contents)]
    )
    published = versions(pool, "up-15/gaze")
    assert sorted(version["version"] for version in published) == [1, 2, 3, 4, 5, 6]
    assert {version["digest"] for version in published} == set(map(sha256, contents))


def test_completing_twice_at_once_makes_one_version(pool: PoolDriver) -> None:
    client, content = pool.member("up-16"), network_bytes()
    opened = announce(client, "up-16/gaze", content).json()
    send_parts(client, opened, content)
    answers = [answer.status_code for answer in at_once(*[partial(complete, client, opened)] * 4)]
    assert 201 in answers
    assert set(answers) <= {201, 409}
    assert len(versions(pool, "up-16/gaze")) == 1


def test_a_site_has_a_limit_of_open_uploads(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path, max_open_uploads_per_site=3) as pool:
        client = pool.member("up-17")
        for number in range(3):
            assert announce(client, "up-17/gaze", b"x%d" % number).status_code == 201
        assert error_of(announce(client, "up-17/gaze", b"one more")) == (409, "too_many_uploads")


def test_published_and_refused_uploads_are_in_the_audit(pool: PoolDriver) -> None:
    client = pool.member("up-18")
    upload(client, "up-18/gaze")
    opened = announce(client, "up-18/gaze", b"no model").json()
    send_parts(client, opened, b"no model")
    complete(client, opened)
    entries = pool.admin.get("/api/v1/audit", params={"site": "up-18"}).json()["items"]
    told = [(entry["subject"], entry["outcome"]) for entry in entries]
    assert told[:2] == [("up-18/gaze", "refused"), ("up-18/gaze@1", "done")]


PATH = "/api/v1/uploads"


def waiting(client: httpx.Client, **parameters: Any) -> list[dict[str, Any]]:
    answer = client.get(PATH, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


@pytest.fixture(scope="module")
def begun(pool: PoolDriver) -> list[str]:
    """Begin uploads to two sites in turn; return the identifiers, newest first."""
    started = []
    for number in range(5):
        for site in ("waiting-a", "waiting-b"):
            opened = announce(pool.member(site), f"{site}/gaze-{number}", b"x" * (number + 1))
            started.append(opened.json()["upload_id"])
    upload(pool.member("waiting-a"), "waiting-a/whole")
    return started[::-1]


def test_each_site_sees_its_own_and_admins_see_all(pool: PoolDriver, begun: list[str]) -> None:
    member = pool.member("waiting-a")
    of_site = waiting(member)
    assert [upload["upload_id"] for upload in of_site] == begun[1::2], "and no complete ones"
    assert of_site == waiting(member, site="waiting-a")
    newest = of_site[0]
    assert newest["name"] == "gaze-4"
    assert newest["created_by"] == "waiting-a/test-contributor"
    assert (newest["state"], newest["purpose"], newest["size_bytes"]) == ("receiving", "version", 5)
    assert error_of(member.get(PATH, params={"site": "waiting-b"})) == (403, "not_allowed")
    assert waiting(pool.admin, site="waiting-a") == of_site
    everybody = [upload["upload_id"] for upload in waiting(pool.admin)]
    assert [upload_id for upload_id in everybody if upload_id in begun] == begun
    assert error_of(pool.admin.get(PATH, params={"site": "nowhere"})) == (404, "site_not_found")
