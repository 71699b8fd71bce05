"""How rounds end: once, with everything that was contributed, and a next one."""

import signal
import threading
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from aggregators.methods.refitting.contribution_file import decode_contribution
from aggregators.models import ShapePredictor
from pool_server.merges import running
from pool_server.settings import PoolSettings
from tests.pool_server.merges.merge_driver import OVER, wait_for
from tests.pool_server.model_files import sha256
from tests.pool_server.pool_driver import PoolDriver, at_once, error_of, open_client, pool_process
from tests.pool_server.rounds.round_driver import (
    SITES,
    ask_for_round,
    ask_to_finish,
    combine,
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
from tests.pool_server.transfers.test_kills import wait_for_file


@pytest.fixture(scope="module")
def base(pool: PoolDriver) -> tuple[ShapePredictor, str]:
    base = upload_base(pool, "base-to-finish", 3)
    path = f"/api/v1/models/{SITES[0]}/base-to-finish/versions/1/description"
    labels = {"population": "infant", "images": "9"}
    assert pool.member(SITES[0]).put(path, json={"labels": labels}).status_code == 200
    return base


@pytest.mark.both_shapes
def test_the_pool_combines_and_opens_the_next_round(
    pool: PoolDriver, base: tuple[ShapePredictor, str], tmp_path: Path
) -> None:
    started = start_round(pool, base[1], rounds=2)
    key = started["round_id"]
    contents = contribute_all(pool, key, base[0])
    _, merged = combine(tmp_path, base[0], contents)
    client = pool.member(SITES[2])
    assert show(client, key)["ready"]
    response = finish(client, key, "round-c/refined")
    assert response.status_code == 200, response.text
    ended = response.json()
    assert (ended["state"], ended["ready"]) == ("finished", False)
    assert (ended["result"], ended["result_digest"]) == ("pool://round-c/refined@1", merged.digest)
    assert ended["ended_by"] == "round-c/test-contributor"
    version = client.get("/api/v1/models/round-c/refined/versions/1").json()
    assert "combined by the pool" in version["description"]
    assert version["labels"] == {"population": "infant"}, "of the base, without its counts"
    assert set(version["parent_digests"]) == {
        started["base_digest"], *map(sha256, contents)
    }  # fmt: skip
    content = client.get("/api/v1/models/round-c/refined/versions/1/content").content
    assert sha256(content) == merged.digest
    lineage = client.get("/api/v1/models/round-c/refined/versions/1/lineage").json()
    assert lineage["recipe"]["method"]["name"] == "leaf-refit"
    again = {"site": SITES[2], "name": "again", "recipe": lineage["recipe"]}
    refused = client.post("/api/v1/merges", json=again)
    assert "a site's contribution to a round" in refused.json()["error"]["message"]
    assert finish(pool.member(SITES[1]), key, "round-b/again").json() == ended

    following = show(client, ended["successor"])
    assert (following["number"], following["rounds_total"]) == (2, 2)
    assert following["base"] == ended["result"]
    assert following["predecessor"] == key
    assert following["created_by"] == started["created_by"], "not who finished the one before"
    assert following["options"] == started["options"]
    assert states(following) == dict.fromkeys(SITES, "waiting")
    lasted, lasts = (
        datetime.fromisoformat(item["deadline"]) - datetime.fromisoformat(item["created_at"])
        for item in (started, following)
    )
    assert abs((lasts - lasted).total_seconds()) < 120, "of days"
    # A contribution to the first base does not fit the second.
    stale = contribute(client, following["round_id"], SITES[2], contents[2])
    assert error_of(stale) == (422, "contribution_refused")


def test_any_site_publishes_the_result_at_the_address_of_the_starter(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    started = start_round(pool, base[1], rounds=2)
    key = started["round_id"]
    contribute_all(pool, key, base[0])
    client = pool.member(SITES[2])
    assert started["result_address"] == f"pool://{SITES[0]}/base-to-finish"
    refused = finish(client, key, f"{SITES[0]}/another-name")
    assert error_of(refused)[0] == 403, "no other place of that site is lent"
    ended = finish(client, key, f"{SITES[0]}/base-to-finish").json()
    assert ended["result"] == f"pool://{SITES[0]}/base-to-finish@2"
    assert ended["ended_by"] == "round-c/test-contributor"
    assert show(client, ended["successor"])["result_address"] == started["result_address"]


def test_a_round_needs_as_many_others_as_any_contributor_asks_for(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    """The starter contributes, waits for one victim, closes, and reads the victim's update."""
    key = start_round(pool, base[1])["round_id"]
    starter, victim = pool.member(SITES[0]), pool.member(SITES[1])
    for client, site, seed, others in ((starter, SITES[0], 1, 1), (victim, SITES[1], 2, 2)):
        content = contribution_bytes(base[0], seed)
        assert contribute(client, key, site, content, least_others=others).is_success
    assert show(victim, key)["fewest_sites"] == 3
    early = starter.post(f"/api/v1/rounds/{key}/close")
    assert error_of(early) == (409, "round_open")
    assert "round-b demands those of 2 other sites" in early.json()["error"]["message"]
    pass_deadline(pool.settings, key)
    assert show(victim, key)["state"] == "expired"
    by_state = {
        state: starter.get("/api/v1/rounds", params={"state": state}).json()["items"]
        for state in ("expired", "closed")
    }
    assert key in [round_["round_id"] for round_ in by_state["expired"]]
    assert key not in [round_["round_id"] for round_ in by_state["closed"]]
    over = finish(starter, key, "round-a/of-one-victim")
    assert error_of(over) == (409, "round_closed")
    assert "round-b demands those of 2 other sites" in over.json()["error"]["message"]


def test_more_others_than_the_round_has_are_refused_at_once(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    key = start_round(pool, base[1], SITES[:2])["round_id"]
    content = contribution_bytes(base[0], 1)
    refused = contribute(pool.member(SITES[1]), key, SITES[1], content, least_others=2)
    assert error_of(refused) == (422, "too_few_others")


def test_a_round_may_ask_for_others_on_behalf_of_all_its_sites(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    started = start_round(pool, base[1], least_others=2)
    key, client = started["round_id"], pool.member(SITES[0])
    assert (started["least_others"], started["fewest_sites"]) == (2, 3)
    content = contribution_bytes(base[0], 1)
    assert contribute(client, key, SITES[0], content, least_others=1).is_success
    assert show(client, key)["participants"][0]["contribution"]["least_others"] == 2
    refused = ask_for_round(client, base[1], least_others=3)
    assert "combined with 3 others, but the round has 3 sites" in refused.text


@pytest.mark.parametrize("emptied", ["counts", "changes"])
def test_a_contribution_of_nothing_is_refused(
    pool: PoolDriver, base: tuple[ShapePredictor, str], emptied: str
) -> None:
    """Its sender would take no part, and the sum would be that of one site fewer."""
    key = start_round(pool, base[1])["round_id"]
    made = decode_contribution(contribution_bytes(base[0], 1))
    zeros = {"changes": np.zeros_like(made.changes)}
    zeros |= {"counts": np.zeros_like(made.counts)} if emptied == "counts" else {}
    content = contribution_bytes(base[0], 1, **zeros)
    refused = contribute(pool.member(SITES[0]), key, SITES[0], content)
    assert error_of(refused) == (422, "contribution_refused")
    assert "changes no leaf" in refused.json()["error"]["message"]


def test_silent_sites_are_left_out(pool: PoolDriver, base: tuple[ShapePredictor, str]) -> None:
    key = start_round(pool, base[1])["round_id"]
    starter, client = pool.member(SITES[0]), pool.member(SITES[1])
    for site, seed in zip(SITES[:2], (20, 21), strict=True):
        early = starter.post(f"/api/v1/rounds/{key}/close")
        assert error_of(early) == (409, "round_open"), "the result of one would reveal it"
        contribution = contribution_bytes(base[0], seed)
        assert contribute(pool.member(site), key, site, contribution).status_code == 201
    waiting = finish(client, key, "round-b/without-c")
    assert error_of(waiting) == (409, "round_open")
    assert "round-c" in waiting.json()["error"]["message"]
    assert error_of(client.post(f"/api/v1/rounds/{key}/close")) == (403, "not_allowed")
    closed = starter.post(f"/api/v1/rounds/{key}/close").json()
    assert (closed["state"], closed["ready"]) == ("closed", True)
    assert error_of(finish(client, key, "round-a/theirs")) == (403, "not_allowed")
    assert finish(client, key, "round-b/without-c").status_code == 200
    assert states(show(client, key)) == {
        "round-a": "contributed", "round-b": "contributed", "round-c": "missing",
    }  # fmt: skip
    late = contribute(pool.member(SITES[2]), key, SITES[2], contribution_bytes(base[0], 30))
    assert error_of(late) == (409, "round_closed")
    assert states(show(client, key))["round-c"] == "late"


@pytest.mark.parametrize("reason", ["data-error", "consent-withdrawn"])
def test_a_round_on_a_withdrawn_base_goes_on_only_when_asked_for(
    pool: PoolDriver, base: tuple[ShapePredictor, str], reason: str
) -> None:
    model, address = upload_base(pool, f"base-{reason}", 60 + len(reason))
    client, key = pool.member(SITES[0]), start_round(pool, address)["round_id"]
    assert show(client, key)["base_warning"] == ""
    contents = [contribution_bytes(model, seed) for seed in (60, 61)]
    assert contribute(client, key, SITES[0], contents[0]).is_success
    version = address.removeprefix("pool://").replace("@", "/versions/")
    withdrawn = client.post(f"/api/v1/models/{version}/withdraw", json={"reason": reason})
    assert withdrawn.is_success, withdrawn.text
    assert show(client, key)["base_warning"] == f"withdrawn ({reason})"
    second = pool.member(SITES[1])
    refused = contribute(second, key, SITES[1], contents[1])
    assert error_of(refused) == (409, "base_withdrawn")
    asked = {"despite_withdrawal": True}
    answer = contribute(second, key, SITES[1], contents[1], **asked)
    assert answer.is_success is (reason == "data-error"), "or nobody can get it"
    pass_deadline(pool.settings, key)
    if reason == "data-error":
        name = f"{SITES[0]}/of-withdrawn"
        assert error_of(finish(client, key, name)) == (409, "base_withdrawn")
        assert finish(client, key, name, **asked).json()["result"] == f"pool://{name}@1"
        result = client.get(f"/api/v1/models/{name}/versions/1").json()
        assert [flag["reason"] for flag in result["flags"]] == [reason]


def test_two_finish_at_once(pool: PoolDriver, base: tuple[ShapePredictor, str]) -> None:
    key = start_round(pool, base[1], rounds=2)["round_id"]
    contribute_all(pool, key, base[0])

    acts = [partial(finish, pool.member(site), key, f"{site}/raced") for site in SITES]
    answers = [(answer.status_code, answer.json()) for answer in at_once(*acts)]
    ended = show(pool.admin, key)
    assert answers == [(200, ended)] * 3
    listed = pool.admin.get("/api/v1/models", params={"name": "raced"}).json()["items"]
    assert [version["address"] for version in listed] == [ended["result"]]
    rounds = pool.member(SITES[0]).get("/api/v1/rounds", params={"limit": 200}).json()["items"]
    assert [round_["round_id"] for round_ in rounds if round_["predecessor"] == key] == [
        ended["successor"]
    ]


def test_the_sites_of_a_round_see_the_merge_that_finishes_it(
    pool: PoolDriver, base: tuple[ShapePredictor, str]
) -> None:
    key = start_round(pool, base[1], SITES[:2])["round_id"]
    contribute_all(pool, key, base[0], SITES[:2])
    asked = ask_to_finish(pool.member(SITES[0]), key, f"{SITES[0]}/watched")
    assert asked.status_code == 202
    job = asked.json()
    assert (job["round_id"], job["recipe"]["method"]["name"]) == (key, "leaf-refit")
    assert len(job["recipe"]["inputs"]) == 3
    other, at = pool.member(SITES[1]), f"/api/v1/merges/{job['merge_id']}"
    assert wait_for(other, job["merge_id"], OVER)["version"] == show(other, key)["result"]
    again = ask_to_finish(other, key, f"{SITES[1]}/again").json()
    assert (again["merge_id"], again["state"]) == (job["merge_id"], "finished")
    assert error_of(pool.member(SITES[2]).get(at)) == (404, "merge_not_found")
    assert error_of(other.post(f"{at}/cancel")) == (403, "not_allowed")


def test_a_contribution_taken_back_while_the_pool_combines_is_in_no_result(
    pool: PoolDriver, base: tuple[ShapePredictor, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    key = start_round(pool, base[1])["round_id"]
    contribute_all(pool, key, base[0])
    client = pool.member(SITES[0])
    step = running.merge_by_recipe  # type: ignore[attr-defined]

    def combine_slowly(*arguments: Any, **named: Any) -> Any:
        made = step(*arguments, **named)
        assert take_back(pool.member(SITES[1]), key, SITES[1]).status_code == 200
        pass_deadline(pool.settings, key)
        return made

    monkeypatch.setattr(running, "merge_by_recipe", combine_slowly)
    failed = finish(client, key, "round-a/taken-back").json()
    assert (failed["state"], failed["refusal"]["code"]) == ("failed", "round_changed")
    monkeypatch.undo()
    ended = finish(client, key, "round-a/taken-back").json()
    lineage = client.get("/api/v1/models/round-a/taken-back/versions/1/lineage").json()
    assert len(lineage["recipe"]["inputs"]) == 3
    assert ended["state"] == "finished"
    gone = take_back(client, key, SITES[0])
    assert error_of(gone) == (409, "round_closed"), "the result holds it"


ADDRESS = f"{SITES[0]}/refined"


@pytest.mark.parametrize("moment", [pytest.param("merged", marks=pytest.mark.slow), "published"])
def test_killed_while_the_result_is_published(tmp_path: Path, moment: str) -> None:
    data = tmp_path / "pool"
    with pool_process(data) as (server, url, secret):
        assert secret is not None
        driver = PoolDriver(url, secret, PoolSettings(data_folder=data, port=0))
        with driver.stack:
            base, address = upload_base(driver, "base")
            key = start_round(driver, address, SITES[:2], rounds=2)["round_id"]
            token = driver.secret(SITES[0], "contributor")
            contents = contribute_all(driver, key, base, SITES[:2])
            digest = combine(tmp_path, base, contents)[1].digest
        thread = threading.Thread(target=finish_until_killed, args=(url, token, key))
        thread.start()
        patterns = {"merged": "scratch/*/result", "published": f"storage/blobs/*/{digest}"}
        wait_for_file(data, patterns[moment])
        server.send_signal(signal.SIGKILL)
        server.wait()
        thread.join()
    with pool_process(data) as (_, url, _none), open_client(url, token) as member:
        # The pool goes on with it by itself; at each moment it has ended as a whole, or not at all.
        listed = member.get("/api/v1/models", params={"name": "refined"}).json()["items"]
        round_ = show(member, key)
        if round_["state"] == "open":
            assert (listed, round_["result"], round_["successor"]) == ([], None, None)
        [job] = member.get("/api/v1/merges").json()["items"]
        assert wait_for(member, job["merge_id"], OVER)["state"] == "finished"
        response = finish(member, key, ADDRESS)
        assert response.status_code == 200, response.text
        ended = show(member, key)
        assert (ended["state"], ended["result_digest"]) == ("finished", digest)
        following = show(member, ended["successor"])
        assert (following["number"], following["state"]) == (2, "open")
        assert len(member.get("/api/v1/rounds").json()["items"]) == 2


def finish_until_killed(url: str, token: str, key: str) -> None:
    with suppress(httpx.HTTPError), open_client(url, token) as client:
        finish(client, key, ADDRESS)
