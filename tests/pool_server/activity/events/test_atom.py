"""The Atom feed of a site's events, and the token that reads it from an address."""

import ast
import io
import logging
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element, fromstring

import httpx

import pool_server
from pool_server.activity.events import TITLES, describe_event, write_feed
from pool_server.database.records import EventRecord, SiteRecord, now_utc
from pool_server.logs import prepare_handler
from pool_server.registry.access import PUBLISH, QUARANTINE, RELEASE
from pool_server.settings import PoolSettings
from site_agent.pool.client import PoolClient
from tests.pool_server.lineage.withdrawals.families import Family, three_merges
from tests.pool_server.people.sites.permission_matrix import BODIES, MATRIX
from tests.pool_server.pool_driver import PoolDriver, error_of, pool_in_process
from tests.waiting import wait_until

FEED = "/api/v1/events/feed"
ATOM = "{http://www.w3.org/2005/Atom}"


def feed_token(admin: httpx.Client, site: str, name: str = "reader", **fields: Any) -> Any:
    request = {"site": site, "name": name, "kind": "feed", **fields}
    answer = admin.post("/api/v1/tokens", json=request)
    assert answer.status_code == 201, answer.text
    return answer.json()


def parse(answer: httpx.Response) -> Element:
    """Parse a feed and check the demands of RFC 4287 on it."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/atom+xml"
    feed = fromstring(answer.content)
    require_valid(feed)
    return feed


def require_valid(feed: Element) -> None:
    assert feed.tag == f"{ATOM}feed"
    assert feed.findtext(f"{ATOM}author/{ATOM}name")
    entries = feed.findall(f"{ATOM}entry")
    for element in (feed, *entries):
        for name in ("id", "title", "updated"):
            assert len(element.findall(f"{ATOM}{name}")) == 1, name
        assert element.findtext(f"{ATOM}id", "").startswith("urn:uuid:")
        assert element.findtext(f"{ATOM}title")
        updated = datetime.fromisoformat(element.findtext(f"{ATOM}updated", ""))
        assert updated.tzinfo is not None
        for link in element.findall(f"{ATOM}link"):
            assert urlsplit(link.get("href", "")).scheme == "http"
    identifiers = [item.findtext(f"{ATOM}id") for item in (feed, *entries)]
    assert len(identifiers) == len(set(identifiers))


def entries_of(feed: Element) -> list[tuple[str, str]]:
    """Return the identifiers and titles of a feed's entries."""
    return [
        (entry.findtext(f"{ATOM}id", ""), entry.findtext(f"{ATOM}title", ""))
        for entry in feed.findall(f"{ATOM}entry")
    ]


def link_of(element: Element, relation: str) -> str | None:
    link = element.find(f"{ATOM}link[@rel='{relation}']")
    return None if link is None else link.get("href")


def test_the_client_makes_the_token(served_pool: PoolDriver) -> None:
    with PoolClient(served_pool.url, served_pool.secret("atom-client", "admin")) as client:
        made = client.tokens.create("atom-client", "reader", kind="feed", expires_in_days=9)
    assert made.kind == "feed"
    assert made.expires_at is not None
    parse(served_pool.client(None).get(FEED, params={"token": made.secret}))


def test_a_feed_reader_follows_the_pages_with_the_token_in_the_address(pool: PoolDriver) -> None:
    family = three_merges(pool, "atom")
    family.withdraw("a/bad", "quality")
    site, admin = family.site("c"), family.member("c", "admin")
    made = feed_token(admin, site)
    assert made["secret"].startswith("feed_")
    assert (made["kind"], made["role"], made["scopes"]) == ("feed", "viewer", ["events"])
    reader = pool.client(None)
    whole = parse(reader.get(FEED, params={"token": made["secret"]}))
    events = admin.get("/api/v1/events").json()["items"]
    bad = family.address("a/bad")
    assert len(entries_of(whole)) == len(events) > 2
    assert entries_of(whole)[0][1] == (
        f"{bad}@1 was withdrawn, and models of your site hold it: quality"
    )
    [newest] = whole.findall(f"{ATOM}entry")[:1]
    assert "reason: quality" in newest.findtext(f"{ATOM}content", "")
    concerns = link_of(newest, "alternate")
    assert concerns is not None
    assert admin.get(urlsplit(concerns).path).json()["address"] == f"pool://{bad}@1"
    pages, next_page = [], f"{FEED}?token={made['secret']}&limit=1"
    while next_page:
        answer = reader.get(next_page)
        page = parse(answer)
        pages += entries_of(page)
        next_page = link_of(page, "next") or ""
    assert pages == entries_of(whole), "nothing twice, nothing missing, the same identifiers"
    assert entries_of(parse(admin.get(FEED))) == pages, "and by the usual token in the header"


