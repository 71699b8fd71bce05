"""Cards as HTML: Markdown of anybody, so that nothing in it may run, load or lead astray."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup

Environment = MutableMapping[str, Any]
MOST_NESTED = 20
HEADINGS_DOWN = 2
LOWEST_HEADING = 6


class _CardRenderer(RendererHTML):
    """Writes headings below those of the page, and links that say nothing of where one was."""

    def heading_open(
        self,
        tokens: Sequence[Token],
        idx: int,
        options: OptionsDict,
        _env: MutableMapping[str, Any],
    ) -> str:
        tokens[idx].tag = _lower(tokens[idx].tag)
        return self.renderToken(tokens, idx, options, _env)

    heading_close = heading_open

    def link_open(
        self,
        tokens: Sequence[Token],
        idx: int,
        options: OptionsDict,
        _env: MutableMapping[str, Any],
    ) -> str:
        tokens[idx].attrSet("rel", "noreferrer nofollow")
        return self.renderToken(tokens, idx, options, _env)


def _lower(tag: str) -> str:
    return f"h{min(int(tag[1]) + HEADINGS_DOWN, LOWEST_HEADING)}"


def _is_web_address(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def _make_parser() -> MarkdownIt:
    parser = MarkdownIt(
        "commonmark", {"html": False, "maxNesting": MOST_NESTED}, renderer_cls=_CardRenderer
    )
    parser.enable("table")
    parser.disable(["image", "html_block", "html_inline", "reference"])
    parser.validateLink = _is_web_address  # type: ignore[method-assign, assignment]
    return parser


_PARSER = _make_parser()


def card_html(source: str) -> Markup:
    """Return Markdown as HTML without raw HTML, pictures, and links to anything but the web."""
    return Markup(_PARSER.render(source))
