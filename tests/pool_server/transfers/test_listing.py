"""Open uploads are listed: each site sees its own, admins see all."""

from typing import Any

import httpx
import pytest

from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload

PATH = "/api/v1/uploads"


def pages(client: httpx.Client, **parameters: Any) -> list[dict[str, Any]]:
    """Read all pages."""
    items: list[dict[str, Any]] = []
    while True:
        answer = client.get(PATH, params=parameters)
        assert answer.status_code == 200, answer.text
        items += answer.json()["items"]
        parameters["cursor"] = answer.json()["next_cursor"]
        if parameters["cursor"] is None:
            return items


@pytest.fixture(scope="module")
def begun(pool: PoolDriver) -> list[str]:
    """Begin uploads to two sites in turn; return the identifiers, newest first."""
    started = []
    for number in range(5):
        for site in ("listed-a", "listed-b"):
            opened = announce(pool.member(site), f"{site}/gaze-{number}", b"x" * (number + 1))
            started.append(opened.json()["upload_id"])
    upload(pool.member("listed-a"), "listed-a/whole")
    return started[::-1]


def test_each_site_sees_its_own_and_admins_see_all(pool: PoolDriver, begun: list[str]) -> None:
    member = pool.member("listed-a")
    of_site = pages(member, limit=2)
    assert [upload["upload_id"] for upload in of_site] == begun[1::2], "and no complete ones"
    assert of_site == pages(member, site="listed-a")
    newest = of_site[0]
    assert newest["name"] == "gaze-4"
    assert newest["created_by"] == "listed-a/test-contributor"
    assert (newest["state"], newest["purpose"], newest["size_bytes"]) == ("receiving", "version", 5)
    assert error_of(member.get(PATH, params={"site": "listed-b"})) == (403, "not_allowed")
    assert pages(pool.admin, site="listed-a", limit=3) == of_site
    everybody = [upload["upload_id"] for upload in pages(pool.admin, limit=7)]
    assert [upload_id for upload_id in everybody if upload_id in begun] == begun
    assert len(everybody) == len(set(everybody))
    assert error_of(pool.admin.get(PATH, params={"site": "nowhere"})) == (404, "site_not_found")
    assert error_of(member.get(PATH, params={"cursor": "djE6YmVmb3JlPTQy"}))[0] == 422


def test_a_page_goes_on_where_the_one_before_ended(pool: PoolDriver) -> None:
    member = pool.member("listed-c")
    first, second, third = (
        announce(member, f"listed-c/gaze-{number}", b"x").json()["upload_id"] for number in range(3)
    )
    page = member.get(PATH, params={"limit": 2}).json()
    assert [upload["upload_id"] for upload in page["items"]] == [third, second]
    announce(member, "listed-c/newer", b"x")
    assert member.delete(f"{PATH}/{second}").status_code == 204
    rest = member.get(PATH, params={"limit": 2, "cursor": page["next_cursor"]}).json()
    assert [upload["upload_id"] for upload in rest["items"]] == [first]
    assert rest["next_cursor"] is None
