"""Withdrawing a version: its flags and events, downloads, copies elsewhere, hidden versions."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update

from aggregators.formats import encode_model
from pool_server.database.records import ModelRecord, SiteRecord
from tests.aggregators.small_models import make_predictor
from tests.pool_server.lineage.withdrawals.families import Family, three_merges
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, let_hand_on, upload
from tests.pool_server.rounds.round_driver import ask_for_round
from tests.pool_server.transfers.test_recipes import recipe_for

FLAGGED = ("a/first", "b/second", "c/third", "c/again")
UNTOUCHED = ("b/good", "c/fine", "b/clean")


@pytest.mark.both_databases
def test_a_withdrawal_follows_every_merge_and_changes_nothing_else(pool: PoolDriver) -> None:
    family = three_merges(pool, "wide")
    before = {name: family.version(name) for name in (*FLAGGED, *UNTOUCHED)}
    assert family.download("c/again", by="d").status_code == 200
    preview = family.member("a").get(
        f"/api/v1/models/{family.address('a/bad')}/versions/1/withdrawal-preview"
    )
    assert preview.status_code == 200, preview.text
    foreseen = preview.json()
    assert not foreseen["withdrawn"]
    assert family.version("a/first") == before["a/first"], "a preview changes nothing"

    answer = family.withdraw("a/bad", "consent-withdrawn", explanation="One family.")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["withdrawal"]["effect"] == "refuse"
    assert [version["address"] for version in body["versions"]] == [
        before[name]["address"] for name in FLAGGED
    ]
    assert body["versions"] == foreseen["versions"]
    assert body["sites"] == foreseen["sites"]
    assert body["sites"] == [
        {"site": family.site("a"), "versions": 1, "downloaded": 0},
        {"site": family.site("b"), "versions": 1, "downloaded": 0},
        {"site": family.site("c"), "versions": 2, "downloaded": 0},
        {"site": family.site("d"), "versions": 0, "downloaded": 1},
    ]

    withdrawn = family.version("a/bad")
    assert withdrawn["state"] == "withdrawn"
    assert withdrawn["withdrawal"]["reason"] == "consent-withdrawn"
    assert withdrawn["flags"] == []
    for name in FLAGGED:
        after = family.version(name)
        [flag] = after.pop("flags")
        assert (flag["address"], flag["reason"]) == (withdrawn["address"], "consent-withdrawn")
        assert {**after, "flags": []} == before[name]
    for name in UNTOUCHED:
        assert family.version(name) == before[name]


def test_downloads_are_refused_or_carry_a_warning(pool: PoolDriver) -> None:
    family = three_merges(pool, "loads")
    family.add("b/other")
    family.withdraw("a/bad", "licence", explanation="Not ours to share.")
    refused = family.download("a/bad", by="b")
    assert error_of(refused) == (410, "version_withdrawn")
    said = "withdrawn (licence) and can no longer be used: Not ours to share."
    assert said in refused.json()["error"]["message"]
    flagged = family.download("c/again", by="b")
    assert flagged.content == family.files["c/again"]
    assert warning_of(flagged) == "flagged; reason=licence"
    assert warning_of(family.download("b/clean", by="a")) is None

    family.withdraw("b/other", "quality", successor=f"{family.address('b/good')}@1")
    warned = family.download("b/other", by="a")
    assert warned.content == family.files["b/other"]
    assert warning_of(warned) == "withdrawn; reason=quality"
    assert family.version("b/other")["successors"] == [family.version("b/good")["address"]]


def test_a_withdrawal_covers_the_same_bytes_under_another_name(pool: PoolDriver) -> None:
    family = Family(pool, "twin")
    family.add("a/bad")
    family.add("a/poor")
    let_hand_on(family.member("a"), family.address("a/bad"))
    copy = upload(family.member("b"), family.address("b/copy"), family.files["a/bad"])
    body = family.withdraw("a/bad", "security").json()
    assert [(version["address"], version["same_bytes"]) for version in body["versions"]] == [
        (copy["address"], True)
    ]
    family.files["b/copy"] = family.files["a/bad"]
    assert family.version("b/copy")["state"] == "available"
    assert error_of(family.download("b/copy", by="a")) == (410, "version_withdrawn")
    again = announce(family.member("c"), family.address("c/new"), family.files["a/bad"])
    assert error_of(again) == (409, "bytes_withdrawn")

    family.withdraw("a/poor", "quality")
    let_hand_on(family.member("a"), family.address("a/poor"))
    late = upload(family.member("c"), family.address("c/late"), family.files["a/poor"])
    assert [flag["reason"] for flag in late["flags"]] == ["quality"]
    assert late["flags"][0]["digest"] == late["digest"]


def test_withdrawing_a_copy_does_not_affect_the_original(pool: PoolDriver) -> None:
    """A site that may download a file may also copy it under its own name."""
    family = three_merges(pool, "copier")
    let_hand_on(family.member("a"), family.address("a/bad"))
    family.files["d/copy"] = family.files["a/bad"]
    copy = announce(family.member("d"), family.address("d/copy"), family.files["a/bad"])
    assert copy.json()["state"] == "complete", "nothing was sent"
    for role in ("contributor", "admin"):
        member = family.member("d", role)
        response = family.withdraw("d/copy", "security", client=member)
        assert error_of(response) == (403, "not_allowed")
        path = f"/api/v1/models/{family.address('d/copy')}/versions/1"
        assert error_of(member.get(f"{path}/withdrawal-preview")) == (403, "not_allowed")
    assert family.download("a/bad", by="c").status_code == 200
    assert family.version("c/again")["flags"] == []
    gone = member.delete(path, params={"force": True})
    assert gone.status_code == 204, "its own copy it can delete"
    assert family.withdraw("a/bad", "security").status_code == 200


def test_later_merges_are_flagged_at_once(pool: PoolDriver) -> None:
    family = Family(pool, "later")
    family.add("a/bad")
    family.add("b/good")
    # The middle of this family comes last: until then nothing connects its ends.
    family.files["b/middle"] = bytes(family.files["b/good"])[:-4] + b"\0\0\0\1"
    family.add("c/end", "b/middle")
    family.withdraw("a/bad", "data-error")
    assert family.version("c/end")["flags"] == []
    family.add("b/direct", "a/bad", "b/good")
    assert len(family.version("b/direct")["flags"]) == 1
    family.add("b/middle", "a/bad")
    assert len(family.version("b/middle")["flags"]) == 1
    assert len(family.version("c/end")["flags"]) == 1
    told = family.events("c")
    assert [event["kind"] for event in told] == ["version.flagged"]
    assert told[0]["details"]["versions"] == [family.version("c/end")["address"]]


def test_a_withdrawal_cannot_be_undone_only_made_stricter(pool: PoolDriver) -> None:
    family = three_merges(pool, "once")
    assert family.withdraw("a/bad", "quality").status_code == 200
    assert error_of(family.withdraw("a/bad", "data-error")) == (409, "already_withdrawn")
    stricter = family.withdraw("a/bad", "security", explanation="It holds a back door.")
    assert stricter.json()["withdrawal"]["effect"] == "refuse"
    assert error_of(family.download("a/bad", by="c")) == (410, "version_withdrawn")
    assert [flag["reason"] for flag in family.version("c/again")["flags"]] == ["security"]
    assert error_of(family.withdraw("a/bad", "other"))[0] == 409


def test_owners_and_downloaders_are_notified_of_a_withdrawal(pool: PoolDriver) -> None:
    family = three_merges(pool, "told")
    family.download("a/bad", by="d")
    family.download("c/again", by="d")
    family.download("c/again", by="d")
    family.withdraw("a/bad", "consent-withdrawn", explanation="Please delete it.")
    kinds = {site: [event["kind"] for event in family.events(site)] for site in "abcd"}
    assert kinds == {
        "a": ["version.withdrawn", "version.flagged"],
        "b": ["version.flagged"],
        "c": ["version.flagged"],
        "d": ["version.withdrawn", "version.flagged"],
    }
    [of_c] = family.events("c")
    assert of_c["subject"] == family.version("a/bad")["address"]
    assert of_c["details"]["explanation"] == "Please delete it."
    assert of_c["details"]["versions"] == [
        family.version("c/third")["address"],
        family.version("c/again")["address"],
    ]
    assert family.events("d")[1]["details"]["downloaded"] == [family.version("c/again")["address"]]


def test_a_private_family_is_flagged_and_stays_private(pool: PoolDriver) -> None:
    family = Family(pool, "hidden")
    family.add("a/bad")
    family.add("b/secret", "a/bad")
    make_private(pool, family.site("b"))
    body = family.withdraw("a/bad", "consent-withdrawn").json()
    assert (body["versions"], body["versions_total"]) == ([], 1)
    assert len(family.version("b/secret")["flags"]) == 1
    tree = family.member("a").get(f"/api/v1/lineage/{family.digest('a/bad')}").json()
    assert [node["digest"] for node in tree["nodes"]] == [family.digest("a/bad")]


def test_a_flag_does_not_reveal_the_name_of_a_private_version(pool: PoolDriver) -> None:
    family = Family(pool, "nameless")
    family.add("a/secret", visibility="private")
    family.add("a/own", "a/secret")
    family.add("b/merged", "a/secret")
    family.withdraw("a/secret", "quality")
    digest = family.digest("a/secret")
    for name in ("b/merged", "a/own"):
        path = f"/api/v1/models/{family.address(name)}/versions/1"
        [of_b], [of_a], [listed] = (
            family.member("b").get(path).json()["flags"],
            family.member("a").get(path).json()["flags"],
            family.member("b")
            .get(f"/api/v1/models/{family.address(name)}")
            .json()["items"][0]["flags"],
        )
        assert (of_b["address"], of_b["digest"]) == (f"sha256:{digest}", digest)
        assert of_a["address"] == family.version("a/secret")["address"], "its own site knows it"
        assert listed == of_b
    asked = {"digests": [family.digest("b/merged")]}
    answer = family.member("c").post("/api/v1/withdrawals/check", json=asked)
    assert family.address("a/secret") not in answer.text


def test_events_and_audit_do_not_reveal_the_name_of_a_private_version(pool: PoolDriver) -> None:
    family = Family(pool, "unnamed")
    family.add("a/secret", visibility="private")
    family.add("a/shown", visibility="private")
    family.add("b/any")
    listed = {"visibility": "sites", "sites": [{"site": family.site("b")}]}
    path = f"/api/v1/models/{family.address('a/shown')}/sharing"
    assert family.member("a").put(path, json=listed).status_code == 200
    family.add("b/merged", "a/secret", "a/shown")
    for name in ("a/secret", "a/shown"):
        family.withdraw(name, "quality", explanation="Swapped eyes.")
    family.add("b/late", "a/secret")
    secret, shown = family.digest("a/secret"), family.version("a/shown")["address"]
    told = [event for event in family.events("b") if event["kind"] == "version.flagged"]
    assert [event["subject"] for event in told] == [
        f"sha256:{secret}", shown, f"sha256:{secret}",
    ]  # fmt: skip
    assert [event["details"]["by"] for event in told] == [
        "", f"{family.site('a')}/test-contributor", "",
    ]  # fmt: skip
    assert [event["details"]["explanation"] for event in told] == ["", "Swapped eyes.", ""]
    owner_events = family.events("a")
    assert [event["subject"] for event in owner_events] == [
        family.version("a/secret")["address"],
        shown,
    ]
    audit = family.member("b", "admin").get("/api/v1/audit", params={"action": "version.flag"})
    assert family.address("a/secret") not in audit.text
    assert f"sha256:{secret}" in audit.text


def test_lineage_shows_withdrawals_and_recipes(pool: PoolDriver) -> None:
    family = three_merges(pool, "marked")
    family.withdraw("a/bad", "licence")
    client = family.member("d")
    tree = client.get(
        f"/api/v1/lineage/{family.digest('c/again')}", params={"recipes": "true"}
    ).json()
    nodes = {node["digest"]: node for node in tree["nodes"]}
    marks = {
        name: (node["withdrawn"], node["flagged"])
        for name in ("a/bad", "b/good", "c/third", "c/again")
        for node in [nodes[family.digest(name)]]
    }
    assert marks == {
        "a/bad": ("licence", False),
        "b/good": (None, False),
        "c/third": (None, True),
        "c/again": (None, True),
    }
    third = recipe_for(
        family.files["c/third"], *(family.digest(item) for item in ("b/good", "a/bad", "c/fine"))
    )
    assert nodes[family.digest("c/third")]["recipe"] == third
    assert nodes[family.digest("b/good")]["recipe"] is None
    assert tree["recipe"] == nodes[family.digest("c/again")]["recipe"]
    assert client.get(f"/api/v1/lineage/{'12' * 32}").status_code == 404


def warning_of(response: httpx.Response) -> str | None:
    """Return the warning of a download: in the pool's own answer, wherever it leads."""
    first = response.history[0] if response.history else response
    return first.headers.get("x-pool-warning")