def test_only_events_of_the_tokens_site_are_in_it(pool: PoolDriver) -> None:
    family = three_merges(pool, "atom-own")
    family.withdraw("a/bad", "quality")
    admin = family.member("d", "admin")
    secret = feed_token(admin, family.site("d"))["secret"]
    reader = pool.client(None)
    answer = reader.get(FEED, params={"token": secret})
    assert entries_of(parse(answer)) == []
    assert family.site("a") not in answer.text
    for client in (reader, family.member("d", "admin")):
        other = client.get(FEED, params={"token": secret, "site": family.site("c")})
        assert error_of(other) == (403, "not_allowed")
    refused = admin.post(
        "/api/v1/tokens", json={"site": family.site("c"), "name": "spy", "kind": "feed"}
    )
    assert error_of(refused) == (403, "not_allowed")
    assert entries_of(parse(pool.admin.get(FEED, params={"site": family.site("c")})))
    missing = pool.admin.get(FEED, params={"site": "never-was"})
    assert error_of(missing) == (404, "site_not_found")


def test_an_unchanged_feed_is_answered_by_its_etag(pool: PoolDriver) -> None:
    family = Family(pool, "atom-etag")
    family.add("a/model")
    secret = feed_token(family.member("a", "admin"), family.site("a"))["secret"]
    reader = pool.client(None)
    parameters = {"token": secret}
    first = reader.get(FEED, params=parameters)
    assert first.headers["cache-control"] == "private, no-cache"
    known = {"If-None-Match": first.headers["etag"]}
    again = reader.get(FEED, params=parameters, headers=known)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    family.withdraw("a/model", "quality")
    changed = reader.get(FEED, params=parameters, headers=known)
    assert entries_of(parse(changed)) != entries_of(parse(first))
    assert changed.headers["etag"] != first.headers["etag"]


def test_a_feed_token_reads_the_feed_from_the_address_and_nothing_else(pool: PoolDriver) -> None:
    admin = pool.member("atom-walk", "admin")
    made = feed_token(admin, "atom-walk")
    values = {
        "site": "atom-walk", "name": "face", "reference": "1", "number": "1", "user": "ada",
        "alias": "best", "key_id": "0" * 64, "digest": "0" * 64, "upload_id": "0" * 32,
        "session_id": "0" * 64, "round_id": "0" * 16, "merge_id": "0" * 16,
        "token_id": made["token_id"], "invitation_id": "0" * 16, "size": "thumb",
    }  # fmt: skip
    let_in = []
    for (method, path), row in MATRIX.items():
        if 200 <= row[0] < 300:
            continue
        place, body = path.format(**values), BODIES.get((method, path), {})
        by_address = body | {"params": {**body.get("params", {}), "token": made["secret"]}}
        for client, how in ((pool.client(made["secret"]), body), (pool.client(None), by_address)):
            answer = client.request(method, place, **how)
            if answer.status_code not in {401, 403}:
                let_in.append((method, path, answer.status_code, "params" in how))
    assert let_in == [("GET", FEED, 200, True)]


