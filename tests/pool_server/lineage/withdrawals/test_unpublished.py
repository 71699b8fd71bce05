"""A withdrawal never publishes a hidden version, for any reason."""

from typing import Any

import httpx

from tests.pool_server.lineage.withdrawals.families import Family
from tests.pool_server.pool_driver import PoolDriver, error_of

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
    refused = family.withdraw("a/early", "other")
    assert error_of(refused) == (409, "wrong_state")
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
    assert deleted.status_code == 200
    assert (parents_told("z"), parents_told("a")) == (both, both)
    below = family.member("z").get(f"{path_of(family, 'a/part')}/lineage").json()["nodes"]
    assert merged not in {node["digest"] for node in below}