def test_withdrawn_versions_cannot_be_merged(pool: PoolDriver) -> None:
    family = Family(pool, "begun")
    family.files["a/base"] = bytes(encode_model(make_predictor(71)))
    family.add("a/base")
    base = f"{family.address('a/base')}@1"
    client, _ = family.member("b"), family.member("c")
    sites = (family.site("b"), family.site("c"))
    assert ask_for_round(client, base, sites).status_code == 201
    family.withdraw("a/base", "data-error")
    assert error_of(ask_for_round(client, base, sites)) == (422, "round_refused")


def test_flagged_versions_are_used_only_on_request(pool: PoolDriver) -> None:
    family = Family(pool, "asked")
    for name, parents in (("a/root", ()), ("b/middle", ("a/root",)), ("b/other", ())):
        family.add(name, *parents)
    family.withdraw("a/root", "data-error")
    for parent in ("a/root", "b/middle"):
        content = network_bytes()
        recipe = recipe_for(content, family.digest(parent), family.digest("b/other"))
        said = announce(family.member("c"), family.address("c/merged"), content, recipe=recipe)
        assert error_of(said) == (409, "inputs_withdrawn")
        assert family.digest("a/root")[:12] in said.json()["error"]["hint"]
    family.add("c/merged", "b/middle", "b/other")
    assert family.version("c/merged")["flags"]


