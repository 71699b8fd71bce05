"""Cards as HTML: Markdown of anybody, so that nothing in it may run, load or lead astray."""

from __future__ import annotations

from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markupsafe import Markup

MOST_NESTED = 20
HEADINGS_DOWN = 2
LOWEST_HEADING = 6


def _is_web_address(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": MOST_NESTED})
    parser.enable("table")
    parser.disable(["image", "html_block", "html_inline", "reference"])
    parser.validateLink = _is_web_address  # type: ignore[method-assign, assignment]
    return parser


_PARSER = _make_parser()


def card_html(source: str) -> Markup:
    """Return Markdown as HTML without raw HTML, pictures, and links to anything but the web.

    Headings are below those of the page; links say nothing of where one was.
    """
    tokens = _PARSER.parse(source)
    for token in tokens:
        if token.type in {"heading_open", "heading_close"}:
            token.tag = f"h{min(int(token.tag[1]) + HEADINGS_DOWN, LOWEST_HEADING)}"
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("rel", "noreferrer nofollow")
    return Markup(_PARSER.renderer.render(tokens, _PARSER.options, {}))
