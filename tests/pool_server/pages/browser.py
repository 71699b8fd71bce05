"""A browser without script, for tests of pages over HTTP: it keeps cookies and sends forms."""

import html
import re
from typing import Any

import httpx

from tests.pool_server.pool_driver import PoolDriver

_CSRF = re.compile(r'name="csrf" value="([^"]+)"')


class Browser:
    """One person's browser."""

    def __init__(self, pool: PoolDriver) -> None:
        self.client = httpx.Client(base_url=pool.url, transport=pool.transport, timeout=540)
        pool.stack.enter_context(self.client)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def csrf(self, page: str = "/login") -> str:
        token = _CSRF.search(self.get(page).text)
        assert token is not None, f"{page} has no form"
        return html.unescape(token[1])

    def post(
        self, path: str, fields: dict[str, Any] | None = None, *, form_on: str = "/login"
    ) -> httpx.Response:
        """Send a form with the token of a page's forms."""
        return self.client.post(path, data={"csrf": self.csrf(form_on), **(fields or {})})

    def log_in(self, secret: str) -> "Browser":
        answer = self.post("/login", {"token": secret})
        assert answer.status_code == 303, answer.text
        return self

    @property
    def cookie(self) -> str | None:
        return self.client.cookies.get("pool")


def member_browser(pool: PoolDriver, site: str, role: str = "contributor") -> Browser:
    return Browser(pool).log_in(pool.secret(site, role))
