"""Rendering of pages: templates that escape every value, and a policy for browsers.

Templates hold no script and no style of their own; both come from files of this pool.
"""

import re
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup, escape
from starlette.responses import Response

from pool_server import look
from pool_server.errors import MissingError
from pool_server.pages import words
from pool_server.pages.visitor import Visitor
from pool_server.people.sites import pool_version

router = APIRouter(include_in_schema=False)


FILES = look.read_static(Path(__file__).parent / "static")


@router.get("/static/{digest}/{name}")
async def static_file(request: Request, digest: str, name: str) -> Response:
    """Return a file under the digest of its bytes, and under no other."""
    file = FILES.get(name)
    if file is None or file.address != f"/static/{digest}/{name}":
        raise MissingError(
            f"the pool has no file {name!r} with the digest {digest}",
            hint="Load the page again: it names the files that belong to it.",
        )
    return file.respond(request)


_TEMPLATES = Path(__file__).parent / "templates"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "private, no-cache",
    # With `no-referrer` browsers do not say either which site sent a form.
    "referrer-policy": "same-origin",
    "vary": "cookie",
}
_CODE = re.compile(r"`([^`]+)`")


def render_page(template: str, *, visitor: Visitor | None = None, **values: Any) -> str:
    """Return the page that a template makes of these values.

    `visitor`: Owner of the forms on the page.
    """
    defaults = {"visitor": visitor, "waiting": 0, "csrf": partial(_csrf_field, visitor)}
    return _ENVIRONMENT.get_template(template).render(defaults | values)


def _csrf_field(visitor: Visitor | None) -> Markup:
    if visitor is not None:
        visitor.request.state.has_form = True
    token = "" if visitor is None else visitor.csrf()
    return Markup('<input type="hidden" name="csrf" value="{}">').format(token)


def page_response(page: str, status: int = 200, *, has_secret: bool = False) -> HTMLResponse:
    """Return a page with the headers of all pages; one with a secret is kept nowhere."""
    headers = PAGE_HEADERS | ({"cache-control": "no-store"} if has_secret else {})
    return HTMLResponse(page, status, headers=headers)


def inline_marks(text: str) -> Markup:
    """Return text as HTML, with words between backquotes as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))


_ENVIRONMENT = look.page_environment(_TEMPLATES)
_ENVIRONMENT.filters |= {
    "inline_marks": inline_marks,
    "zip": lambda one, two: list(zip(one, two, strict=True)),
    **words.FILTERS,
}
_ENVIRONMENT.globals |= {"static": lambda name: FILES[name].address, "pool_version": pool_version}
