"""Entry by an institute's log-in: its rules, its user, its end."""

import html
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from pool_server.database.records import BrowserSessionRecord, IdentityRecord, UserRecord, now_utc
from pool_server.http.session import ServerParts
from pool_server.people import devices
from pool_server.people.sign_on import renew_sign_ons
from tests.pool_server.pages.browser import Browser
from tests.pool_server.people.sign_on.conftest import Consortium, settings_of
from tests.pool_server.people.sign_on.openid_provider import OpenIdProvider, running_provider
from tests.pool_server.pool_driver import error_of, pool_in_thread

STAFF = {"sub": "person-1", "preferred_username": "Ada.L", "affiliation": ["staff@uni", "member"]}
BOSS = {
    "sub": "person-1", "preferred_username": "boss",
    "email": "boss@uni.example", "email_verified": True,
}  # fmt: skip


def test_a_rule_lets_staff_in(consortium: Consortium) -> None:
    consortium.uni.claims = STAFF
    browser = consortium.browser()
    assert "Log in with Uni" in browser.get("/login?next=/models").text
    entered = consortium.log_in(browser, next="/account")
    assert (entered.status_code, entered.headers["location"]) == (303, "/account")
    assert "ada.l of site-a, contributor" in browser.get("/account").text
    audit = consortium.pool.admin.get("/api/v1/audit?action=user.enter").json()["items"]
    assert audit[0]["details"]["account"] == "person-1"
    # The second time it is the same user, also under another name there.
    consortium.uni.claims = STAFF | {"preferred_username": "root"}
    assert consortium.log_in(consortium.browser()).status_code == 303
    assert set(consortium.users()) == {"ada.l"}


def test_people_without_rule_or_invitation_learn_their_identifier(consortium: Consortium) -> None:
    consortium.orcid.claims = {"sub": "0000-0002-1825-0097", "name": "J. Carberry"}
    refused = consortium.log_in(consortium.browser(), "orcid")
    assert refused.status_code == 403
    assert "0000-0002-1825-0097" in refused.text
    consortium.orcid.claims = {"sub": "orcid|7"}
    line = html.unescape(consortium.log_in(consortium.browser(), "orcid").text)
    assert "--subject 'orcid|7'</code>" in line, "a shell would take it for two commands"
    consortium.orcid.claims = {"sub": "0000-0002-1825-0097", "name": "J. Carberry"}
    invited = consortium.invite(sign_on="orcid", subject="0000-0002-1825-0097", role="curator")
    browser = consortium.browser()
    assert consortium.log_in(browser, "orcid").status_code == 303
    assert "0000-0002-1825-0097 of site-a, curator" in browser.get("/account").text
    # The secret of the invitation is worth nothing.
    stolen = {"secret": invited.json()["secret"], "name": "eve"}
    accepted = consortium.pool.client(None).post("/api/v1/invitations/accept", json=stolen)
    assert error_of(accepted) == (403, "invitation_refused")
    (listed,) = consortium.pool.admin.get("/api/v1/invitations").json()["items"]
    assert listed["used_by"] == "0000-0002-1825-0097"


@pytest.mark.parametrize(
    ("claims", "is_in"),
    [
        ({"email": "ADA@uni.example", "email_verified": True}, True),
        ({"email": "ada@uni.example", "email_verified": "true"}, True),
        ({"email": "ada@uni.example"}, False),
        ({"email": "ada@uni.example", "email_verified": False}, False),
        ({"email": "ada@uni.example", "email_verified": "false"}, False),
        ({"email": ["ada@uni.example"], "email_verified": True}, False),
        # The Kelvin sign is a k in lower case, the long s an s in upper case.
        ({"email": "\u212aada@uni.example", "email_verified": True}, False),
    ],
)
def test_an_address_counts_only_if_the_provider_verified_it(
    consortium: Consortium, claims: dict[str, Any], is_in: bool
) -> None:
    email = "kada@uni.example" if "\u212a" in claims["email"] else "ada@uni.example"
    consortium.invite(sign_on="uni", email=email)
    consortium.uni.claims = {"sub": "person-1", **claims}
    assert consortium.log_in(consortium.browser()).status_code == (303 if is_in else 403)


def test_no_account_is_joined_by_its_address(consortium: Consortium) -> None:
    consortium.uni.claims = {**STAFF, "email": "ada@uni.example", "email_verified": True}
    consortium.log_in(consortium.browser())
    for sub, name in (("person-2", "uni"), ("person-1", "orcid")):
        consortium.provider(name).claims = {
            "sub": sub, "email": "ada@uni.example", "email_verified": True,
        }  # fmt: skip
        assert consortium.log_in(consortium.browser(), name).status_code == 403


