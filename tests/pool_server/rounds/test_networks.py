"""Rounds of networks: options, refusals, and the optimiser's state, and the reply to each site."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators.formats import encode_model
from aggregators.methods import METHODS, merge
from aggregators.methods.merging import encode_input
from aggregators.methods.networks import state_path
from aggregators.methods.networks.replies import encode_reply
from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from pool_server.operations.maintenance import collect_garbage, open_pool_offline
from pool_server.storage import open_storage
from tests.aggregators.methods.networks.small_rounds import class_statistics, make_state_dict
from tests.pool_server.merges.merge_driver import ask, recipe_of
from tests.pool_server.model_files import sha256
from tests.pool_server.pool_driver import PoolDriver, announce, error_of
from tests.pool_server.rounds.network_driver import TRAINING, network_contribution, upload_network
from tests.pool_server.rounds.round_driver import (
    SITES,
    contribute,
    finish,
    show,
    start_round,
    upload_base,
)

METHODS_OF_EACH_KIND = ("fedavg", "fedadam", "trimmed-mean", "krum", "fedcpf", "fedpac")
"""A plain mean, with an optimiser's state, with votes of several sizes, masks, and replies."""


@pytest.fixture(scope="module")
def base(pool: PoolDriver) -> tuple[StateDict, str]:
    return upload_network(pool, "network", 1)


def with_entry(base: StateDict, name: str, values: Any) -> StateDict:
    return make_state_dict({**base.tensors, name: values})


def read_content(pool: PoolDriver, digest: str, folder: Path) -> Path:
    """Return a copy of a file that the pool stores, without checking rights."""
    path = folder / digest
    with open_storage(pool.settings).content_file(digest) as kept:
        path.write_bytes(kept.read_bytes())
    return path


def test_options_belong_to_the_method_or_the_training(
    pool: PoolDriver, base: tuple[StateDict, str]
) -> None:
    settings = {"eta": 0.05, "epochs": 3}
    started = start_round(pool, base[1], method="fedadam", options=settings)
    assert started["options"] == {
        "mean": "samples",
        "weight_cap": 3.0,
        "eta": 0.05,
        "beta1": 0.5,
        "beta2": 0.99,
        "tau": 3.0,
        "root": "sqrt(v)+tau",
        **LocalTraining(epochs=3).shared(),
    }
    assert (started["mode"], started["state_digest"]) == ("one-shot", None)
    client = pool.member(SITES[0])
    request = {"base": base[1], "sites": list(SITES), "deadline": started["deadline"]}
    for fields, problem in [
        ({"method": "median", "options": {"eta": 1}}, "have no option 'eta'"),
        ({"method": "fedadam", "options": {"epochs": 0}}, "option 'epochs'"),
        ({"method": "fedadam", "options": {"beta1": 1}}, "option 'beta1'"),
        ({"method": "wba-cascade"}, "no round can be held with method"),
        ({"method": "leaf-refit"}, "of kind network"),
        ({"method": "trimmed-mean", "options": {"trim": 0.2}}, "needs at least 5 sites"),
    ]:
        refused = client.post("/api/v1/rounds", json=request | fields)
        assert error_of(refused) == (422, "round_refused"), fields
        assert problem in refused.json()["error"]["message"]
    _, face = upload_base(pool, "face-not-network", 9)
    refused = client.post("/api/v1/rounds", json=request | {"base": face, "method": "fedavg"})
    assert "of kind ert" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"base_digest": "ab" * 32}, "made from another base: found abababababababab..., expected"),
        ({"settings": LocalTraining(epochs=3, seed=7).shared()}, "epochs 3, the round asks for 2"),
        ({"settings": {}}, "epochs None, the round asks for 2"),
        ({"holds": "values"}, "holds values, expected differences"),
        (
            {"conv.weight": np.zeros((4, 3), "f4")},
            "entry 'conv.weight' F32 [3, 4] against F32 [4, 3] (the",
        ),
        (
            {"conv.weight": np.zeros((3, 4))},
            "against F64 [3, 4] (the base against the contribution",
        ),
        ({"other": np.zeros(3, "f4")}, "entry 'other' absent against F32 [3] (the base"),
        ({"norm.running_var": np.array([1, np.nan, 2], "f4")}, "entry 'norm.running_var' (F32)"),
        ({"conv.weight": np.full((3, 4), np.inf, "f4")}, "entry 'conv.weight' (F32) holds inf"),
    ],
)
def test_unfit_contributions_are_refused(
    pool: PoolDriver, base: tuple[StateDict, str], changed: dict[str, Any], problem: str
) -> None:
    # A robust method would leave out what is not finite; the site must know of it anyway.
    started = start_round(pool, base[1], SITES[:2], method="median", options=TRAINING)
    made = network_contribution(base[0], started["base_digest"], 1)
    for name, value in changed.items():
        if isinstance(value, np.ndarray):
            made = replace(made, network=with_entry(made.network, name, value))
        else:
            made = replace(made, **{name: value})
    refused = contribute(pool.member(SITES[0]), started["round_id"], SITES[0], encode_input(made))
    assert error_of(refused) == (422, "contribution_refused"), refused.text
    assert problem in refused.json()["error"]["message"]


