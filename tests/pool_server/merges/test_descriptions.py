"""A merge's description of its result has all the fields of an upload's."""

from typing import Any

import httpx
import pytest

from tests.pool_server.merges.merge_driver import OVER, ask, landmark_bytes, recipe_of, wait_for
from tests.pool_server.pool_driver import PoolDriver, error_of, upload

SITE = "described"
RESEARCH_ONLY = {"code": "DUO:0000042", "detail": ""}
CARD = "---\nlicense: cc-by-4.0\n---\n# Merged\n"


@pytest.fixture(scope="module")
def member(pool: PoolDriver) -> httpx.Client:
    return pool.member(SITE)


@pytest.fixture(scope="module")
def recipe(member: httpx.Client) -> dict[str, Any]:
    inputs = [
        upload(member, f"{SITE}/face-{seed}", landmark_bytes(seed), terms=[RESEARCH_ONLY])
        for seed in (51, 54)
    ]
    return recipe_of(list(inputs))


def test_all_of_it_is_published(
    pool: PoolDriver, member: httpx.Client, recipe: dict[str, Any]
) -> None:
    said: dict[str, Any] = {
        "description": "Of two sites",
        "labels": {"population": "infant"},
        "metrics": {"mean_error": 0.07},
        "terms": [{"code": "DUO:0000019", "detail": ""}],
        "visibility": "private",
        "card": CARD,
        "draft": True,
    }
    asked = ask(member, recipe, site=SITE, **said)
    assert asked.status_code == 202, asked.text
    job = wait_for(member, asked.json()["merge_id"], OVER)
    assert job["state"] == "finished", job
    path = f"/api/v1/models/{SITE}/merged/versions/1"
    version = member.get(path).json()
    for name in ("description", "labels", "metrics", "visibility"):
        assert version[name] == said[name]
    assert version["state"] == "draft"
    codes = {term["code"]: term["inherited"] for term in version["terms"]}
    assert codes == {"DUO:0000019": False, "DUO:0000042": True}
    assert member.get(f"{path}/card").json()["source"] == CARD
    assert pool.member("described-other").get(path).status_code == 404


@pytest.mark.parametrize(
    ("said", "refusal"),
    [
        ({"terms": [{"code": "DUO:0000004", "detail": ""}]}, (409, "terms_forbid")),
        ({"labels": {"images": "many"}}, (422, "labels_refused")),
        ({"card": "---\n[\n---\n"}, (422, "card_refused")),
        ({"name": "face-51", "visibility": "private"}, (422, "sharing_refused")),
    ],
)
def test_what_cannot_be_said_is_refused_before_the_work(
    member: httpx.Client, recipe: dict[str, Any], said: dict[str, Any], refusal: tuple[int, str]
) -> None:
    before = member.get("/api/v1/merges").json()["items"]
    assert error_of(ask(member, recipe, **{"site": SITE, **said})) == refusal
    assert member.get("/api/v1/merges").json()["items"] == before
