"""What a round takes, from whom, and until when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from aggregators.methods.refitting.contribution_file import decode_contribution
from aggregators.models import ShapePredictor
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, error_of, upload
from tests.pool_server.rounds.round_driver import (
    SITES,
    announce_contribution,
    base_model,
    contribute,
    contribution_bytes,
    show,
    start_round,
    states,
    take_back,
    upload_base,
)


@pytest.fixture(scope="module")
def base(pool: PoolDriver) -> tuple[ShapePredictor, str]:
    return upload_base(pool, "base")


@pytest.mark.both_shapes
def test_contributing_once(pool: PoolDriver, base: tuple[ShapePredictor, str]) -> None:
    key = start_round(pool, base[1])["round_id"]
    client = pool.member(SITES[1])
    content = contribution_bytes(base[0], 7)
    done = contribute(client, key, SITES[1], content)
    assert done.status_code == 201, done.text
    assert done.json()["state"] == "complete"
    assert done.json()["version"] is None
    shown = show(pool.member(SITES[0]), key)
    assert states(shown) == {"round-a": "waiting", "round-b": "contributed", "round-c": "waiting"}
    [mine] = [each["contribution"] for each in shown["participants"] if each["contribution"]]
    assert (mine["digest"], mine["size_bytes"]) == (sha256(content), len(content))
    expected = decode_contribution(content)
    assert mine["summary"]["leaves"] == len(expected.counts)
    assert mine["summary"]["leaves_changed"] == int((expected.counts > 0).sum())

    again = contribute(client, key, SITES[1], content)
    assert (again.status_code, again.json()["state"]) == (200, "complete")
    other = contribute(client, key, SITES[1], contribution_bytes(base[0], 8))
    assert error_of(other) == (409, "contribution_exists")
    assert show(client, key) == shown


def test_a_contribution_can_be_taken_back(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    key = start_round(pool, base[1])["round_id"]
    client, other = pool.member(SITES[1]), pool.member(SITES[0])
    content = contribution_bytes(base[0], 70)
    assert error_of(take_back(client, key, SITES[1])) == (404, "contribution_not_found")
    assert contribute(client, key, SITES[1], content).status_code == 201
    assert error_of(take_back(other, key, SITES[1])) == (403, "not_allowed")
    done = take_back(client, key, SITES[1])
    assert done.status_code == 200, done.text
    assert states(done.json())[SITES[1]] == "waiting"
    again = announce_contribution(client, key, SITES[1], content)
    assert again.json()["state"] == "receiving", "the pool has deleted the file"
    assert contribute(client, key, SITES[1], contribution_bytes(base[0], 71)).status_code == 201
    acts = pool.admin.get("/api/v1/audit", params={"action": "round.take-back"}).json()["items"]
    assert key in {each["subject"] for each in acts}


STRANGERS = {"a network": network_bytes(seed=5), "noise": b"not a contribution" * 10}


def broken(base: ShapePredictor, what: str) -> bytes:
    genuine = decode_contribution(contribution_bytes(base, 12))
    changes = np.array(genuine.changes)
    if what in STRANGERS:
        return STRANGERS[what]
    if what == "not finite":
        changes[np.flatnonzero(genuine.counts)[0], 0, 0] = np.nan
        return contribution_bytes(base, 12, changes=changes)
    if what == "another base":
        return contribution_bytes(base_model(2), 12)
    if what == "another shape":
        return contribution_bytes(
            base, 12, changes=changes[:-1], counts=np.array(genuine.counts)[:-1]
        )
    if what == "other landmarks":
        return contribution_bytes(base, 12, changes=changes[:, :-1])
    assert what == "other settings"
    return contribution_bytes(base, 12, settings={**genuine.settings, "starts": 3})


REASONS = {
    "not finite": "an infinite number or NaN",
    "another base": "another base",
    "another shape": "leaves of shape",
    "other landmarks": "leaves of shape",
    "other settings": "starts 3",
    "a network": "format",
    "noise": "round-a.contribution",
}


@pytest.mark.parametrize("what", REASONS)
def test_what_does_not_fit_is_refused(
    pool: PoolDriver, base: tuple[ShapePredictor, str], what: str
) -> None:
    key = start_round(pool, base[1])["round_id"]
    client = pool.member(SITES[0])
    refused = contribute(client, key, SITES[0], broken(base[0], what))
    assert error_of(refused) == (422, "contribution_refused")
    message = refused.json()["error"]["message"]
    assert REASONS[what] in message
    assert "/blobs/" not in message
    assert "/uploads/" not in message
    assert states(show(client, key))[SITES[0]] == "waiting"
    # A refusal is no contribution: the site may come again.
    assert contribute(client, key, SITES[0], contribution_bytes(base[0], 13)).status_code == 201


def test_outsiders_see_nothing(pool: PoolDriver, base: tuple[ShapePredictor, str]) -> None:
    key = start_round(pool, base[1])["round_id"]
    content = contribution_bytes(base[0], 18)
    contribute(pool.member(SITES[0]), key, SITES[0], content)
    stranger = pool.member("stranger")
    assert stranger.get("/api/v1/rounds").json()["items"] == []
    nowhere = "0" * 16
    for method, path in (
        ("GET", ""),
        ("POST", "/cancel"),
        ("POST", "/close"),
        ("DELETE", f"/contributions/{SITES[0]}"),
    ):
        answers = [
            stranger.request(method, f"/api/v1/rounds/{each}{path}") for each in (key, nowhere)
        ]
        assert [error_of(each) for each in answers] == [(404, "round_not_found")] * 2
        messages = [each.json()["error"]["message"] for each in answers]
        assert messages[0].replace(key, nowhere) == messages[1]
    for site, code in ((SITES[0], (403, "not_allowed")), ("stranger", (404, "round_not_found"))):
        answer = announce_contribution(stranger, key, site, content)
        assert error_of(answer) in {code, (404, "round_not_found")}
    viewer = pool.member(SITES[0], "viewer")
    assert show(viewer, key)["round_id"] == key
    assert error_of(take_back(viewer, key, SITES[0])) == (403, "not_allowed")
    other = pool.member(SITES[1])
    answer = announce_contribution(other, key, SITES[0], content)
    assert error_of(answer) == (403, "not_allowed")
    answer = announce_contribution(pool.admin, key, "stranger", content)
    assert error_of(answer) == (403, "not_allowed"), "not even an admin lets in who was not asked"


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"method": "wba-cascade"}, 422, "round_refused"),
        ({"mode": "all-at-once"}, 422, "round_refused"),
        ({"mode": "level-by-level", "options": {"level": 2}}, 422, "round_refused"),
        ({"options": {"speed": 3}}, 422, "round_refused"),
        ({"options": {"starts": 0}}, 422, "round_refused"),
        ({"options": {"seed": 3}}, 422, "round_refused"),
        ({"base": "round-a/none"}, 404, "model_not_found"),
        ({"base": "round-a/base@9"}, 404, "version_not_found"),
        ({"base": "nonsense"}, 422, "invalid_query"),
        ({"base": "sha256:" + "0" * 64}, 422, "invalid_query"),
        ({"base": "round-a/gaze"}, 422, "round_refused"),
        ({"sites": ["round-a", "no-such-site"]}, 404, "site_not_found"),
        ({"sites": ["round-b"]}, 403, "not_allowed"),
        ({"sites": []}, 422, "invalid_request"),
        ({"sites": ["round-a", "round-a"]}, 422, "round_refused"),
        ({"deadline": datetime(2020, 1, 1, tzinfo=UTC).isoformat()}, 422, "round_refused"),
        ({"deadline": datetime(2999, 1, 1, tzinfo=UTC).isoformat()}, 422, "round_refused"),
        ({"deadline": "2026-12-01T00:00:00"}, 422, "invalid_request"),
        ({"rounds": 0}, 422, "invalid_request"),
        ({"surprise": 1}, 422, "invalid_request"),
    ],
)
def test_rounds_that_cannot_be_held(
    pool: PoolDriver,
    base: tuple[ShapePredictor, str],
    fields: dict[str, Any],
    status: int,
    code: str,
) -> None:
    pool.secret(SITES[1], "contributor")
    upload(pool.member(SITES[0]), "round-a/gaze", network_bytes(seed=77))
    request = {
        "base": base[1],
        "sites": list(SITES[:2]),
        "deadline": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
        **fields,
    }
    answer = pool.member(SITES[0]).post("/api/v1/rounds", json=request)
    assert error_of(answer) == (status, code), answer.text
