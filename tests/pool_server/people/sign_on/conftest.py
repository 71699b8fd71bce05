"""A pool with two providers, and browsers that log in by them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from pool_server.people import providers
from tests.pool_server.pages.browser import Browser
from tests.pool_server.people.sign_on.openid_provider import (
    CLIENT,
    SECRET,
    OpenIdProvider,
    running_provider,
)
from tests.pool_server.pool_driver import PoolDriver, pool_in_process

RULES = [
    {"claim": "affiliation", "value": "staff@uni", "site": "site-a", "role": "contributor"},
    {"claim": "email", "value": "boss@uni.example", "site": "site-a", "role": "admin"},
]


def settings_of(name: str, provider: OpenIdProvider, **settings: Any) -> dict[str, Any]:
    client = {"client_id": CLIENT, "client_secret": SECRET, "issuer": provider.issuer}
    return {"name": name, "label": name.title(), **client, **settings}


@dataclass
class Consortium:
    """A pool with log-in by two institutes; `uni` has rules, `orcid` none."""

    pool: PoolDriver
    uni: OpenIdProvider
    orcid: OpenIdProvider

    def browser(self) -> Browser:
        return Browser(self.pool)

    def provider(self, name: str) -> OpenIdProvider:
        return self.uni if name == "uni" else self.orcid

    def begin(self, browser: Browser, name: str = "uni", **query: str) -> dict[str, str]:
        """Return the answer that the browser brings back from the provider."""
        answer = browser.get(f"/login/with/{name}?{urlencode(query)}")
        assert answer.status_code == 303, answer.text
        return self.provider(name).log_in(answer.headers["location"])

    def come_back(
        self, browser: Browser, answer: dict[str, str], name: str = "uni"
    ) -> httpx.Response:
        return browser.get(f"/login/back/{name}?{urlencode(answer)}")

    def log_in(self, browser: Browser, name: str = "uni", **query: str) -> httpx.Response:
        return self.come_back(browser, self.begin(browser, name, **query), name)

    def invite(self, **fields: Any) -> httpx.Response:
        return self.pool.admin.post("/api/v1/invitations", json={"site": "site-a", **fields})

    def users(self) -> dict[str, dict[str, Any]]:
        items = self.pool.admin.get("/api/v1/users").json()["items"]
        return {user["name"]: user for user in items}


@pytest.fixture
def consortium(tmp_path: Path) -> Iterator[Consortium]:
    with running_consortium(tmp_path) as consortium:
        yield consortium


@contextmanager
def running_consortium(folder: Path) -> Iterator[Consortium]:
    """Run a new pool and two new providers."""
    providers.open_provider.cache_clear()
    with running_provider() as uni, running_provider() as orcid:
        sign_on = [
            settings_of("uni", uni, rules=RULES, renew=True),
            settings_of("orcid", orcid, scope="openid"),
        ]
        with pool_in_process(folder, sign_on=sign_on) as pool:
            pool.secret("site-a", "viewer")
            yield Consortium(pool, uni, orcid)
    providers.open_provider.cache_clear()