def test_the_newest_version_is_an_unflagged_one(pool: PoolDriver) -> None:
    family = Family(pool, "newest")
    family.add("a/root")
    family.add("b/merged", "a/root")
    family.files.pop("b/merged")
    clean = family.add("b/merged")
    family.files.pop("b/merged")
    late = family.add("b/merged", "a/root")
    client, address = family.member("c"), family.address("b/merged")

    def newest() -> list[int]:
        parameters = {"latest": True, "name": address.split("/")[1], "site": family.site("b")}
        listed = client.get("/api/v1/models", params=parameters).json()["items"]
        named = client.get(f"/api/v1/models/{address}/versions/latest").json()
        return [named["version"], *(version["version"] for version in listed)]

    assert newest() == [late["version"]] * 2
    family.withdraw("a/root", "data-error")
    assert newest() == [clean["version"]] * 2
    family.files.pop("b/merged")
    family.add("b/merged", "a/root")
    assert newest() == [clean["version"]] * 2, "nor what comes later"
    path = f"/api/v1/models/{address}/versions/{clean['version']}/withdraw"
    assert family.member("b").post(path, json={"reason": "data-error"}).is_success
    assert newest() == [4, 4], "where all are flagged, the newest of them"


def test_two_processes_neither_miss_a_version_nor_flag_it_twice(pool: PoolDriver) -> None:
    """A version published while its ancestor is withdrawn is flagged by one or the other."""
    family = three_merges(pool, "race")
    names = [f"c/racer-{number}" for number in range(4)]
    with ThreadPoolExecutor(len(names) + 1) as workers:
        jobs = [workers.submit(family.add, name, "c/third", "b/good") for name in names]
        withdrawn = workers.submit(family.withdraw, "a/bad", "quality")
        assert withdrawn.result().status_code == 200
        for job in jobs:
            job.result()
    for name in names:
        assert [flag["reason"] for flag in family.version(name)["flags"]] == ["quality"], name