def test_only_a_feed_token_may_stand_in_the_address(pool: PoolDriver) -> None:
    admin, reader = pool.member("atom-kinds", "admin"), pool.client(None)
    ordinary = pool.secret("atom-kinds", "viewer")
    assert error_of(reader.get(FEED, params={"token": ordinary})) == (403, "not_allowed")
    assert error_of(reader.get(FEED, params={"token": "feed_x"})) == (401, "not_authenticated")
    assert error_of(reader.get(FEED)) == (401, "not_authenticated")
    made = feed_token(admin, "atom-kinds")
    assert reader.get(FEED, params={"token": made["secret"]}).status_code == 200
    [listed] = [
        item for item in admin.get("/api/v1/tokens").json()["items"] if item["kind"] == "feed"
    ]
    assert listed["token_id"] == made["token_id"]
    assert "secret" not in listed
    assert admin.delete(f"/api/v1/tokens/{made['token_id']}").status_code == 204
    revoked = reader.get(FEED, params={"token": made["secret"]})
    assert error_of(revoked) == (401, "not_authenticated")
    for fields in ({"role": "admin"}, {"pool_wide": True}, {"scopes": ["models:read"]}):
        request = {"site": "atom-kinds", "name": "more", "kind": "feed", **fields}
        assert error_of(pool.admin.post("/api/v1/tokens", json=request)) == (
            422, "invalid_request",
        )  # fmt: skip


def test_no_log_holds_the_address_of_a_feed(tmp_path: Path) -> None:
    written = io.StringIO()
    settings = PoolSettings(data_folder=tmp_path, log_requests=True)
    handler = prepare_handler(logging.StreamHandler(written), settings)
    root = logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel("DEBUG")
    # The client of this test writes its own addresses down.
    ours = logging.getLogger("httpx"), logging.getLogger("httpcore")
    for logger in ours:
        logger.propagate = False
    try:
        with pool_in_process(tmp_path) as pool:
            secret = feed_token(pool.admin, "admin")["secret"]
            reader = pool.client(None)
            assert reader.get(FEED, params={"token": secret}).status_code == 200
            assert reader.get(FEED, params={"token": f"{secret}x"}).status_code == 401
            assert reader.get(FEED, params={"token": secret, "limit": 0}).status_code == 422
            wait_until(lambda: written.getvalue().count(f"GET {FEED} ") >= 3)
            entries = pool.admin.get("/api/v1/audit").text
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        for logger in ours:
            logger.propagate = True
    assert secret not in written.getvalue()
    assert secret not in entries
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(secret.encode() in path.read_bytes() for path in files), "only its hash is kept"


HOSTILE = "</title><script>alert(1)</script>&lt;\x00\x1b[31m\ufffe\"'"


def test_hostile_names_are_text() -> None:
    site = SiteRecord(name="site-a", display_name=HOSTILE, created_at=now_utc())
    event = EventRecord(
        id=7,
        at=now_utc(),
        kind="version.withdrawn",
        subject=f"pool://{HOSTILE}@1",
        details={"reason": HOSTILE, HOSTILE: [HOSTILE] * 30, "{site.secret}": "{0.__class__}"},
    )
    root = f"http://{HOSTILE}/"
    document = write_feed(site, [event], root=root, address=f"{root}feed", older=f"{root}older")
    feed = fromstring(document)
    require_valid(feed)
    shown = HOSTILE.replace("\x00", "\ufffd").replace("\x1b", "\ufffd").replace("\ufffe", "\ufffd")
    assert entries_of(feed)[0][1] == f"{shown}@1 was withdrawn: {shown}"
    assert feed.findtext(f"{ATOM}title") == f"{shown}: events in the pool"
    assert {element.tag.removeprefix(ATOM) for element in feed.iter()} == {
        "feed", "id", "title", "updated", "author", "name", "link", "entry", "category", "content",
    }  # fmt: skip


def test_every_kind_of_event_has_a_sentence() -> None:
    assert {"version.flagged", "key.revoked", "model.deleted"} <= kinds_in_source()
    steps = {f"version.{step.word}" for step in (PUBLISH, QUARANTINE, RELEASE)}
    assert kinds_in_source() | steps == set(TITLES)
    assert describe_event("version.sung", "pool://a/b@1", {}) == "version.sung: a/b@1"


def kinds_in_source() -> set[str]:
    """Return the kinds of events that the server names: in constants, or where it writes one."""
    kinds = set()
    for path in Path(pool_server.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Assign(targets=[ast.Name(name)], value=ast.Constant(str(kind))):
                    kinds |= {kind} if name.endswith("_EVENT") else set()
                case ast.Call(func=ast.Name("write_event"), args=[_, _, ast.Constant(kind), *_]):
                    kinds.add(kind)
                case ast.Call(func=ast.Name("NewEvent"), args=[_, ast.Constant(kind), *_]):
                    kinds.add(kind)
    return kinds
