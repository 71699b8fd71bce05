"""Rendering of pages: templates, one style sheet, and a policy that lets browsers load nothing.

Templates escape every value. They hold no script, and no style of their own: the policy allows
the sheet ``templates/pool.css`` alone, by its digest.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

_TEMPLATES = Path(__file__).parent / "templates"
STYLE = (_TEMPLATES / "pool.css").read_text(encoding="utf-8")
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_CODE = re.compile(r"`([^`]+)`")
# Parts of an operation that OpenAPI leaves out where they are empty.
_LEFT_OUT: dict[str, Any] = {
    "summary": "",
    "description": "",
    "parameters": [],
    "requestBody": None,
}
_EMPHASIS = re.compile(r"\*(\w[^*<]*)\*")


def render_page(template: str, **values: Any) -> str:
    """Return the page that a template makes of these values."""
    return _ENVIRONMENT.get_template(template).render(values)


def page_response(page: str) -> HTMLResponse:
    """Return a page with the headers of all pages."""
    headers = {"content-security-policy": POLICY, "cache-control": "no-cache"}
    return HTMLResponse(page, headers=headers)


def inline_marks(text: str) -> Markup:
    """Return text as HTML: words between backquotes as code, starred ones stressed."""
    code = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    return Markup(_EMPHASIS.sub(r"<em>\1</em>", code))


def paragraphs(text: str) -> list[str]:
    """Return the parts of a docstring between empty lines."""
    return [part.strip() for part in text.split("\n\n") if part.strip()]


def operations_by_tag(schema: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the operations of an OpenAPI description by tag, as the reference lists them.

    An operation gets its `path`, its `method`, and an `example` of its body where there is one.
    """
    by_tag: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            own = {"path": path, "method": method.upper(), "example": _example(schema, operation)}
            shown = _LEFT_OUT | operation | own
            for tag in operation.get("tags", ["other"]):
                by_tag[tag].append(shown)
    return by_tag


def _example(schema: Mapping[str, Any], operation: Mapping[str, Any]) -> str:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        name = content.get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
        examples = schema.get("components", {}).get("schemas", {}).get(name, {}).get("examples")
        if examples:
            return json.dumps(examples[0], indent=2)
    return ""


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(_TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {"inline_marks": inline_marks, "paragraphs": paragraphs}
# Not by `include`, which may drop a line break: the policy names the digest of these very bytes.
_ENVIRONMENT.globals["style"] = Markup(STYLE)
