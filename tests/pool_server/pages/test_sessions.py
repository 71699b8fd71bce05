"""Sessions of browsers: their beginning, their rights and their end."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from pool_server.database.records import BrowserSessionRecord, now_utc
from pool_server.operations.maintenance import login_link
from pool_server.people import browser_sessions
from tests.pool_server.pages.browser import Browser, member_browser
from tests.pool_server.pool_driver import PoolDriver, pool_in_process


def test_a_session_has_a_secret_that_the_browser_did_not_bring(pool: PoolDriver) -> None:
    browser = Browser(pool)
    browser.get("/login")
    before = browser.cookie
    browser.log_in(pool.secret("fixed", "viewer"))
    assert before is not None
    assert browser.cookie not in {None, before}
    # The first cookie is worthless to an attacker who planted it.
    thief = Browser(pool)
    thief.client.cookies.set("pool", before)
    assert thief.get("/account").status_code == 303


def test_the_cookie_is_for_pages_and_the_token_for_the_api(pool: PoolDriver) -> None:
    browser = member_browser(pool, "kinds")
    assert browser.get("/account").status_code == 200
    assert browser.get("/api/v1/whoami").status_code == 401
    token = {"Authorization": f"Bearer {pool.secret('kinds', 'contributor')}"}
    assert Browser(pool).get("/account", headers=token).status_code == 303


def test_a_wrong_token_is_refused_in_words(pool: PoolDriver) -> None:
    answer = Browser(pool).post("/login", {"token": "pool_wrong"})
    assert answer.status_code == 401
    assert "does not know this token" in answer.text
    assert "pool_wrong" not in answer.text


def test_revoking_the_token_ends_the_session_at_once(pool: PoolDriver) -> None:
    pool.secret("revoked", "viewer")
    made = pool.admin.post("/api/v1/tokens", json={"site": "revoked", "name": "gone"}).json()
    browser = Browser(pool).log_in(made["secret"])
    assert browser.get("/account").status_code == 200
    pool.admin.delete(f"/api/v1/tokens/{made['token_id']}")
    assert browser.get("/account").headers["location"] == "/login?next=%2Faccount"
    assert "this token was revoked" in browser.get("/login").text


def test_a_token_has_few_sessions(pool: PoolDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_sessions, "MOST_SESSIONS", 3)
    secret = pool.secret("many-browsers", "contributor")
    browsers = [Browser(pool).log_in(secret) for _ in range(5)]
    answers = [visitor.get("/account").status_code for visitor in browsers]
    assert answers == [303, 303, 200, 200, 200]


def test_disabling_the_person_and_suspending_the_site_end_the_session(pool: PoolDriver) -> None:
    pool.secret("people", "viewer")
    invited = pool.admin.post("/api/v1/invitations", json={"site": "people"}).json()["secret"]
    browser = Browser(pool)
    shown = browser.post("/login/invitation", {"invitation": invited, "name": "ada"})
    assert shown.status_code == 200
    assert shown.headers["cache-control"] == "no-store"
    assert re.search(r"pool_[\w-]{43}", shown.text)
    assert browser.get("/account").status_code == 200
    pool.admin.patch("/api/v1/users/people/ada", json={"disabled": True})
    assert browser.get("/account").status_code == 303
    pool.admin.patch("/api/v1/users/people/ada", json={"disabled": False})
    pool.admin.patch("/api/v1/sites/people", json={"suspended": True})
    assert browser.get("/account").status_code == 303


@pytest.mark.parametrize(
    ("column", "past"),
    [("last_used_at", timedelta(minutes=61)), ("created_at", timedelta(hours=13))],
)
def test_a_session_ends_when_idle_and_after_half_a_day(
    pool: PoolDriver, column: str, past: timedelta
) -> None:
    browser = member_browser(pool, "late", "viewer")
    assert browser.get("/account").status_code == 200
    pool.change(update(BrowserSessionRecord).values({column: now_utc() - past}))
    assert browser.get("/account").status_code == 303
    assert "your session has ended" in browser.get("/login").text


def test_a_form_sent_after_its_session_changes_nothing(pool: PoolDriver) -> None:
    browser = Browser(pool).log_in(pool.secret("late-form", "admin"))
    typed = {"site": "late-form", "name": "laptop", "kind": "program", "role": "contributor"}
    key = browser.csrf("/account")
    pool.change(update(BrowserSessionRecord).values(created_at=now_utc() - timedelta(1)))
    refused = browser.client.post("/admin/tokens", data={"csrf": key, **typed})
    assert (refused.status_code, "nothing was changed" in refused.text) == (401, True)
    tokens = pool.admin.get("/api/v1/tokens").json()["items"]
    assert "laptop" not in {token["name"] for token in tokens if token["site"] == "late-form"}


def test_logging_out_ends_the_session_for_every_copy_of_the_cookie(pool: PoolDriver) -> None:
    browser, copy = member_browser(pool, "leaves"), Browser(pool)
    assert browser.cookie is not None
    copy.client.cookies.set("pool", browser.cookie)
    assert copy.get("/account").status_code == 200
    assert browser.post("/logout").status_code == 303
    assert copy.get("/account").status_code == 303


def test_one_person_logs_out_everywhere_and_nobody_else(pool: PoolDriver) -> None:
    first, second = member_browser(pool, "many"), member_browser(pool, "many")
    other = member_browser(pool, "many", "viewer")
    shown = first.get("/account").text
    assert shown.count("Log out<span") == shown.count("the session that began <time") == 2
    other_id = re.search(r"/account/sessions/(\w{16})/end", other.get("/account").text)
    assert other_id is not None
    first.post(f"/account/sessions/{other_id[1]}/end")
    assert other.get("/account").status_code == 200
    first.post("/account/sessions/end")
    assert second.get("/account").status_code == 303


def test_a_link_logs_in_once_and_looking_at_it_uses_nothing_up(pool: PoolDriver) -> None:
    link = login_link(pool.settings, pool.url, pool.admin_secret).removeprefix(pool.url)
    secret = link.partition("link=")[2]
    browser = Browser(pool)
    assert browser.get(link).headers["cache-control"] == "no-store"
    assert browser.get("/account").status_code == 303
    assert browser.post("/login", {"link": secret}).status_code == 303
    assert browser.get("/account").status_code == 200
    assert Browser(pool).post("/login", {"link": secret}).status_code == 401


def test_a_log_in_leads_nowhere_else(pool: PoolDriver) -> None:
    token = pool.secret("leads", "viewer")
    answer = Browser(pool).post("/login", {"token": token, "next": "/\\evil.example"})
    assert answer.headers["location"] == "/"


def test_a_change_needs_the_token_of_the_forms(pool: PoolDriver) -> None:
    browser, other = member_browser(pool, "forms"), member_browser(pool, "other-forms")
    for fields in ({}, {"csrf": "wrong"}, {"csrf": other.csrf("/account")}):
        answer = browser.client.post("/account/sessions/end", data=fields)
        assert answer.status_code == 403, fields
        assert "set-cookie" not in answer.headers
    assert browser.csrf("/account") != browser.csrf("/account"), "masked again each time"


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
def test_a_change_comes_from_a_page_of_this_pool(pool: PoolDriver, headers: dict[str, str]) -> None:
    browser = member_browser(pool, "origins")
    fields = {"csrf": browser.csrf("/account")}
    refused = browser.client.post("/account/sessions/end", data=fields, headers=headers)
    assert refused.status_code == 403
    site_headers = {"Origin": pool.url, "Sec-Fetch-Site": "same-origin"}
    assert (
        browser.client.post("/account/sessions/end", data=fields, headers=site_headers).status_code
        == 303
    )


def test_guessing_tokens_is_slowed_down(pool: PoolDriver, tmp_path: Path) -> None:
    with pool_in_process(tmp_path, tries_per_minute=2) as slow:
        browser = Browser(slow)
        csrf = browser.csrf()
        tries = [
            browser.client.post("/login", data={"csrf": csrf, "token": "pool_x"}).status_code
            for _ in range(4)
        ]
    assert tries == [401, 401, 429, 429]