@pytest.mark.parametrize("method", METHODS_OF_EACH_KIND)
def test_the_pool_combines_as_merge_does(
    pool: PoolDriver, base: tuple[StateDict, str], method: str
) -> None:
    options = {"trim": 0.4} if method == "trimmed-mean" else {}  # of three, or it trims nobody
    started = start_round(pool, base[1], method=method, options={**TRAINING, **options})
    key, made = started["round_id"], []
    for seed, site in enumerate(SITES):
        statistics = class_statistics(seed) if METHODS[method].replies else None
        digest = started["base_digest"]
        made.append(network_contribution(base[0], digest, seed, statistics=statistics))
        response = contribute(pool.member(site), key, site, encode_input(made[-1]))
        assert response.status_code == 201, response.text
    ended = finish(pool.member(SITES[1]), key, f"{SITES[1]}/{method}").json()
    merged = merge(method, [base[0], *made], options=options)
    assert ended["result_digest"] == sha256(bytes(encode_model(merged.model)))  # type: ignore[arg-type]
    state = None if merged.state is None else sha256(encode_input(merged.state))
    assert ended["state_digest"] == state


def test_no_site_has_more_than_three_times_the_usual_weight(
    pool: PoolDriver, base: tuple[StateDict, str]
) -> None:
    started = start_round(pool, base[1], method="fedavg", options=TRAINING)
    honest = [network_contribution(base[0], started["base_digest"], seed) for seed in (1, 2)]
    liar = replace(network_contribution(base[0], started["base_digest"], 3), samples=2**53)
    for site, made in zip(SITES, [*honest, liar], strict=True):
        assert contribute(
            pool.member(site), started["round_id"], site, encode_input(made)
        ).is_success
    ended = finish(pool.member(SITES[0]), started["round_id"], f"{SITES[0]}/capped").json()
    most = 3 * sorted([*(contribution.samples for contribution in honest), liar.samples])[1]
    fair = merge("fedavg", [base[0], *honest, replace(liar, samples=most)])
    assert ended["result_digest"] == sha256(bytes(encode_model(fair.model)))  # type: ignore[arg-type]


def test_a_result_that_is_not_finite_ends_the_series(
    pool: PoolDriver, base: tuple[StateDict, str]
) -> None:
    options = {**TRAINING, "eta": 1e300}
    started = start_round(pool, base[1], method="fedavgm", options=options, rounds=2)
    key, client = started["round_id"], pool.member(SITES[0])
    for seed, site in enumerate(SITES):
        made = network_contribution(base[0], started["base_digest"], seed)
        assert contribute(pool.member(site), key, site, encode_input(made)).is_success
    failed = finish(client, key, f"{SITES[0]}/diverged").json()
    assert failed["state"] == "failed"
    assert "infinities or NaN" in failed["refusal"]["message"]
    ended = show(client, key)
    assert (ended["result_digest"], ended["successor"]) == (None, None)


