"""Sites, their rights, and their usage."""

import pytest

from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import (
    PoolDriver,
    announce,
    complete,
    error_of,
    let_hand_on,
    send_parts,
    upload,
)


@pytest.mark.both_databases
def test_a_site_is_created_once_and_listed(pool: PoolDriver) -> None:
    request = {"name": "lab-1", "display_name": "Infant lab", "contact": "room 3"}
    created = pool.admin.post("/api/v1/sites", json=request)
    assert created.status_code == 201
    assert created.json().items() >= request.items()
    assert error_of(pool.admin.post("/api/v1/sites", json=request)) == (409, "site_exists")
    listed = pool.admin.get("/api/v1/sites").json()["items"]
    assert created.json() in listed
    assert [site["name"] for site in listed] == sorted(site["name"] for site in listed)


def test_a_site_can_change_its_display_name(pool: PoolDriver) -> None:
    admin = pool.member("lab-7", "admin")
    changed = admin.patch("/api/v1/sites/lab-7", json={"contact": "room 4"})
    assert changed.json()["contact"] == "room 4"
    again = admin.patch("/api/v1/sites/lab-7", json={"display_name": "Seventh"}).json()
    assert (again["display_name"], again["contact"]) == ("Seventh", "room 4")
    elsewhere = admin.patch("/api/v1/sites/admin", json={"contact": "me"})
    assert error_of(elsewhere) == (403, "not_allowed")
    for mighty in ({"quota_bytes": None}, {"suspended": True}):
        assert error_of(admin.patch("/api/v1/sites/lab-7", json=mighty)) == (403, "not_allowed")
    nowhere = pool.admin.patch("/api/v1/sites/nowhere", json={"contact": "x"})
    assert error_of(nowhere) == (404, "site_not_found")


def test_a_suspended_site_is_refused_until_it_is_readmitted(pool: PoolDriver) -> None:
    client = pool.member("lab-8")
    upload(client, "lab-8/gaze")
    assert pool.admin.patch("/api/v1/sites/lab-8", json={"suspended": True}).json()["suspended"]
    refused = client.get("/api/v1/models")
    assert error_of(refused) == (403, "suspended")
    assert "lab-8" in refused.json()["error"]["message"]
    assert pool.admin.get("/api/v1/models/lab-8/gaze").json()["items"], "its models stay"
    pool.admin.patch("/api/v1/sites/lab-8", json={"suspended": False})
    assert client.get("/api/v1/models").status_code == 200


def test_a_quota_holds_from_the_announcement_on(pool: PoolDriver) -> None:
    content, other = network_bytes(), network_bytes()
    client = pool.member("lab-9")
    upload(client, "lab-9/gaze", content)
    quota = len(content) + len(other)
    pool.admin.patch("/api/v1/sites/lab-9", json={"quota_bytes": quota})
    opened = announce(client, "lab-9/gaze", other)
    assert opened.status_code == 201
    refused = announce(client, "lab-9/third", network_bytes())
    assert error_of(refused) == (409, "quota_exceeded")
    told = f"has {len(content):,} and {len(other):,} on their way, and may have {quota:,}"
    assert told in refused.json()["error"]["message"]
    known = announce(client, "lab-9/copy", content)
    assert known.json()["state"] == "complete", "a file counts once"
    send_parts(client, opened.json(), other)
    pool.admin.patch("/api/v1/sites/lab-9", json={"quota_bytes": quota - 1})
    late = complete(client, opened.json())
    assert error_of(late) == (409, "quota_exceeded"), "also where the file becomes a version"
    (usage,) = pool.member("lab-9", "admin").get("/api/v1/usage").json()["items"]
    assert usage["size_bytes"] == len(content)
    assert (usage["models"], usage["versions"], usage["uploading_bytes"]) == (2, 2, 0)
    pool.admin.patch("/api/v1/sites/lab-9", json={"quota_bytes": None})
    assert announce(client, "lab-9/gaze", other).status_code == 201


def test_copies_of_other_sites_files_count_too(pool: PoolDriver) -> None:
    content = network_bytes()
    upload(pool.member("lab-10"), "lab-10/gaze", content)
    let_hand_on(pool.member("lab-10"), "lab-10/gaze")
    client = pool.member("lab-11")
    pool.admin.patch("/api/v1/sites/lab-11", json={"quota_bytes": 1})
    assert error_of(announce(client, "lab-11/copy", content)) == (409, "quota_exceeded")
