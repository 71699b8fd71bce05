"""Contributions to a round: their checks, their senders, their deadline."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from aggregators.formats import encode_model
from aggregators.methods.refitting.contribution_file import decode_contribution
from aggregators.models import ShapePredictor
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, error_of, pages_of, send_parts, upload
from tests.pool_server.rounds.round_driver import (
    SITES,
    announce_contribution,
    ask_for_round,
    base_model,
    contribute,
    contribute_all,
    contribution_bytes,
    finish,
    pass_deadline,
    show,
    start_round,
    states,
    take_back,
    upload_base,
)


@pytest.fixture(scope="module")
def base(pool: PoolDriver) -> tuple[ShapePredictor, str]:
    return upload_base(pool, "base")


def test_a_round_is_described_to_its_sites(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    started = start_round(pool, base[1], options={"starts": 3}, rounds=2, description="Infants")
    assert started["state"] == "open"
    assert not started["ready"]
    assert started["base"] == base[1]
    assert started["base_digest"] == sha256(bytes(encode_model(base[0])))
    assert started["options"]["starts"] == 3
    assert "seed" not in started["options"]
    assert (started["number"], started["rounds_total"]) == (1, 2)
    assert states(started) == dict.fromkeys(SITES, "waiting")
    for site in SITES:
        assert show(pool.member(site), started["round_id"]) == started
    listed = pool.member(SITES[1]).get("/api/v1/rounds", params={"state": "open"}).json()["items"]
    assert started in listed


def test_listings_are_paged_and_filtered(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    sites = ("paged-a", "paged-b")
    keys = [start_round(pool, base[1], sites)["round_id"] for _ in range(4)]
    client = pool.member("paged-a")
    client.post(f"/api/v1/rounds/{keys[0]}/cancel")
    pass_deadline(pool.settings, keys[1])
    contribute_all(pool, keys[2], base[0], sites)
    pass_deadline(pool.settings, keys[2])

    def of_state(state: str) -> list[str]:
        items = client.get("/api/v1/rounds", params={"state": state}).json()["items"]
        assert {item["state"] for item in items} <= {state}
        return [item["round_id"] for item in items]

    expected = {"cancelled": 0, "expired": 1, "closed": 2, "open": 3}
    for state, number in expected.items():
        assert of_state(state) == [keys[number]]
    assert of_state("finished") == []
    assert client.get("/api/v1/rounds", params={"state": "odd"}).status_code == 422
    page, rest = pages_of(client, "/api/v1/rounds", limit=3)
    assert [item["round_id"] for item in page["items"] + rest["items"]] == keys[::-1]


@pytest.mark.both_shapes(slow=True)
def test_a_site_contributes_once(pool: PoolDriver, base: tuple[ShapePredictor, str]) -> None:
    key = start_round(pool, base[1])["round_id"]
    client = pool.member(SITES[1])
    content = contribution_bytes(base[0], 7)
    response = contribute(client, key, SITES[1], content)
    assert response.status_code == 201, response.text
    assert response.json()["state"] == "complete"
    assert response.json()["version"] is None
    shown = show(pool.member(SITES[0]), key)
    assert states(shown) == {"round-a": "waiting", "round-b": "contributed", "round-c": "waiting"}
    [mine] = [
        participant["contribution"]
        for participant in shown["participants"]
        if participant["contribution"]
    ]
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
    response = take_back(client, key, SITES[1])
    assert response.status_code == 200, response.text
    assert states(response.json())[SITES[1]] == "waiting"
    again = announce_contribution(client, key, SITES[1], content)
    assert again.json()["state"] == "receiving", "the pool has deleted the file"
    assert contribute(client, key, SITES[1], contribution_bytes(base[0], 71)).status_code == 201
    acts = pool.admin.get("/api/v1/audit", params={"action": "round.take-back"}).json()["items"]
    assert key in {act["subject"] for act in acts}


def test_a_file_shared_with_other_contributions_stays(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    content = contribution_bytes(base[0], 72)
    keys = [start_round(pool, base[1])["round_id"] for _ in range(2)]
    for key in keys:
        for site in SITES[:2]:
            assert contribute(pool.member(site), key, site, content).is_success
    for site in SITES[:2]:
        assert take_back(pool.member(site), keys[0], site).status_code == 200
    pass_deadline(pool.settings, keys[1])
    ended = finish(pool.member(SITES[0]), keys[1], f"{SITES[0]}/of-equal-bytes")
    assert ended.json()["state"] == "finished"


def test_an_upload_is_completed_where_it_belongs(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    key = start_round(pool, base[1])["round_id"]
    other = start_round(pool, base[1])["round_id"]
    client = pool.member(SITES[0])
    content = contribution_bytes(base[0], 10)
    opened = announce_contribution(client, key, SITES[0], content).json()
    send_parts(client, opened, content)
    identifier = opened["upload_id"]
    for path in (
        f"/api/v1/uploads/{identifier}/complete",
        f"/api/v1/rounds/{other}/contributions/uploads/{identifier}/complete",
    ):
        assert error_of(client.post(path)) == (404, "upload_not_found"), path
    response = client.post(f"/api/v1/rounds/{key}/contributions/uploads/{identifier}/complete")
    assert response.status_code == 201


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
def test_unfit_contributions_are_refused(
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


def test_late_sites_are_named(pool: PoolDriver, base: tuple[ShapePredictor, str]) -> None:
    key = start_round(pool, base[1])["round_id"]
    a, b, c = (pool.member(site) for site in SITES)
    assert contribute(a, key, SITES[0], contribution_bytes(base[0], 14)).status_code == 201
    assert contribute(c, key, SITES[2], contribution_bytes(base[0], 16)).status_code == 201
    content = contribution_bytes(base[0], 15)
    opened = announce_contribution(b, key, SITES[1], content).json()
    send_parts(b, opened, content)
    pass_deadline(pool.settings, key)
    late = b.post(f"/api/v1/rounds/{key}/contributions/uploads/{opened['upload_id']}/complete")
    assert error_of(late) == (409, "round_closed")
    shown = show(a, key)
    assert (shown["state"], shown["ready"]) == ("closed", True)
    assert states(shown) == {"round-a": "contributed", "round-b": "late", "round-c": "contributed"}
    again = contribute(a, key, SITES[0], contribution_bytes(base[0], 14))
    assert again.status_code == 200, "what is there is there"


def test_nobody_contributes_for_others(pool: PoolDriver, base: tuple[ShapePredictor, str]) -> None:
    key = start_round(pool, base[1])["round_id"]
    content = contribution_bytes(base[0], 18)
    contribute(pool.member(SITES[0]), key, SITES[0], content)
    stranger = pool.member("stranger")
    assert stranger.get("/api/v1/rounds").json()["items"] == []
    for site in (SITES[0], "stranger"):
        refused = announce_contribution(stranger, key, site, content)
        assert error_of(refused) == (404, "round_not_found")
    answer = announce_contribution(pool.member(SITES[1]), key, SITES[0], content)
    assert error_of(answer) == (403, "not_allowed")
    answer = announce_contribution(pool.admin, key, "stranger", content)
    assert error_of(answer) == (403, "not_allowed"), "not even an admin lets in who was not asked"


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"method": "wba-cascade"}, 422, "round_refused"),
        ({"mode": "level-by-level"}, 422, "invalid_request"),
        ({"options": {"level": 2}}, 422, "round_refused"),
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
def test_invalid_rounds_are_refused(
    pool: PoolDriver,
    base: tuple[ShapePredictor, str],
    fields: dict[str, Any],
    status: int,
    code: str,
) -> None:
    pool.secret(SITES[1], "contributor")
    upload(pool.member(SITES[0]), "round-a/gaze", network_bytes(seed=77))
    answer = ask_for_round(pool.member(SITES[0]), **{"base": base[1], "sites": SITES[:2], **fields})
    assert error_of(answer) == (status, code), answer.text


def test_an_admin_starts_rounds_for_others(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    started = ask_for_round(pool.admin, base[1])
    assert started.status_code == 201
    key = started.json()["round_id"]
    assert show(pool.member(SITES[2]), key)["created_by"] == "admin/first-admin"
    assert error_of(pool.member(SITES[0]).post(f"/api/v1/rounds/{key}/cancel"))[0] == 403
    assert pool.admin.post(f"/api/v1/rounds/{key}/cancel").json()["state"] == "cancelled"
    assert pool.admin.post(f"/api/v1/rounds/{key}/cancel").status_code == 200, "again is fine"
    late = contribute(pool.member(SITES[0]), key, SITES[0], contribution_bytes(base[0], 19))
    assert error_of(late) == (409, "round_closed")
