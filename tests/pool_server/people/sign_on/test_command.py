"""`poolctl auth login --sign-on`, against a server."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pool_server.people import devices
from tests.pool_server.pages.browser import Browser
from tests.pool_server.people.sign_on.conftest import Consortium, settings_of
from tests.pool_server.people.sign_on.openid_provider import OpenIdProvider, running_provider
from tests.pool_server.pool_driver import pool_in_thread


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
