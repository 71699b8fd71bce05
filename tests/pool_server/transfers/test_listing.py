"""Open uploads are listed: each site sees its own, admins see all."""

from typing import Any

import httpx
import pytest

from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload

PATH = "/api/v1/uploads"


def listed(client: httpx.Client, **parameters: Any) -> list[dict[str, Any]]:
    answer = client.get(PATH, params=parameters)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
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
    of_site = listed(member)
    assert [upload["upload_id"] for upload in of_site] == begun[1::2], "and no complete ones"
    assert of_site == listed(member, site="listed-a")
    newest = of_site[0]
    assert newest["name"] == "gaze-4"
    assert newest["created_by"] == "listed-a/test-contributor"
    assert (newest["state"], newest["purpose"], newest["size_bytes"]) == ("receiving", "version", 5)
    assert error_of(member.get(PATH, params={"site": "listed-b"})) == (403, "not_allowed")
    assert listed(pool.admin, site="listed-a") == of_site
    everybody = [upload["upload_id"] for upload in listed(pool.admin)]
    assert [upload_id for upload_id in everybody if upload_id in begun] == begun
    assert error_of(pool.admin.get(PATH, params={"site": "nowhere"})) == (404, "site_not_found")
