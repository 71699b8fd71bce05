"""The report: one page that needs nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from site_agent.eyeblink.outputs.report import report_page
from site_agent.eyeblink.session import AnalysedSession

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Checker(HTMLParser):
    """Follows the tags, and keeps texts, addresses and identifiers."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.texts: list[str] = []
        self.addresses: list[str] = []
        self.identifiers: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in {"src", "href", "data", "action", "srcset", "poster"}:
                self.addresses.append(value or "")
            if name == "id":
                self.identifiers.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.texts.append(data)


def checked(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def page(conditioned: AnalysedSession) -> str:
    return report_page(conditioned)


def test_the_page_is_one_file_and_the_same_each_time(
    conditioned: AnalysedSession, page: str
) -> None:
    found = checked(page)
    assert "script" not in found.tags
    assert "link" not in found.tags
    assert all(address.startswith("#") for address in found.addresses)
    assert {address[1:] for address in found.addresses} <= set(found.identifiers)
    without_namespaces = re.sub(r'xmlns(:xlink)?="[^"]*"', "", page)
    assert not re.search(r"(?i)(https?:)?//[a-z]|@import|url\((?!#)", without_namespaces)
    assert len(found.identifiers) == len(set(found.identifiers))
    drawn = [re.sub(r"analysed \S+ \S+", "", each) for each in (page, report_page(conditioned))]
    assert drawn[0] == drawn[1]
    assert not re.search(r"\bnan\b|\binf\b|None\b", " ".join(found.texts))


def test_the_page_shows_the_results(conditioned: AnalysedSession, page: str) -> None:
    text = " ".join(checked(page).texts)
    assert conditioned.conditioning is not None
    summary = conditioned.conditioning.summary
    assert f"CRs: {summary.n_cr} of {summary.n_cs_valid} trials" in text
    for row in conditioned.conditioning.sensitivity:
        assert row.criterion in text
    assert f"{len(conditioned.blinks)} blinks and closures" in text
    assert "0" * 64 in text
    assert "a &lt;warning&gt; &amp; more" in page
    assert "name &lt;of&gt; a &amp; b.csv" in page
    assert "<warning>" not in page
