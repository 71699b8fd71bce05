"""The pages for a browser stand on their own."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.pool_server.pool_driver import PoolDriver

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Balance(HTMLParser):
    """Fails where tags do not match."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_is_whole_and_names_no_other_host(pool: PoolDriver, path: str) -> None:
    answer = pool.client(None).get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    balance = Balance()
    balance.feed(answer.text)
    assert balance.open == []
    assert all(link.startswith(("/", "#")) for link in balance.links)
    for link in filter(lambda each: not each.startswith("#"), balance.links):
        assert pool.client(None).get(link).status_code == 200
    assert "<script>" not in answer.text
    assert "style=" not in answer.text
    assert "unsafe-" not in answer.headers["content-security-policy"]


def test_the_first_page_says_what_to_type_next(pool: PoolDriver) -> None:
    text = pool.client(None).get("/").text
    assert f"poolctl auth login {pool.url}" in text
    assert "poolctl upload" in text


def test_the_reference_has_every_operation(pool: PoolDriver) -> None:
    anyone = pool.client(None)
    text = anyone.get("/docs").text
    paths = anyone.get("/openapi.json").json()["paths"]
    assert len(re.findall("<details>", text)) == sum(len(methods) for methods in paths.values())
    for path in paths:
        assert path in text


def test_a_strange_host_header_writes_no_html(pool: PoolDriver) -> None:
    answer = pool.client(None).get("/", headers={"Host": "a<b>c"})
    assert "<b>c" not in answer.text


def test_health_and_readiness(pool: PoolDriver) -> None:
    for path in ("/healthz", "/readyz"):
        assert pool.client(None).get(path).json() == {"status": "ok"}


def test_the_reference_shows_no_marks_of_markdown(pool: PoolDriver) -> None:
    page = re.sub(
        "<(pre|code)>.*?</(pre|code)>", "", pool.client(None).get("/docs").text, flags=re.S
    )
    assert "<em>operations</em>" in page
    assert re.findall(r"`|\*\w", page) == []
