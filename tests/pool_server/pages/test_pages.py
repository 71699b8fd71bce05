"""The pages for a browser stand on their own."""

import re
from html.parser import HTMLParser
from itertools import product

from aggregators.methods.registry import list_round_methods
from pool_server import look
from tests.pool_server.pages.browser import member_browser
from tests.pool_server.pool_driver import PoolDriver

SHEET = look.FOLDER / "look.css"
MEANINGS = ("accent", "good", "warn", "bad")
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


def test_a_page_is_whole_and_names_no_other_host(pool: PoolDriver) -> None:
    answer = pool.client(None).get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    balance = Balance()
    balance.feed(answer.text)
    assert balance.open == []
    assert all(link.startswith(("/", "#")) for link in balance.links)
    for link in filter(lambda address: not address.startswith("#"), balance.links):
        assert pool.client(None).get(link).status_code == 200
    assert "<script>" not in answer.text
    assert "style=" not in answer.text
    assert "unsafe-" not in answer.headers["content-security-policy"]


def test_the_first_page_says_what_to_type_next(pool: PoolDriver) -> None:
    text = pool.client(None).get("/").text
    assert f"poolctl auth login {pool.url}" in text
    assert "poolctl upload" in text


def test_a_round_may_have_any_method_of_rounds(pool: PoolDriver) -> None:
    text = member_browser(pool, "pages-methods").get("/rounds/new").text
    assert [name for name in list_round_methods() if f'value="{name}"' not in text] == []


def test_a_strange_host_header_writes_no_html(pool: PoolDriver) -> None:
    answer = pool.client(None).get("/", headers={"Host": "a<b>c"})
    assert "<b>c" not in answer.text


def test_health_and_readiness(pool: PoolDriver) -> None:
    for path in ("/healthz", "/readyz"):
        assert pool.client(None).get(path).json() == {"status": "ok"}


def luminance(colour: str) -> float:
    """Return the relative luminance of ``#rrggbb`` (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(share * value for share, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_colours_can_be_told_from_their_ground_in_both_themes() -> None:
    token = r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)"
    colours = {name: (light, dark) for name, light, dark in re.findall(token, SHEET.read_text())}
    grounds = ("ground", "paper", "sunken")
    text = [
        *product(("ink", "quiet", "accent"), grounds),
        *product(("ink",), [f"q{shade}" for shade in range(7)]),
        *((front, f"{meaning}-soft") for meaning in MEANINGS for front in ("ink", meaning)),
        *product(("accent-strong", *MEANINGS), ("paper",)),
        *(("on-accent", "accent"), ("on-accent", "accent-strong"), ("on-bad", "bad")),
    ]
    for pairs, least in ((text, 4.5), (product(("edge", "focus"), grounds), 3.0)):
        for front, back in pairs:
            for one, two in zip(colours[front], colours[back], strict=True):
                darker, lighter = sorted((luminance(one), luminance(two)))
                assert (lighter + 0.05) / (darker + 0.05) >= least, (front, back, one, two)