def make_private(pool: PoolDriver, site: str) -> None:
    """Let nobody but a site see its models."""
    of_site = select(SiteRecord.id).where(SiteRecord.name == site).scalar_subquery()
    pool.change(
        update(ModelRecord).where(ModelRecord.site_id == of_site).values(visibility="private")
    )


def test_copies_of_models_no_longer_shared_can_be_checked(pool: PoolDriver) -> None:
    family = Family(pool, "unshared")
    for name in ("a/bad", "b/good"):
        family.add(name)
    family.add("b/merged", "a/bad")
    family.add("b/clean", "b/good")
    assert family.download("a/bad", by="d").status_code == 200
    for site in "ab":
        make_private(pool, family.site(site))
    heir = network_bytes()
    upload(family.member("a"), family.address("a/bad"), heir)
    named = {"successor": f"{family.address('a/bad')}@2"}
    family.withdraw("a/bad", "consent-withdrawn", explanation="One family.", **named)

    asked = {"digests": [family.digest(name) for name in ("a/bad", "b/merged", "b/clean")]}
    answer = family.member("d", "viewer").post("/api/v1/withdrawals/check", json=asked)
    bad, merged = answer.json()["items"]
    nameless = f"sha256:{family.digest('a/bad')}"
    [withdrawn] = bad["withdrawals"]
    del withdrawn["withdrawn_at"]
    assert withdrawn == {
        "address": nameless, "digest": family.digest("a/bad"), "reason": "consent-withdrawn",
        "effect": "refuse", "explanation": "", "withdrawn_by": "", "successors": [],
    }  # fmt: skip
    assert bad["successors"] == []
    [flag] = merged["flags"]
    assert (flag["address"], flag["digest"]) == (nameless, family.digest("a/bad"))
    assert family.prefix not in answer.text
    site_items = family.member("a").post("/api/v1/withdrawals/check", json=asked).json()["items"]
    assert site_items[0]["withdrawals"][0]["explanation"] == "One family."
    assert site_items[0]["successors"] == [f"pool://{family.address('a/bad')}@2"]


