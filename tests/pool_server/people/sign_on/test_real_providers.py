"""Log-in by providers that others wrote: the certified oidc-provider, and Glewlwyd of Debian."""

import gzip
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest
from sqlalchemy import update

from pool_server.database.records import IdentityRecord, now_utc
from pool_server.people.sign_on import renew_sign_ons
from tests.pool_server.in_process import POOL_URL
from tests.pool_server.pages.browser import Browser
from tests.pool_server.people.sign_on.openid_provider import CLIENT, SECRET, make_key
from tests.pool_server.pool_driver import PoolDriver, pool_in_process
from tests.ports import free_port

OIDC_PROVIDER = "POOLCTL_OIDC_PROVIDER"
"""The folder of the package: npm install oidc-provider@8, then node_modules/oidc-provider."""
GRANTS = ("code", "token", "id-token", "none", "password", "client", "device", "refresh")
REDIRECT = f"{POOL_URL}/login/back/uni"


@contextmanager
def pool_of(
    folder: Path, issuer: str, secret: str = SECRET, **settings: object
) -> Iterator[PoolDriver]:
    client = {"client_id": CLIENT, "client_secret": secret, "issuer": issuer}
    provider = {"name": "uni", "label": "Uni", **client, **settings}
    with pool_in_process(folder, sign_on=[provider]) as pool:
        pool.secret("site-a", "viewer")
        yield pool


def invite(pool: PoolDriver, **person: str) -> None:
    body = {"site": "site-a", "sign_on": "uni", **person}
    assert pool.admin.post("/api/v1/invitations", json=body).status_code == 201


