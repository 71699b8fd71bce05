"""What was not given out before is not given out by its withdrawal, whatever the reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from pool_server.operations.checking import check_pool
from pool_server.operations.inventory import opened_pool
from tests.pool_server.conftest import OpenPool
from tests.pool_server.lineage.withdrawals.families import Family
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload

REASON = {"reason": "Swapped eyes."}
NOT_FOUND, GONE = (404, "version_not_found"), (410, "version_withdrawn")


def path_of(family: Family, name: str) -> str:
    return f"/api/v1/models/{family.address(name)}/versions/1"


def listed(client: httpx.Client, name: str, **query: Any) -> list[tuple[str, str]]:
    items = client.get("/api/v1/models", params={"name": name, **query}).json()["items"]
    return [(each["address"], each["state"]) for each in items]


def require_retracted(family: Family, name: str) -> None:
    """Its own site is told all but the bytes, and so is the admin; everybody else nothing."""
    path, model = path_of(family, name), name.split("/")[1]
    digest, foreign, home = family.digest(name), family.member("z"), family.owner(name)
    of_site = {"site": family.site(name.partition("/")[0])}
    assert error_of(foreign.get(path)) == NOT_FOUND
    for part in ("/content", "/lineage", "/card"):
        assert error_of(foreign.get(path + part)) == NOT_FOUND
    for client, known in ((foreign, []), (home, [(f"pool://{family.address(name)}@1",)])):
        shown = [(*each, "withdrawn") for each in known]
        assert listed(client, model, **of_site) == []
        for state in ("withdrawn", "any"):
            assert listed(client, model, state=state, **of_site) == shown
        query = {"name": model, "state": "withdrawn", **of_site}
        states = client.get("/api/v1/models/facets", params=query)
        assert states.json()["states"] == [{"value": "withdrawn", "count": 1}] * len(known)
        withdrawn = client.get("/api/v1/withdrawals", params=of_site).json()["items"]
        assert [(each["address"],) for each in withdrawn] == known
    for client in (home, family.pool.admin):
        assert client.get(path).json()["state"] == "withdrawn"
        assert error_of(client.get(f"{path}/content")) == GONE
    queue = family.pool.admin.get("/api/v1/queue", params={"limit": 100}).json()["items"]
    assert digest not in {each["digest"] for each in queue}
    again = announce(foreign, family.address("z/again"), family.files[name])
    assert error_of(again) == (409, "bytes_withdrawn")


@pytest.mark.parametrize("begins", ["draft", "quarantined"])
def test_what_was_never_available_is_told_to_nobody_else(pool: PoolDriver, begins: str) -> None:
    family = Family(pool, f"never-{begins}")
    family.add("a/early", draft=True)
    family.add("b/made", "a/early")
    path = path_of(family, "a/early")
    if begins == "quarantined":
        assert pool.admin.post(f"{path}/quarantine", json=REASON).status_code == 200
    weak = family.withdraw("a/early", "other", effect="warn")
    assert error_of(weak) == (422, "withdrawal_refused")
    done = family.withdraw("a/early", "other", explanation="One family took part twice.")
    assert done.status_code == 200, done.text
    assert done.json()["withdrawal"]["effect"] == "refuse"
    require_retracted(family, "a/early")

    own = f"pool://{family.address('a/early')}@1"
    nameless = f"sha256:{family.digest('a/early')}"
    [flag] = family.version("b/made")["flags"]
    assert (flag["address"], flag["reason"]) == (nameless, "other")
    events = family.member("b").get("/api/v1/events").json()["items"]
    assert [(each["kind"], each["subject"]) for each in events] == [("version.flagged", nameless)]
    assert [events[0]["details"][each] for each in ("explanation", "by")] == ["", ""]
    events = family.member("a").get("/api/v1/events").json()["items"]
    assert ("version.withdrawn", own) in {(each["kind"], each["subject"]) for each in events}
    preview = family.member("a").get(f"{path}/withdrawal-preview").json()
    assert preview["withdrawn"]
    assert error_of(family.withdraw("a/early", "security")) == (409, "already_withdrawn")

    assert family.member("a").delete(path, params={"force": True}).status_code == 200
    [flag] = family.version("b/made")["flags"]
    assert flag["address"] == nameless, "nor when it is deleted"
    asked = {"digests": [family.digest("a/early")]}
    told = family.member("b").post("/api/v1/withdrawals/check", json=asked).json()["items"]
    assert [each["address"] for each in told[0]["withdrawals"]] == [nameless]


def test_doubted_bytes_are_not_public_again_by_a_withdrawal(pool: PoolDriver) -> None:
    family = Family(pool, "doubted")
    family.add("a/doubted")
    family.add("b/made", "a/doubted")
    path, foreign = path_of(family, "a/doubted"), family.member("c")
    assert foreign.get(f"{path}/content").status_code == 200
    assert pool.admin.post(f"{path}/quarantine", json=REASON).status_code == 200
    done = family.withdraw("a/doubted", "quality").json()
    assert done["withdrawal"]["effect"] == "refuse"
    # That there was such a version, everybody knew; those who have it find out what became of it.
    assert foreign.get(path).json()["state"] == "withdrawn"
    assert listed(foreign, "doubted", state="withdrawn", site=family.site("a")) == [
        (f"pool://{family.address('a/doubted')}@1", "withdrawn")
    ]
    for client in (foreign, family.member("a"), pool.admin):
        assert error_of(client.get(f"{path}/content")) == GONE
    [flag] = family.version("b/made")["flags"]
    assert flag["address"] == f"pool://{family.address('a/doubted')}@1"
    kinds = [each["kind"] for each in foreign.get("/api/v1/events").json()["items"]]
    assert kinds == ["version.withdrawn"]


def test_what_was_released_is_withdrawn_as_any_other(pool: PoolDriver) -> None:
    family = Family(pool, "released")
    family.add("a/face", draft=True)
    path = path_of(family, "a/face")
    assert pool.admin.post(f"{path}/quarantine", json=REASON).status_code == 200
    assert pool.admin.post(f"{path}/release").status_code == 200
    assert family.withdraw("a/face", "quality").json()["withdrawal"]["effect"] == "warn"
    assert family.download("a/face", by="b").content == family.files["a/face"]


def test_a_contributor_does_not_publish_by_withdrawing(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path, curated=True) as pool:
        family = Family(pool, "curated")
        assert family.add("a/face")["state"] == "draft"
        upload(family.member("a", "curator"), family.address("a/other"))
        assert family.withdraw("a/face", "other").status_code == 200
        require_retracted(family, "a/face")
    with opened_pool(pool.settings) as closed:
        assert check_pool(closed, read_files=False).problems == ()


def test_a_private_draft_stays_private(pool: PoolDriver) -> None:
    family = Family(pool, "privately")
    family.add("a/secret", draft=True, visibility="private")
    assert family.withdraw("a/secret", "data-error").status_code == 200
    sharing = {"visibility": "consortium"}
    path = f"/api/v1/models/{family.address('a/secret')}/sharing"
    assert family.member("a").put(path, json=sharing).status_code == 200
    require_retracted(family, "a/secret")


def test_deleting_a_draft_does_not_tell_what_it_was_made_of(pool: PoolDriver) -> None:
    family = Family(pool, "gone")
    family.add("a/part")
    family.add("a/merged", "a/part", draft=True)
    family.add("b/again", "a/merged")

    def parents_told(site: str) -> set[str]:
        lineage = family.member(site).get(f"{path_of(family, 'b/again')}/lineage").json()
        return {each["digest"] for each in lineage["nodes"]}

    merged, part = family.digest("a/merged"), family.digest("a/part")
    both = {merged, family.digest("b/again")}
    assert (parents_told("z"), parents_told("a")) == (both, both | {part})
    deleted = family.member("a").delete(path_of(family, "a/merged"), params={"force": True})
    assert deleted.status_code == 200
    assert (parents_told("z"), parents_told("a")) == (both, both | {part})
    below = family.member("z").get(f"{path_of(family, 'a/part')}/lineage").json()["nodes"]
    assert merged not in {each["digest"] for each in below}