REASON = {"reason": "Swapped eyes."}
NOT_FOUND, GONE = (404, "model_not_found"), (410, "version_withdrawn")


def path_of(family: Family, name: str) -> str:
    return f"/api/v1/models/{family.address(name)}/versions/1"


def listed(client: httpx.Client, name: str, **query: Any) -> list[tuple[str, str]]:
    items = client.get("/api/v1/models", params={"name": name, **query}).json()["items"]
    return [(item["address"], item["state"]) for item in items]


def test_a_draft_cannot_be_withdrawn(pool: PoolDriver) -> None:
    family = Family(pool, "never")
    family.add("a/early", draft=True)
    assert error_of(family.withdraw("a/early", "other")) == (409, "wrong_state")
    assert error_of(family.member("z").get(path_of(family, "a/early"))) == NOT_FOUND


def test_a_withdrawal_does_not_publish_quarantined_bytes(pool: PoolDriver) -> None:
    family = Family(pool, "doubted")
    family.add("a/doubted")
    family.add("b/made", "a/doubted")
    path, foreign = path_of(family, "a/doubted"), family.member("c")
    assert foreign.get(f"{path}/content").status_code == 200
    assert pool.admin.post(f"{path}/quarantine", json=REASON).status_code == 200
    body = family.withdraw("a/doubted", "quality").json()
    assert body["withdrawal"]["effect"] == "refuse"
    # That there was such a version, everybody knew; those who have it find out what became of it.
    assert foreign.get(path).json()["state"] == "withdrawn"
    assert listed(foreign, "doubted", state="withdrawn", site=family.site("a")) == [
        (f"pool://{family.address('a/doubted')}@1", "withdrawn")
    ]
    for client in (foreign, family.member("a"), pool.admin):
        assert error_of(client.get(f"{path}/content")) == GONE
    [flag] = family.version("b/made")["flags"]
    assert flag["address"] == f"pool://{family.address('a/doubted')}@1"
    kinds = [item["kind"] for item in foreign.get("/api/v1/events").json()["items"]]
    assert kinds == ["version.withdrawn"]


def test_a_deleted_version_does_not_reveal_its_inputs(pool: PoolDriver) -> None:
    family = Family(pool, "gone")
    family.add("a/part")
    family.add("a/merged", "a/part", draft=True)
    family.add("b/again", "a/merged")

    def parents_told(site: str) -> set[str]:
        lineage = family.member(site).get(f"{path_of(family, 'b/again')}/lineage").json()
        return {node["digest"] for node in lineage["nodes"]}

    merged, part = family.digest("a/merged"), family.digest("a/part")
    both = {merged, family.digest("b/again")}
    assert (parents_told("z"), parents_told("a")) == (both, both | {part})
    deleted = family.member("a").delete(path_of(family, "a/merged"), params={"force": True})
    assert deleted.status_code == 204
    assert (parents_told("z"), parents_told("a")) == (both, both)
    below = family.member("z").get(f"{path_of(family, 'a/part')}/lineage").json()["nodes"]
    assert merged not in {node["digest"] for node in below}