def test_an_invitation_for_one_provider_is_none_for_another(consortium: Consortium) -> None:
    consortium.invite(sign_on="orcid", subject="person-1")
    assert consortium.log_in(consortium.browser()).status_code == 403
    refused = consortium.invite(sign_on="elsewhere", subject="person-1")
    assert error_of(refused) == (404, "provider_not_found")
    assert consortium.invite(sign_on="uni").status_code == 422


def test_disabled_people_and_their_invitations_stay_out(consortium: Consortium) -> None:
    consortium.uni.claims = STAFF
    consortium.log_in(consortium.browser())
    consortium.pool.admin.patch("/api/v1/users/site-a/ada.l", json={"disabled": True})
    assert consortium.log_in(consortium.browser()).status_code == 403


def test_a_rule_that_no_longer_fits_shuts_out(consortium: Consortium) -> None:
    consortium.uni.claims = STAFF | {"affiliation": "staff@uni"}
    consortium.log_in(consortium.browser())
    consortium.uni.claims = STAFF | {"affiliation": ["alum@uni"]}
    assert consortium.log_in(consortium.browser()).status_code == 403


def allow_computer(consortium: Consortium, browser: Browser) -> str:
    """Return the token of a computer that the user of a browser lets in."""
    asked = consortium.pool.client(None).post("/api/v1/devices", json={"computer": "desk"}).json()
    collect = {"device_code": asked["device_code"]}
    waiting = consortium.pool.client(None).post("/api/v1/devices/token", json=collect)
    assert error_of(waiting) == (409, "authorization_pending")
    page = devices.PAGE
    shown = browser.post(page, {"code": asked["user_code"].lower()}, form_on=page)
    assert "<b>desk</b>" in shown.text
    decision = {"code": asked["user_code"], "decision": "allow"}
    assert "may use this pool as you" in browser.post(page, decision, form_on=page).text
    token = consortium.pool.client(None).post("/api/v1/devices/token", json=collect)
    assert token.status_code == 201, token.text
    again = consortium.pool.client(None).post("/api/v1/devices/token", json=collect)
    assert error_of(again) == (404, "expired_token")
    return str(token.json()["secret"])


def test_who_leaves_the_institute_is_shut_out_with_all_tokens(consortium: Consortium) -> None:
    consortium.uni.claims = STAFF
    browser = consortium.browser()
    consortium.log_in(browser)
    computer = consortium.pool.client(allow_computer(consortium, browser))
    until = computer.get("/api/v1/whoami").json()["expires_at"]
    assert until is not None
    assert consortium.users()["ada.l"]["valid_until"] == until
    parts = parts_of(consortium)

    def make_due() -> None:
        consortium.pool.change(update(IdentityRecord).values(renew_at=now_utc()))

    # The account is there: its word is renewed, each time with the next refresh token.
    for _ in range(2):
        make_due()
        renew_sign_ons(parts)
    assert computer.get("/api/v1/whoami").json()["expires_at"] > until
    # The provider is away: nothing changes, until the last word lapses.
    consortium.uni.answers["/token_endpoint"] = (500, b"")
    make_due()
    renew_sign_ons(parts)
    assert computer.get("/api/v1/whoami").status_code == 200
    # The account is gone.
    del consortium.uni.answers["/token_endpoint"]
    consortium.uni.accounts.clear()
    make_due()
    renew_sign_ons(parts)
    assert error_of(computer.get("/api/v1/whoami")) == (401, "sign_on_lapsed")
    assert browser.get("/account").status_code == 303
    audit = consortium.pool.admin.get("/api/v1/audit?action=user.lapse").json()["items"]
    assert audit[0]["subject"] == "site-a/ada.l"
    # Back again, the computer's token holds again.
    assert consortium.log_in(consortium.browser()).status_code == 303
    assert computer.get("/api/v1/whoami").status_code == 200


def test_without_renewal_people_log_in_again_after_a_day(consortium: Consortium) -> None:
    consortium.invite(sign_on="orcid", subject="person-1")
    browser = consortium.browser()
    consortium.log_in(browser, "orcid")
    remaining = timedelta(hours=24)
    (user,) = consortium.users().values()
    assert user["valid_until"] is not None
    consortium.pool.change(
        update(UserRecord)
        .where(UserRecord.valid_until.is_not(None))
        .values(valid_until=now_utc() + remaining - timedelta(hours=24))
    )
    renew_sign_ons(parts_of(consortium))
    assert browser.get("/account").status_code == 303


