"""The audience of a model and its rights; everybody else learns nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregators.formats import encode_model
from tests.aggregators.small_models import make_predictor
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    complete,
    error_of,
    pool_in_process,
    send_parts,
    upload,
)
from tests.pool_server.rounds.round_driver import (
    ask_for_round,
    base_model,
    contribute_all,
    finish,
    start_round,
)
from tests.pool_server.transfers.test_recipes import recipe_for

OWNER, FRIEND, STRANGER = "share-a", "share-b", "share-c"


def share(client: httpx.Client, name: str, visibility: str, **fields: Any) -> httpx.Response:
    request = {"visibility": visibility, **fields}
    return client.put(f"/api/v1/models/{OWNER}/{name}/sharing", json=request)


def sharing_of(client: httpx.Client, name: str) -> dict[str, Any]:
    answer = client.get(f"/api/v1/models/{OWNER}/{name}/sharing")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def listed(client: httpx.Client, **query: Any) -> list[str]:
    answer = client.get("/api/v1/models", params={"limit": 200, **query})
    assert answer.status_code == 200, answer.text
    return [item["address"] for item in answer.json()["items"]]


@pytest.fixture(autouse=True)
def sites(pool: PoolDriver) -> None:
    for site in (OWNER, FRIEND, STRANGER):
        pool.secret(site, "contributor")


def test_by_default_all_sites_may_download_and_merge_a_model(pool: PoolDriver) -> None:
    assert upload(pool.member(OWNER), f"{OWNER}/usual")["visibility"] == "consortium"
    sharing = sharing_of(pool.member(STRANGER), "usual")
    assert sharing["your_rights"] == ["see", "download", "merge"]
    assert sharing_of(pool.member(OWNER, "viewer"), "usual")["your_rights"] == [
        "see", "download", "merge", "redistribute",
    ]  # fmt: skip


@pytest.mark.both_databases
def test_private_models_are_reported_as_missing_to_others(pool: PoolDriver) -> None:
    content = network_bytes()
    version = upload(pool.member(OWNER), f"{OWNER}/hidden", content, visibility="private")
    assert version["visibility"] == "private"
    stranger = pool.member(STRANGER, "admin")
    address = f"/api/v1/models/{OWNER}/hidden"
    for step in ("", "/versions/1", "/versions/1/content", "/versions/1/lineage", "/sharing"):
        assert error_of(stranger.get(address + step)) == (404, "model_not_found")
    assert error_of(share(stranger, "hidden", "consortium")) == (404, "model_not_found")
    assert listed(stranger, site=OWNER, name="hidden") == []
    assert listed(stranger, mergeable_key="fedavg:x") == []
    hidden = stranger.get("/api/v1/models", params={"mergeable_with": f"sha256:{sha256(content)}"})
    assert error_of(hidden) == (404, "version_not_found")
    for insider in (pool.member(OWNER, "viewer"), pool.admin):
        assert listed(insider, site=OWNER, name="hidden") == [f"pool://{OWNER}/hidden@1"]
        assert insider.get(f"{address}/versions/1/content").content == content


def test_only_listed_sites_see_a_model(pool: PoolDriver) -> None:
    owner, friend = pool.member(OWNER), pool.member(FRIEND)
    upload(owner, f"{OWNER}/for-friends", visibility="sites")
    assert listed(friend, name="for-friends") == [], "nobody is listed yet"
    answer = share(owner, "for-friends", "sites", sites=[{"site": FRIEND, "rights": ["download"]}])
    assert answer.json()["sites"] == [{"site": FRIEND, "rights": ["see", "download"]}]
    assert listed(friend, name="for-friends") == [f"pool://{OWNER}/for-friends@1"]
    assert listed(pool.member(STRANGER), name="for-friends") == []
    mine = sharing_of(friend, "for-friends")
    assert mine["your_rights"] == ["see", "download"]
    assert mine["sites"] == [{"site": FRIEND, "rights": ["see", "download"]}]
    share(owner, "for-friends", "sites", sites=[{"site": FRIEND}, {"site": STRANGER}])
    assert [site_entry["site"] for site_entry in sharing_of(owner, "for-friends")["sites"]] == [
        FRIEND, STRANGER,
    ]  # fmt: skip
    assert [site_entry["site"] for site_entry in sharing_of(friend, "for-friends")["sites"]] == [
        FRIEND
    ]
    share(owner, "for-friends", "private")
    assert sharing_of(owner, "for-friends")["sites"] == []
    assert listed(friend, name="for-friends") == []


def test_a_refused_download_names_the_site_to_ask(pool: PoolDriver) -> None:
    owner, friend = pool.member(OWNER), pool.member(FRIEND)
    pool.admin.patch(f"/api/v1/sites/{OWNER}", json={"contact": "ask@a.example"})
    upload(owner, f"{OWNER}/seen")
    share(owner, "seen", "consortium", rights=[])
    assert listed(friend, name="seen") == [f"pool://{OWNER}/seen@1"]
    address = f"/api/v1/models/{OWNER}/seen/versions/1"
    assert friend.get(address).status_code == 200
    refused = friend.get(f"{address}/content")
    assert error_of(refused) == (403, "right_missing")
    assert f"Ask {OWNER} (ask@a.example) for it" in refused.json()["error"]["hint"]
    assert owner.get(f"{address}/content").status_code == 200
    share(owner, "seen", "consortium", rights=["download"])
    assert friend.get(f"{address}/content").status_code == 200


def test_a_digest_proves_no_possession(pool: PoolDriver) -> None:
    secret_file, unknown_file = network_bytes(), network_bytes()
    upload(pool.member(OWNER), f"{OWNER}/kept", secret_file, visibility="private")
    thief = pool.member(STRANGER)
    known = announce(thief, f"{STRANGER}/stolen", secret_file)
    unknown = announce(thief, f"{STRANGER}/new", unknown_file)
    assert known.status_code == unknown.status_code == 201
    for answer in (known, unknown):
        assert answer.json()["state"] == "receiving", "the file must be sent"
        assert answer.json()["version"] is None
        assert [part["received"] for part in answer.json()["parts"]] == [False]
    assert set(known.json()) == set(unknown.json())
    assert error_of(complete(thief, known.json())) == (409, "upload_incomplete")
    send_parts(thief, known.json(), secret_file)
    assert complete(thief, known.json()).status_code == 201, "who has the file may share it"


def test_a_copy_of_a_restricted_model_is_private(pool: PoolDriver) -> None:
    owner, friend, content = pool.member(OWNER), pool.member(FRIEND), network_bytes()
    upload(owner, f"{OWNER}/lent", content, visibility="sites")
    share(owner, "lent", "sites", sites=[{"site": FRIEND, "rights": ["download", "redistribute"]}])
    copied = announce(friend, f"{FRIEND}/copy", content).json()
    assert (copied["state"], copied["version"]["visibility"]) == ("complete", "private")


def test_the_right_to_see_gives_no_copy(pool: PoolDriver) -> None:
    owner, friend = pool.member(OWNER), pool.member(FRIEND)
    content = network_bytes()
    upload(owner, f"{OWNER}/shown", content)
    share(owner, "shown", "consortium", rights=["redistribute"])
    assert announce(friend, f"{FRIEND}/shown", content).json()["state"] == "receiving"


def test_a_merge_needs_the_right_to_its_inputs(pool: PoolDriver) -> None:
    owner, friend = pool.member(OWNER), pool.member(FRIEND)
    allowed, refused, hidden, merged = (network_bytes() for _ in range(4))
    for name, content, rights in (("may", allowed, ["merge"]), ("not", refused, ["download"])):
        upload(owner, f"{OWNER}/input-{name}", content, visibility="sites")
        share(owner, f"input-{name}", "sites", sites=[{"site": FRIEND, "rights": rights}])
    upload(owner, f"{OWNER}/input-hidden", hidden, visibility="private")

    def merge_of(*parents: bytes) -> httpx.Response:
        recipe = recipe_for(merged, *map(sha256, parents))
        return announce(friend, f"{FRIEND}/merged", merged, recipe=recipe)

    told = merge_of(allowed, refused)
    assert error_of(told) == (403, "right_missing")
    assert f"{OWNER}/input-not" in told.json()["error"]["message"]
    # Invisible models are treated like missing ones.
    unknown = merge_of(allowed, network_bytes())
    assert unknown.status_code == 201
    assert merge_of(allowed, hidden).status_code == unknown.status_code - 1, "joined"


def test_a_merge_of_restricted_models_is_restricted(pool: PoolDriver) -> None:
    owner, friend = pool.member(OWNER), pool.member(FRIEND)
    parent, merged, public = (network_bytes() for _ in range(3))
    upload(owner, f"{OWNER}/narrow", parent, visibility="sites")
    share(owner, "narrow", "sites", sites=[{"site": FRIEND}])
    recipe = recipe_for(merged, sha256(parent))
    assert upload(friend, f"{FRIEND}/m", merged, recipe=recipe)["visibility"] == "private"
    recipe = recipe_for(public, sha256(parent))
    said = upload(friend, f"{FRIEND}/n", public, recipe=recipe, visibility="consortium")
    assert said["visibility"] == "consortium"
    changed = announce(friend, f"{FRIEND}/n", network_bytes(), visibility="private")
    assert error_of(changed) == (422, "sharing_refused")


def test_a_recipe_added_later_counts_as_much(pool: PoolDriver) -> None:
    owner, friend = pool.member(OWNER), pool.member(FRIEND)
    narrow, closed, merged = (network_bytes() for _ in range(3))
    for name, content, rights in (("late", narrow, ["merge"]), ("never", closed, ["download"])):
        upload(owner, f"{OWNER}/{name}", content, visibility="sites")
        share(owner, name, "sites", sites=[{"site": FRIEND, "rights": rights}])
    opened = announce(friend, f"{FRIEND}/late", merged)
    assert opened.status_code == 201
    refused = announce(friend, f"{FRIEND}/late", merged, recipe=recipe_for(merged, sha256(closed)))
    assert error_of(refused) == (403, "right_missing")
    joined = announce(friend, f"{FRIEND}/late", merged, recipe=recipe_for(merged, sha256(narrow)))
    assert joined.json()["upload_id"] == opened.json()["upload_id"]
    send_parts(friend, joined.json(), merged)
    version = complete(friend, joined.json()).json()["version"]
    assert (version["parent_digests"], version["visibility"]) == ([sha256(narrow)], "private")


def test_family_trees_show_only_digests_of_hidden_models(pool: PoolDriver) -> None:
    owner = pool.member(OWNER)
    parent, merged, child = (network_bytes() for _ in range(3))
    upload(owner, f"{OWNER}/tree-parent", parent, visibility="private")
    recipe = recipe_for(merged, sha256(parent))
    recipe["inputs"][0]["address"] = f"pool://{OWNER}/tree-parent@1"
    upload(owner, f"{OWNER}/tree-merged", merged, recipe=recipe)
    below = recipe_for(child, sha256(merged))
    upload(owner, f"{OWNER}/tree-child", child, recipe=below, visibility="private")
    address = f"/api/v1/models/{OWNER}/tree-merged/versions/1"
    insiders, strangers = (
        pool.member(site).get(f"{address}/lineage").json() for site in (OWNER, STRANGER)
    )
    assert insiders["recipe"] == recipe
    family = [sha256(parent), sha256(merged), sha256(child)]
    assert [node["digest"] for node in insiders["nodes"]] == family
    assert [node["digest"] for node in strangers["nodes"]] == family[:2]
    for node in strangers["nodes"]:
        hidden = node["digest"] != sha256(merged)
        assert (node["addresses"] == []) == hidden
        assert (node["kind"] is None) == hidden
    assert strangers["recipe"]["inputs"] == [
        {"digest": sha256(parent), "weight": 1, "address": None, "file_name": None}
    ]
    everything = pool.member(STRANGER).get(address).text + str(strangers)
    assert "tree-parent" not in everything
    assert "tree-child" not in everything


def test_a_round_needs_a_base_that_all_its_sites_may_use(pool: PoolDriver) -> None:
    owner, friend = pool.member(OWNER), pool.member(FRIEND)
    content = bytes(encode_model(make_predictor(23)))
    upload(owner, f"{OWNER}/base", content, visibility="sites")

    def start(client: httpx.Client) -> httpx.Response:
        return ask_for_round(client, f"{OWNER}/base@1", (OWNER, FRIEND))

    assert error_of(start(friend)) == (404, "model_not_found")
    unusable = start(owner)
    assert error_of(unusable) == (422, "round_refused")
    assert unusable.json()["error"]["message"].startswith(f"{FRIEND} may not download")
    share(owner, "base", "sites", sites=[{"site": FRIEND, "rights": ["download"]}])
    assert error_of(start(friend)) == (403, "right_missing")
    share(owner, "base", "sites", sites=[{"site": FRIEND}])
    assert start(friend).status_code == 201


def test_the_result_of_a_round_is_shared_as_its_base(pool: PoolDriver) -> None:
    owner, friend = pool.member(OWNER), pool.member(FRIEND)
    base = base_model(29)
    upload(owner, f"{OWNER}/base-of-two", bytes(encode_model(base)), visibility="sites")
    share(owner, "base-of-two", "sites", sites=[{"site": FRIEND}])
    started = start_round(pool, f"{OWNER}/base-of-two@1", (OWNER, FRIEND))
    contribute_all(pool, started["round_id"], base, (OWNER, FRIEND))
    finished = finish(friend, started["round_id"], f"{FRIEND}/of-two")
    assert finished.json()["result"] == f"pool://{FRIEND}/of-two@1"
    address = f"/api/v1/models/{FRIEND}/of-two"
    assert owner.get(f"{address}/versions/1/content").status_code == 200
    assert error_of(pool.member(STRANGER).get(address)) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"visibility": "consortium", "sites": [{"site": FRIEND}]}, "visibility"),
        ({"visibility": "sites", "sites": [{"site": "nowhere"}]}, "no such site"),
        ({"visibility": "sites", "sites": [{"site": OWNER}]}, "owns"),
        ({"visibility": "sites", "sites": [{"site": FRIEND}, {"site": FRIEND}]}, "twice"),
    ],
)
def test_invalid_sharing_is_refused(pool: PoolDriver, fields: dict[str, Any], problem: str) -> None:
    owner = pool.member(OWNER)
    upload(owner, f"{OWNER}/shared")
    refused = owner.put(f"/api/v1/models/{OWNER}/shared/sharing", json=fields)
    assert error_of(refused) == (422, "sharing_refused")
    assert problem in refused.json()["error"]["message"]
    assert sharing_of(owner, "shared")["visibility"] == "consortium"


def test_sites_that_gain_a_right_are_notified(pool: PoolDriver) -> None:
    owner = pool.member(OWNER)
    upload(owner, f"{OWNER}/news", visibility="sites")
    share(owner, "news", "sites", sites=[{"site": FRIEND, "rights": ["download"]}])
    events = pool.member(FRIEND).get("/api/v1/events").json()["items"]
    (told,) = (event for event in events if event["subject"] == f"pool://{OWNER}/news")
    assert told["kind"] == "model.shared"
    assert told["details"]["rights"] == ["see", "download"]


@pytest.fixture
def reserved_pool(tmp_path: Path) -> Iterator[PoolDriver]:
    with pool_in_process(tmp_path, default_visibility="private", default_rights="") as pool:
        yield pool


def test_a_pool_can_share_nothing_by_default(reserved_pool: PoolDriver) -> None:
    owner, other = reserved_pool.member(OWNER), reserved_pool.member(FRIEND)
    assert upload(owner, f"{OWNER}/gaze")["visibility"] == "private"
    assert listed(other) == []
    share(owner, "gaze", "consortium")
    assert sharing_of(other, "gaze")["your_rights"] == ["see"]
