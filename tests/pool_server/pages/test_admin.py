"""An admin changes sites, people and tokens on the pages."""

import html
import re
from pathlib import Path

import pytest

from pool_server.tls import pin_of
from site_agent.pool.joining import read_joining
from tests.pool_server.pages.browser import Browser, member_browser
from tests.pool_server.pool_driver import PoolDriver, pool_in_process, upload


@pytest.fixture
def admin(pool: PoolDriver) -> Browser:
    return Browser(pool).log_in(pool.admin_secret)


def test_a_site_gets_a_quota_and_is_suspended(pool: PoolDriver, admin: Browser) -> None:
    member = member_browser(pool, "pages-changed")
    page = "/admin/sites/pages-changed"
    fields = {"display_name": "Changed lab", "contact": "lab@example.org", "quota_gb": "2.5"}
    assert admin.post(page, fields, form_on=page).status_code == 303
    shown = admin.get(page).text
    assert "Changed lab" in shown
    assert "2.5" in shown
    refused = admin.post(page, {**fields, "quota_gb": "much"}, form_on=page)
    assert 'value="much"' in refused.text, "the form keeps the entry"
    assert "quota" in refused.text
    assert admin.post(page, {"state": "suspend"}, form_on=page).status_code == 303
    assert member.get("/upload").status_code != 200, "its people are shut out"
    assert admin.post(page, {"state": "resume"}, form_on=page).status_code == 303


def test_a_person_gets_a_role_and_is_disabled(pool: PoolDriver, admin: Browser) -> None:
    pool.secret("pages-people", "contributor")
    asked = {"site": "pages-people", "role": "admin"}
    invited = pool.admin.post("/api/v1/invitations", json=asked).json()["secret"]
    person = Browser(pool)
    person.post("/login/invitation", {"invitation": invited, "name": "ada"})
    nightly = {"site": "pages-people", "name": "nightly", "for_machine": "true"}
    person.post("/admin/tokens", {**nightly, "role": "viewer"}, form_on="/admin/tokens")
    place = "/admin/people/pages-people/ada"
    assert admin.post(place, {"role": "curator"}, form_on="/admin/people").status_code == 303
    assert admin.post(place, {"state": "disable"}, form_on="/admin/people").status_code == 303
    users = pool.admin.get("/api/v1/users").json()["items"]
    user = next(user for user in users if user["site"] == "pages-people")
    assert user["role"] == "curator"
    assert user["disabled_at"] is not None
    assert "changes nothing" in admin.post(place, form_on="/admin/people").text
    assert "made by pages-people/ada" in admin.get("/admin/tokens").text, "it is still valid"


def test_a_token_is_revoked_at_once(pool: PoolDriver, admin: Browser) -> None:
    secret = pool.secret("pages-tokens", "contributor")
    tokens = pool.admin.get("/api/v1/tokens").json()["items"]
    token = next(token for token in tokens if token["site"] == "pages-tokens")
    place = f"/admin/tokens/{token['token_id']}/revoke"
    assert admin.post(place, form_on="/admin/tokens").status_code == 303
    assert pool.client(secret).get("/api/v1/whoami").status_code == 401


def test_letters_pin_the_certificate_that_the_pool_made_itself(tmp_path: Path) -> None:
    with pool_in_process(tmp_path, self_signed=True) as pinned:
        pin = pin_of(pinned.settings)
        browser = Browser(pinned).log_in(pinned.admin_secret)
        pinned.secret("letters", "contributor")
        people = {"site": "letters", "role": "contributor"}
        invited = browser.post("/admin/people/invite", people, form_on="/admin/people").text
        letter = html.unescape(re.sub("<[^>]+>", " ", invited))
        address, secret = read_joining(letter)
        assert address.endswith(pin)
        assert secret.startswith("invite_")
        assert letter.count(pin) == 2, "the link and the command"
        assert "Elsewhere, this machine's name replaces 127.0.0.1." in letter
        assert pin in Browser(pinned).get("/").text
        browser.client.headers["host"] = "pool.example.org"
        invited = browser.post("/admin/people/invite", people, form_on="/admin/people").text
        assert "://pool.example.org/login?invitation=" in invited
        assert "name replaces" not in invited


def test_drafts_that_wait_for_a_curator_stand_on_the_first_page(tmp_path: Path) -> None:
    with pool_in_process(tmp_path, curated=True) as curated:
        upload(curated.member("lab"), "lab/face")
        curator = Browser(curated).log_in(curated.admin_secret)
        assert "lab/face@1 is a draft" in curator.get("/").text
        others = Browser(curated).log_in(curated.secret("other", "curator"))
        assert "Nothing waits for other" in others.get("/").text