def test_an_invitation_by_somebody_who_left_is_worthless(consortium: Consortium) -> None:
    consortium.uni.claims = BOSS
    browser = consortium.browser()
    assert consortium.log_in(browser).status_code == 303
    boss = consortium.pool.client(allow_computer(consortium, browser))
    made = boss.post("/api/v1/invitations", json={"site": "site-a"})
    assert made.status_code == 201, made.text
    lapse = update(UserRecord).where(UserRecord.name == "boss").values(valid_until=now_utc())
    consortium.pool.change(lapse)
    request = {"secret": made.json()["secret"], "name": "eve"}
    accepted = consortium.pool.client(None).post("/api/v1/invitations/accept", json=request)
    assert error_of(accepted) == (403, "invitation_refused")


def test_a_change_after_a_while_needs_another_log_in_by_the_same_person(
    consortium: Consortium,
) -> None:
    consortium.uni.claims = BOSS
    browser = consortium.browser()
    consortium.log_in(browser)
    age = update(BrowserSessionRecord).values(proved_at=now_utc() - timedelta(hours=1))
    consortium.pool.change(age)
    asked = browser.post(devices.PAGE, {"code": "x"}, form_on="/account")
    assert asked.status_code == 403
    assert "Log in once more" in asked.text
    too_early = browser.post("/account/proof", {"proof-for": devices.PAGE}, form_on="/account")
    assert "you have not logged in again yet" in too_early.text
    consortium.uni.claims = STAFF | {"sub": "person-2"}
    assert "belongs to another person" in consortium.log_in(browser, proof="true").text
    consortium.uni.claims = STAFF
    begun = consortium.begin(browser, proof="true")
    assert consortium.uni.codes[begun["code"]]["prompt"] == "login"
    assert "You have logged in again" in consortium.come_back(browser, begun).text
    gone_on = browser.post("/account/proof", {"proof-for": devices.PAGE}, form_on="/account")
    assert gone_on.status_code == 307


def test_a_session_of_a_token_lets_no_computer_in(consortium: Consortium) -> None:
    browser = Browser(consortium.pool).log_in(consortium.pool.secret("site-a", "viewer"))
    assert browser.get(devices.PAGE).status_code == 403
    asked = consortium.pool.client(None).post("/api/v1/devices", json={"computer": "desk"}).json()
    decision = {"code": asked["user_code"], "decision": "allow"}
    assert browser.post(devices.PAGE, decision, form_on="/account").status_code == 403


def test_a_refused_computer_gets_nothing(consortium: Consortium) -> None:
    consortium.uni.claims = STAFF
    browser = consortium.browser()
    consortium.log_in(browser)
    asked = consortium.pool.client(None).post("/api/v1/devices", json={"computer": "desk"}).json()
    decision = {"code": asked["user_code"], "decision": "refuse"}
    browser.post(devices.PAGE, decision, form_on=devices.PAGE)
    collect = {"device_code": asked["device_code"]}
    refused = consortium.pool.client(None).post("/api/v1/devices/token", json=collect)
    assert error_of(refused) == (403, "access_denied")
    wrong = browser.post(devices.PAGE, {"code": "BBBB-BBBB"}, form_on=devices.PAGE)
    assert wrong.status_code == 404


def parts_of(consortium: Consortium) -> ServerParts:
    application = consortium.pool.application
    assert application is not None
    return application._app.state.parts


def test_the_log_in_page_of_a_pool_without_providers_is_as_before(pool: Any) -> None:
    assert not re.search("/login/with/|Or with a token", Browser(pool).get("/login").text)
    answer = pool.client(None).post("/api/v1/devices", json={"computer": "desk"})
    assert error_of(answer) == (409, "no_sign_on")


def test_auth_login_gets_a_token_that_a_browser_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "INTERVAL_S", 0.2)
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    rule = {"claim": "affiliation", "value": "staff@uni", "site": "site-a"}
    with running_provider() as uni:
        providers = [settings_of("uni", uni, rules=[rule])]
        with pool_in_thread(tmp_path / "pool", sign_on=providers) as pool:
            pool.secret("site-a", "viewer")
            uni.claims = {"sub": "person-1", "affiliation": "staff@uni"}
            browser = Browser(pool)
            Consortium(pool, uni, OpenIdProvider()).log_in(browser)
            poolctl = [sys.executable, "-m", "cli"]
            command = [*poolctl, "auth", "login", pool.url, "--sign-on"]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as login:
                assert login.stderr is not None
                code = None
                while code is None:
                    line = login.stderr.readline()
                    assert line, "no code was shown"
                    code = re.search(r"type ([A-Z]{4}-[A-Z]{4})", line)
                decision = {"code": code[1], "decision": "allow"}
                allowed = browser.post(devices.PAGE, decision, form_on=devices.PAGE)
                if "may use this pool as you" not in allowed.text:
                    login.kill()
                assert login.wait() == 0, allowed.text
            shown = subprocess.run(
                [*poolctl, "auth", "whoami"], check=True, capture_output=True, text=True
            )
    assert re.search(r"site-a/person-1-\S+ \(contributor, user person-1, until", shown.stdout)
