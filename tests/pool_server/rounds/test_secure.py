"""Rounds with contributions summed before the pool gets them."""

from pathlib import Path
from typing import Any

import pytest

from aggregators.models import ShapePredictor
from tests.pool_server.model_files import sha256
from tests.pool_server.pool_driver import PoolDriver, error_of
from tests.pool_server.rounds.round_driver import (
    SITES,
    announce_contribution,
    ask_for_round,
    combine,
    contribute,
    contribution_bytes,
    finish,
    show,
    start_round,
    states,
    take_back,
    upload_base,
)

SERVERS = ("sum-1", "sum-2")
SECURE = {"charter": "ab" * 32, "servers": [*SERVERS]}


@pytest.fixture(scope="module")
def base(pool: PoolDriver) -> tuple[ShapePredictor, str]:
    for server in SERVERS:
        pool.secret(server, "contributor")
    return upload_base(pool, "secure-base", seed=5077)


def test_the_one_sum_is_confirmed_by_all_and_combined_once(
    pool: PoolDriver, base: tuple[ShapePredictor, str], tmp_path: Path
) -> None:
    key = start_round(pool, base[1], secure=SECURE, rounds=2)["round_id"]
    total, other = contribution_bytes(base[0], 1), contribution_bytes(base[0], 2)
    clients = [pool.member(site) for site in SITES]
    assert contribute(clients[0], key, SITES[0], total).status_code == 201
    refused = announce_contribution(clients[1], key, SITES[1], other)
    assert error_of(refused) == (409, "sums_differ")
    # The others name the digest and send nothing.
    for client, site in zip(clients[1:], SITES[1:], strict=True):
        assert announce_contribution(client, key, site, total).json()["state"] == "complete"
    assert take_back(clients[2], key, SITES[2]).status_code == 200
    assert announce_contribution(clients[2], key, SITES[2], total).json()["state"] == "complete"
    assert states(show(clients[1], key)) == dict.fromkeys(SITES, "contributed")
    finished = finish(clients[1], key, f"{SITES[1]}/secure")
    assert finished.status_code == 200, finished.text
    result = finished.json()
    assert result["result_digest"] == combine(tmp_path, base[0], [total])[1].digest
    assert show(clients[0], result["successor"])["secure"] == SECURE
    family = clients[0].get(f"/api/v1/lineage/{result['result_digest']}").json()
    kinds = {node["digest"]: node["kind"] for node in family["nodes"]}
    assert kinds[sha256(total)] == "secure-sum"


@pytest.mark.parametrize(
    ("fields", "sites", "problem"),
    [
        ({"method": "median"}, SITES, "compares the contributions with one another"),
        ({"method": "geometric-median"}, SITES, "a secure sum shows none of them"),
        ({}, SITES[:2], "at least 3"),
        ({}, (*SITES, SERVERS[0]), "cannot also be"),
    ],
)
def test_unsummable_secure_rounds_are_refused(
    pool: PoolDriver,
    base: tuple[ShapePredictor, str],
    fields: dict[str, Any],
    sites: tuple[str, ...],
    problem: str,
) -> None:
    answer = ask_for_round(pool.member(SITES[0]), base[1], sites, secure=SECURE, **fields)
    assert error_of(answer) == (422, "round_refused")
    assert problem in answer.json()["error"]["message"]