@pytest.fixture
def oidc_provider() -> Iterator[str]:
    folder = os.environ.get(OIDC_PROVIDER, "")
    if not folder or shutil.which("node") is None:
        pytest.skip(f"needs node, and {OIDC_PROVIDER} with the folder of npm's oidc-provider")
    port, script = free_port(), Path(__file__).with_name("oidc_provider.mjs")
    command = ["node", str(script), folder, str(port), REDIRECT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.strip() == b"ready":
                    break
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def answer_of_oidc_provider(address: str, login: str) -> str:
    """Log in and consent as a person would; return the address back to the pool."""
    with httpx.Client(timeout=30) as person:
        page = person.get(address)
        while True:
            while page.is_redirect:
                address = urljoin(str(page.url), page.headers["location"])
                if address.startswith(REDIRECT):
                    return address
                page = person.get(address)
            prompt = re.search(r'name="prompt" value="(\w+)"', page.text)
            action = re.search(r'action="([^"]+)"', page.text)
            assert prompt is not None, page.text
            assert action is not None
            fields = {"prompt": prompt[1], "login": login, "password": "any"}
            page = person.post(urljoin(str(page.url), action[1]), data=fields)


def test_people_log_in_by_the_certified_provider(tmp_path: Path, oidc_provider: str) -> None:
    scope = "openid email profile offline_access"
    with pool_of(tmp_path, oidc_provider, scope=scope, renew=True) as pool:
        invite(pool, email="person-1@uni.example")
        for login, status in (("person-2", 403), ("person-1", 303), ("person-1", 303)):
            browser = Browser(pool)
            address = browser.get("/login/with/uni").headers["location"]
            back = answer_of_oidc_provider(address, login)
            assert browser.get(back).status_code == status
        assert "person-1 of site-a" in browser.get("/account").text
        assert browser.get(back).status_code == 401
        [before] = [user["valid_until"] for user in pool.admin.get("/api/v1/users").json()["items"]]
        pool.change(update(IdentityRecord).values(renew_at=now_utc()))
        assert pool.application is not None
        renew_sign_ons(pool.application._app.state.parts)
        [after] = [user["valid_until"] for user in pool.admin.get("/api/v1/users").json()["items"]]
        assert after > before


@pytest.fixture
def glewlwyd(tmp_path: Path) -> Iterator[str]:
    """Run Glewlwyd with one client and one account; return its address."""
    if shutil.which("glewlwyd") is None:
        pytest.skip("needs Debian's package glewlwyd")
    port, database = free_port(), tmp_path / "glewlwyd.sqlite3"
    address = f"http://127.0.0.1:{port}"
    script = Path("/usr/share/doc/glewlwyd/database/init.sqlite3.sql.gz").read_bytes()
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(gzip.decompress(script).decode())
    text = Path("/etc/glewlwyd/glewlwyd.conf").read_text()
    changes = {
        "port=": f"port={port}",
        "external_url=": f'external_url="{address}"',
        "log_mode=": 'log_mode="console"',
        "@include ": f'database = {{ type = "sqlite3" path = "{database}" }};',
    }
    for start, line in changes.items():
        text = re.sub(rf"^{start}.*$", line, text, flags=re.MULTILINE)
    configuration = tmp_path / "glewlwyd.conf"
    configuration.write_text(text)
    command = ["glewlwyd", "-c", str(configuration)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            retrying = httpx.HTTPTransport(retries=10)
            with httpx.Client(base_url=address, transport=retrying, timeout=30) as admin:
                set_up_glewlwyd(admin, address)
            yield address
        finally:
            process.terminate()


def set_up_glewlwyd(admin: httpx.Client, address: str) -> None:
    key = make_key("k").as_dict(private=True) | {"alg": "RS256"}
    plugin = {
        "iss": f"{address}/api/oidc",
        "jwks-private": json.dumps({"keys": [key]}),
        "default-kid": "k",
        "jwt-type": "rsa",
        "jwt-key-size": "256",
        "access-token-duration": 3600,
        "refresh-token-duration": 3600,
        "code-duration": 600,
        "subject-type": "public",
        "scope": [],
        "additional-parameters": [],
        "claims": [],
        "email-claim": "mandatory",
        "name-claim": "mandatory",
        "scope-claim": "no",
        "address-claim": {"type": "no"},
        "pkce-allowed": True,
    }
    plugin |= {f"auth-type-{grant}-enabled": grant == "code" for grant in GRANTS}
    client = {
        "client_id": CLIENT,
        "client_secret": "s3cret",
        "confidential": True,
        "enabled": True,
        "redirect_uri": [REDIRECT],
        "authorization_type": ["code"],
        "token_endpoint_auth_method": ["client_secret_basic"],
    }
    person = {"email": "person-1@uni.example", "name": "A. Name", "enabled": True}
    person |= {"username": "person-1", "password": "secret-pass", "scope": ["openid"]}
    module = {"module": "oidc", "name": "oidc", "display_name": "oidc", "parameters": plugin}
    as_installed = {"username": "admin", "password": "password"}
    for path, body in (
        ("auth", as_installed),
        ("mod/plugin", module),
        ("client", client),
        ("user", person),
    ):
        answer = admin.post(f"/api/{path}/", json=body)
        assert answer.status_code == 200, (path, answer.text)


def test_people_log_in_by_glewlwyd(tmp_path: Path, glewlwyd: str) -> None:
    (tmp_path / "pool").mkdir()
    with pool_of(tmp_path / "pool", f"{glewlwyd}/api/oidc", "s3cret", scope="openid") as pool:
        with httpx.Client(base_url=glewlwyd, timeout=30) as person:
            login = {"username": "person-1", "password": "secret-pass"}
            assert person.post("/api/auth/", json=login).status_code == 200
            grant = person.put(f"/api/auth/grant/{CLIENT}", json={"scope": "openid"})
            assert grant.status_code == 200
            browser = Browser(pool)

            def log_in() -> httpx.Response:
                address = browser.get("/login/with/uni").headers["location"]
                back = person.get(f"{address}&g_continue").headers["location"]
                assert back.startswith(REDIRECT), back
                return browser.get(back)

            refused = log_in()
            assert refused.status_code == 403
            # It verifies no addresses: people are invited by the subject that the page names.
            invite(pool, email="person-1@uni.example")
            assert log_in().status_code == 403
            subject = re.search(r"--subject (\S+?)<", refused.text)
            assert subject is not None
            invite(pool, subject=subject[1])
            assert log_in().status_code == 303
        assert "of site-a, contributor" in browser.get("/account").text
