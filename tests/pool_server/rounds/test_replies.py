"""A round's reply to one site, and its refusal to all others."""

from dataclasses import replace

from aggregators.methods import merge
from aggregators.methods.merging import encode_input
from aggregators.methods.networks.replies import encode_reply
from tests.aggregators.methods.networks.small_rounds import class_statistics
from tests.pool_server.model_files import sha256
from tests.pool_server.pool_driver import PoolDriver, error_of
from tests.pool_server.rounds.network_driver import TRAINING, network_contribution, upload_network
from tests.pool_server.rounds.round_driver import SITES, contribute, finish, show, start_round


def test_each_site_gets_its_own_reply_and_nobody_else_any(pool: PoolDriver) -> None:
    base, address = upload_network(pool, "with-replies", 31)
    started = start_round(pool, address, method="fedpac", options=TRAINING, rounds=2)
    key, path = started["round_id"], f"/api/v1/rounds/{started['round_id']}/reply"
    made = [
        network_contribution(base, started["base_digest"], seed, statistics=class_statistics(seed))
        for seed in (1, 2)
    ]
    refused = contribute(
        pool.member(SITES[0]), key, SITES[0], encode_input(replace(made[0], statistics=None))
    )
    assert error_of(refused) == (422, "contribution_refused")
    assert "no statistics of classes" in refused.json()["error"]["message"]
    for site, contribution in zip(SITES, made, strict=False):
        assert (
            contribute(pool.member(site), key, site, encode_input(contribution)).status_code == 201
        )
    # The view of a contribution for participants does not mention its classes.
    assert "counts" not in str(show(pool.member(SITES[0]), key)["participants"])
    assert error_of(pool.member(SITES[0]).get(path)) == (404, "reply_not_found")
    assert pool.member(SITES[0]).post(f"/api/v1/rounds/{key}/close").is_success
    ended = finish(pool.member(SITES[0]), key, f"{SITES[0]}/replied").json()
    assert ended["state"] == "finished"
    merged = merge("fedpac", [base, *made])
    assert merged.state is not None
    for site, contribution in zip(SITES, made, strict=False):
        answer = pool.member(site).get(path)
        expected = encode_reply(merged.state, sha256(encode_input(contribution)))
        assert (answer.status_code, answer.content) == (200, expected)
        assert answer.headers["cache-control"] == "no-store"
    # One who was asked and did not contribute, a stranger, the pool's admin, a viewer.
    for client in (pool.member(SITES[2]), pool.member("stranger"), pool.admin):
        assert client.get(path).status_code == 404
    assert pool.member(SITES[0], "viewer").get(path).status_code == 403
    following = f"/api/v1/rounds/{ended['successor']}/reply"
    assert pool.member(SITES[0]).get(following).status_code == 404


def test_a_reply_goes_with_the_result(pool: PoolDriver) -> None:
    base, address = upload_network(pool, "no-replies", 32)
    gone = {}
    for name in ("withdrawn", "deleted"):
        started = start_round(pool, address, SITES[:2], method="fedpac", options=TRAINING)
        key = started["round_id"]
        for seed, site in enumerate(SITES[:2]):
            made = network_contribution(
                base, started["base_digest"], 10 + seed, statistics=class_statistics(seed)
            )
            made = replace(made, samples=100 + seed + len(name))
            assert contribute(pool.member(site), key, site, encode_input(made)).is_success
        assert finish(pool.member(SITES[0]), key, f"{SITES[0]}/{name}").is_success
        gone[name] = f"/api/v1/rounds/{key}/reply"
        assert pool.member(SITES[1]).get(gone[name]).status_code == 200
    model = f"/api/v1/models/{SITES[0]}"
    deleted = pool.member(SITES[0]).delete(f"{model}/deleted/versions/1", params={"force": True})
    assert deleted.is_success, deleted.text
    assert pool.member(SITES[1]).get(gone["deleted"]).status_code == 404
    withdrawn = pool.member(SITES[0]).post(
        f"{model}/withdrawn/versions/1/withdraw",
        json={"reason": "consent-withdrawn", "explanation": "x"},
    )
    assert withdrawn.is_success, withdrawn.text
    assert pool.member(SITES[1]).get(gone["withdrawn"]).status_code == 410