def test_the_state_goes_from_round_to_round_until_it_is_deleted(
    pool: PoolDriver, tmp_path: Path
) -> None:
    base, address = upload_network(pool, "with-state", 2)
    options = {**TRAINING, "eta": 0.02, "mean": "sites"}
    started = start_round(pool, address, method="fedadam", options=options, rounds=3)
    client, name = pool.member(SITES[0]), f"{SITES[0]}/stepped"
    inputs: list[Path] = [tmp_path / "base"]
    inputs[0].write_bytes(bytes(encode_model(base)))
    states = []
    for number in range(1, 4):
        made = [
            network_contribution(base, started["base_digest"], 10 * number + seed)
            for seed in range(3)
        ]
        for site, contribution in zip(SITES, made, strict=True):
            content = encode_input(contribution)
            inputs.append(tmp_path / f"{site}-{number}.contribution")
            inputs[-1].write_bytes(content)
            response = contribute(pool.member(site), started["round_id"], site, content)
            assert response.status_code == 201, response.text
        ended = finish(client, started["round_id"], name).json()
        result = tmp_path / f"round-{number}.safetensors"
        merged = merge("fedadam", inputs, options={"eta": 0.02, "mean": "sites"}, output=result)
        assert merged.recipe.output is not None
        assert ended["result_digest"] == merged.digest
        assert ended["state_digest"] == merged.recipe.output.state
        states.append(ended["state_digest"])
        assert sha256(read_content(pool, states[-1], tmp_path).read_bytes()) == states[-1]
        inputs = [result, state_path(result)]
        if ended["successor"]:
            started = show(client, ended["successor"])
            assert started["options"]["eta"] == 0.02
    lineage = client.get(f"/api/v1/models/{SITES[0]}/stepped/versions/3/lineage").json()
    kinds = {node["digest"]: node["kind"] for node in lineage["nodes"]}
    assert kinds[states[1]] == "optimiser-state"

    with ExitStack() as stack:
        opened = stack.enter_context(open_pool_offline(pool.settings))
        collect_garbage(opened, remove=True)
        assert all(opened.storage.has_content(state) for state in states)
        for version, left in ((1, states[1:]), (3, [])):
            deleted = client.delete(
                f"/api/v1/models/{SITES[0]}/stepped/versions/{version}", params={"force": True}
            )
            assert deleted.is_success, deleted.text
            collect_garbage(opened, remove=True)
            assert [state for state in states if opened.storage.has_content(state)] == left


def test_nobody_gets_a_state(pool: PoolDriver, base: tuple[StateDict, str], tmp_path: Path) -> None:
    started = start_round(pool, base[1], SITES[:2], method="fedavgm", options=TRAINING)
    key, client = started["round_id"], pool.member(SITES[0])
    for seed, site in enumerate(SITES[:2]):
        made = network_contribution(base[0], started["base_digest"], seed)
        contribute(pool.member(site), key, site, encode_input(made))
    ended = finish(client, key, f"{SITES[0]}/hidden-state").json()
    content = read_content(pool, ended["state_digest"], tmp_path).read_bytes()
    assert sha256(content) == ended["state_digest"]
    method = {"name": "fedavgm", "version": METHODS["fedavgm"].version}
    inputs = [{"digest": ended[f"{name}_digest"]} for name in ("base", "state")]
    recipe = recipe_of([], method=method, options={}) | {"inputs": inputs}
    asked = ask(client, recipe, site=SITES[0])
    assert "the optimiser's state after a round" in asked.json()["error"]["message"]
    opened = announce(client, f"{SITES[0]}/copied", content)
    assert opened.json()["state"] == "receiving", "whoever names it must send it"


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
