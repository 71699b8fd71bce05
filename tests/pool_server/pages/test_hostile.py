"""Words and files of others: nothing in them runs, loads or leads astray."""

from html.parser import HTMLParser

import pytest

from pool_server.pages.model import card_html
from pool_server.pages.visitor import own_path
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pages.browser import member_browser
from tests.pool_server.pool_driver import PoolDriver, upload

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(1)>'
CARD = f"""# {EVIL}

<script>alert(1)</script> <b onclick="alert(1)">bold</b>

![pixel](https://evil.example/pixel.png) [js](javascript:alert(1)) [data](data:text/html,x)
[fine](https://example.org "title") <https://example.org/auto> [ref]

[ref]: javascript:alert(1)

> quoted

| a | b |
|---|---|
| 1 | {EVIL} |
"""


class Elements(HTMLParser):
    """All elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def harmful(text: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return elements that would run, load or lead out of the pool."""
    return [
        (tag, attributes)
        for tag, attributes in Elements(text).found
        if any(name.startswith("on") or name == "style" for name in attributes)
        or (tag == "script" and not (attributes.get("src") or "").startswith("/static/"))
        or (
            tag in {"img", "image"} and not str(attributes.get("src", "/pictures/")).startswith("/")
        )
        or str(attributes.get("href", "")).startswith(("javascript:", "data:"))
        or tag in {"iframe", "object", "embed", "base", "style"}
    ]


def test_a_card_keeps_its_words_and_nothing_else() -> None:
    page = str(card_html(CARD))
    assert harmful(page) == []
    assert '<a href="https://example.org" title="title" rel="noreferrer nofollow">' in page
    assert "<h3>" in page
    assert "<h1>" not in page
    assert "<table>" in page
    assert "<img" not in page


@pytest.mark.parametrize("text", ["[" * 5000, "*" * 5000, "> " * 3000, "|" * 3000, "#" * 9])
def test_a_card_that_nests_deeply_ends(text: str) -> None:
    assert len(card_html(text)) < 20 * len(text) + 1000


def test_words_of_others_are_shown_as_they_are(pool: PoolDriver) -> None:
    client = pool.member("hostile")
    upload(
        client,
        "hostile/words",
        network_bytes(),
        description=EVIL,
        labels={"note": EVIL, "population": "infant"},
        terms=[{"code": "text", "detail": EVIL}],
        card=CARD,
    )
    browser = member_browser(pool, "hostile")
    for path in (
        "/models?text=script",
        "/models/hostile/words",
        "/models/hostile/words/manage",
        "/compare?model=hostile/words",
        "/models?text=%22%3E%3Cscript%3E",
        "/models?label=note=%22%3E%3Cscript%3E",
        "/login?next=%22%3E%3Cscript%3E",
        "/admin/%3Cscript%3E",
    ):
        page = browser.get(path)
        assert harmful(page.text) == [], path
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"


def test_files_are_never_shown_as_pages(pool: PoolDriver) -> None:
    browser = member_browser(pool, "hostile-files")
    version = upload(pool.member("hostile-files"), "hostile-files/net", network_bytes())
    file = browser.get("/models/hostile-files/net/download")
    assert file.headers["content-disposition"].startswith("attachment")
    card = browser.get("/models/hostile-files/net/card.md")
    assert card.headers["content-disposition"].startswith("attachment")
    picture = browser.get(f"/pictures/{version['digest']}/thumb")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert picture.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert picture.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("address", "led_to"),
    [
        ("/models?a=1", "/models?a=1"),
        ("//evil", "/"),
        ("https://evil", "/"),
        ("/\\evil", "/"),
        ("/\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("/\tx", "/"),
        ("/a\nb", "/"),
        ("javascript:1", "/"),
        ("", "/"),
    ],
)
def test_addresses_to_come_back_to_are_paths_of_this_pool(address: str, led_to: str) -> None:
    assert own_path(address) == led_to
