"""The audit: readable by those it concerns, with refused acts and the person behind each."""

from typing import Any

import httpx

from pool_server.http.audit import escape_unshown
from tests.pool_server.lineage.withdrawals.families import three_merges
from tests.pool_server.people.test_people import join
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, pages_of, upload


def read(client: httpx.Client, **parameters: Any) -> list[dict[str, Any]]:
    answer = client.get("/api/v1/audit", params={"limit": 200, **parameters})
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def test_a_withdrawal_is_audited_at_every_affected_site(pool: PoolDriver) -> None:
    family = three_merges(pool, "story")
    family.withdraw("a/bad", "consent-withdrawn", explanation="One family.")
    [act] = read(pool.admin, subject=f"{family.address('a/bad')}@1", action="version.withdraw")
    assert act["actor"] == f"{family.site('a')}/test-contributor"
    assert act["details"]["reason"] == "consent-withdrawn"
    assert act["details"]["explanation"] == "One family."
    assert act["details"]["flagged"] == [
        f"{family.address(name)}@1" for name in ("a/first", "b/second", "c/third", "c/again")
    ]
    [flag] = read(pool.admin, subject=f"{family.address('c/again')}@1", action="version.flag")
    assert flag["details"]["withdrawn"] == f"{family.address('a/bad')}@1"
    assert flag["request_id"] == act["request_id"]
    life = [entry["action"] for entry in read(pool.admin, subject=family.address("c/again"))]
    assert life == ["version.flag", "version.publish"]


def test_a_site_reads_only_its_own_audit(pool: PoolDriver) -> None:
    family = three_merges(pool, "mine")
    family.withdraw("a/bad", "quality")
    site_b, site_c = family.site("b"), family.site("c")
    entries = read(family.member("c", "admin"))
    assert {entry["actor"].split("/")[0] for entry in entries} <= {
        site_c,
        family.site("a"),
        "admin",
    }
    assert all(
        entry["actor"].startswith(f"{site_c}/") or entry["subject"].startswith(site_c)
        for entry in entries
    )
    again = f"{family.address('c/again')}@1"
    flags = [entry for entry in entries if entry["action"] == "version.flag"]
    [flag] = [entry for entry in flags if entry["subject"] == again]
    assert (flag["token_id"], flag["address"]) == ("", ""), "that of another site's people"
    site_entry = next(entry for entry in entries if entry["actor"].startswith(f"{site_c}/"))
    assert site_entry["token_id"]
    refused = family.member("c", "admin").get("/api/v1/audit", params={"site": site_b})
    assert error_of(refused) == (403, "not_allowed")


def test_the_audit_does_not_reveal_versions_flagged_at_other_sites(pool: PoolDriver) -> None:
    """Its family leads to models that the withdrawing site may not see."""
    family = three_merges(pool, "reach")
    family.add("c/secret", "a/bad", visibility="private")
    family.withdraw("a/bad", "quality")
    owner = family.member("a", "admin")
    assert family.site("c") not in owner.get("/api/v1/audit", params={"limit": 200}).text
    [act] = read(owner, action="version.withdraw")
    assert act["details"]["flagged"] == [f"{family.address('a/first')}@1"]
    assert act["details"]["flagged_total"] == 5
    [flag] = read(family.member("c", "admin"), subject=f"{family.address('c/secret')}@1",
                  action="version.flag")  # fmt: skip
    assert flag["details"]["reason"] == "quality"


def test_the_audit_can_be_filtered_and_paged(pool: PoolDriver) -> None:
    family = three_merges(pool, "pages")
    family.withdraw("a/bad", "quality")
    site = family.site("a")
    assert {entry["action"] for entry in read(pool.admin, site=site, action="version")} == {
        "version.publish", "version.withdraw", "version.flag",
    }  # fmt: skip
    newest = read(pool.admin, site=site, limit=1)[0]
    assert newest in read(pool.admin, site=site, since=newest["at"])
    pages = pages_of(pool.admin, "/api/v1/audit", site=site, limit=2)
    assert [entry for page in pages for entry in page["items"]] == read(pool.admin, site=site)


