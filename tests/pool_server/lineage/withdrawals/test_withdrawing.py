"""Withdrawing a version: what is flagged, who hears of it, what becomes of downloads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import select, update

from pool_server.database.engine import Database
from pool_server.database.records import ModelRecord, SiteRecord
from tests.pool_server.lineage.withdrawals.families import Family, three_merges
from tests.pool_server.pool_driver import PoolDriver, error_of

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
    done = answer.json()
    assert done["withdrawal"]["effect"] == "refuse"
    assert [each["address"] for each in done["versions"]] == [
        before[name]["address"] for name in FLAGGED
    ]
    assert done["versions"] == foreseen["versions"]
    assert done["sites"] == foreseen["sites"]
    assert done["sites"] == [
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


def test_downloads_are_refused_or_warned_of(pool: PoolDriver) -> None:
    family = three_merges(pool, "loads")
    family.add("b/other")
    family.withdraw("a/bad", "licence", explanation="Not ours to share.")
    refused = family.download("a/bad", by="b")
    assert error_of(refused) == (410, "version_withdrawn")
    assert refused.json()["error"]["details"]["reason"] == "licence"
    assert "Not ours to share." in refused.json()["error"]["message"]
    flagged = family.download("c/again", by="b")
    assert flagged.content == family.files["c/again"]
    assert warning_of(flagged) == "flagged; reason=licence"
    assert warning_of(family.download("b/clean", by="a")) is None

    family.withdraw("b/other", "quality", successor=f"{family.address('b/good')}@1")
    warned = family.download("b/other", by="a")
    assert warned.content == family.files["b/other"]
    assert warning_of(warned) == "withdrawn; reason=quality"
    assert family.version("b/other")["successors"] == [family.version("b/good")["address"]]


def test_owners_and_those_who_fetched_hear_of_it(pool: PoolDriver) -> None:
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


def test_a_flag_does_not_tell_the_name_of_what_is_private(pool: PoolDriver) -> None:
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


def warning_of(response: httpx.Response) -> str | None:
    """Return the warning of a download: in the pool's own answer, wherever it leads."""
    first = response.history[0] if response.history else response
    warning: str | None = first.headers.get("x-pool-warning")
    return warning


def test_the_newest_is_one_that_holds_nothing_withdrawn(pool: PoolDriver) -> None:
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
        return [named["version"], *(each["version"] for each in listed)]

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
        done = [workers.submit(family.add, name, "c/third", "b/good") for name in names]
        withdrawn = workers.submit(family.withdraw, "a/bad", "quality")
        assert withdrawn.result().status_code == 200
        for each in done:
            each.result()
    for name in names:
        assert [flag["reason"] for flag in family.version(name)["flags"]] == ["quality"], name


def make_private(pool: PoolDriver, site: str) -> None:
    """Let nobody but a site see its models."""
    database = Database.open(pool.settings)
    with database.write() as session:
        of_site = select(SiteRecord.id).where(SiteRecord.name == site).scalar_subquery()
        session.execute(
            update(ModelRecord).where(ModelRecord.site_id == of_site).values(visibility="private")
        )
    database.close()