def test_a_site_cannot_read_its_peoples_acts_for_the_whole_pool(pool: PoolDriver) -> None:
    """A curator of the whole pool sees private models; the admin of the curator's site does not."""
    admin = pool.member("audit-home", "admin")
    request = {"site": "audit-home", "name": "wide", "role": "curator", "pool_wide": True}
    curator = pool.client(pool.admin.post("/api/v1/tokens", json=request).json()["secret"])
    upload(pool.member("audit-owner"), "audit-owner/secret", visibility="private")
    path = "/api/v1/models/audit-owner/secret/versions/1/quarantine"
    assert curator.post(path, json={"reason": "doubt"}).status_code == 200
    assert "secret" not in str(read(admin))
    [entry] = read(pool.member("audit-owner", "admin"), action="version.quarantine")
    assert (entry["subject"], entry["actor"]) == ("audit-owner/secret@1", "audit-home/wide")


def test_the_audit_contains_no_text_of_refused_requests(pool: PoolDriver) -> None:
    site, text = "audit-words", "x%1b%5b31m%e2%80%ae"
    member = pool.member(site)
    assert member.delete(f"/api/v1/users/{text}").status_code in {404, 405}
    for path in (f"tokens/{text}", "tokens/" + "a" * 300, f"invitations/{text}"):
        assert member.delete(f"/api/v1/{path}").status_code == 403
    assert read(pool.member(site, "admin"), action="request.refuse") == []
    assert member.delete(f"/api/v1/tokens/{'a' * 16}").status_code == 403
    [entry] = read(pool.member(site, "admin"), action="request.refuse")
    assert entry["subject"] == f"/api/v1/tokens/{'a' * 16}"


def test_a_refusal_is_escaped_in_the_audit() -> None:
    assert escape_unshown("a\x1b[31m\u202eb") == r"a\u001b[31m\u202eb"


def test_a_refused_act_is_told_to_both_sites(pool: PoolDriver) -> None:
    upload(pool.member("refused-a"), "refused-a/face")
    join(pool, "refused-b", "eve", role="contributor")
    token = {"site": "refused-b", "name": "desk", "user": "eve"}
    eve = pool.client(pool.admin.post("/api/v1/tokens", json=token).json()["secret"])
    path = "/api/v1/models/refused-a/face/versions/1"
    tried = eve.delete(path, headers={"X-Request-ID": "tried-1"})
    assert error_of(tried) == (403, "not_allowed")
    admin = pool.member("refused-b", "admin")
    [entry] = read(admin, action="request.refuse")
    assert (entry["subject"], entry["outcome"]) == ("refused-a/face@1", "refused")
    assert (entry["actor"], entry["user"]) == ("refused-b/desk", "eve")
    assert (entry["request_id"], entry["address"]) == ("tried-1", "127.0.0.1")
    told = entry["details"]
    assert (told["method"], told["path"], told["code"]) == ("DELETE", path, "not_allowed")
    [seen] = read(pool.member("refused-a", "admin"), action="request.refuse")
    assert seen["entry_id"] == entry["entry_id"]
    assert (seen["user"], seen["address"], seen["token_id"]) == ("", "", "")
    theirs = read(pool.member("refused-a", "admin"))
    assert "eve" not in {word for line in theirs for word in (line["user"], line["actor"])}


def test_acts_beyond_the_scopes_of_a_token_are_recorded_as_well(pool: PoolDriver) -> None:
    narrow = {"site": "refused-c", "name": "narrow", "role": "admin", "scopes": ["models:read"]}
    pool.secret("refused-c", "viewer")
    client = pool.client(pool.admin.post("/api/v1/tokens", json=narrow).json()["secret"])
    assert announce(client, "refused-c/face", b"x").status_code == 403
    refused = read(pool.admin, action="request.refuse")
    [entry] = [line for line in refused if line["actor"] == "refused-c/narrow"]
    assert (entry["action"], entry["subject"]) == ("request.refuse", "/api/v1/uploads")
    assert (entry["user"], entry["details"]["method"]) == ("", "POST")


def test_looking_leaves_no_entry_nor_do_strangers(pool: PoolDriver) -> None:
    assert pool.member("refused-d", "viewer").get("/api/v1/tokens").status_code == 403
    assert (
        pool.client("pool_unknown").delete("/api/v1/models/refused-d/x/versions/1").status_code
        == 401
    )
    assert read(pool.admin, site="refused-d", action="request") == []
