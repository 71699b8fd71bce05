"""The page at ``/docs``: every address of the server, made from its OpenAPI description."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from html import escape
from typing import Any

_CODE = re.compile(r"`([^`]+)`")
_EMPHASIS = re.compile(r"\*(\w[^*<]*)\*")


def prose(text: str) -> str:
    """Return text as HTML: paragraphs, words between backquotes as code, starred ones stressed."""
    paragraphs = [part.strip() for part in text.split("\n\n") if part.strip()]
    return "".join(f"<p>{_inline(part)}</p>" for part in paragraphs)


def reference_body(schema: Mapping[str, Any]) -> str:
    """Return the page's HTML."""
    by_tag: dict[str, list[str]] = defaultdict(list)
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            for tag in operation.get("tags", ["other"]):
                by_tag[tag].append(_operation(schema, path, method, operation))
    descriptions = {tag["name"]: tag.get("description", "") for tag in schema.get("tags", [])}
    sections = "".join(
        f"<section><h2>{escape(tag)}</h2>{prose(descriptions.get(tag, ''))}"
        f"{''.join(operations)}</section>"
        for tag, operations in by_tag.items()
    )
    return (
        f"<header><h1>{escape(schema['info']['title'])}</h1>"
        f"<p class='quiet'>version {escape(schema['info']['version'])}</p></header>"
        f"<main>{prose(schema['info'].get('description', ''))}"
        "<nav><a href='/'>Begin</a><a href='/openapi.json'>OpenAPI</a></nav>"
        f"{sections}</main>"
    )


def _operation(
    schema: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]
) -> str:
    return (
        f"<details><summary><span class='method'>{escape(method.upper())}</span>"
        f"<code>{escape(path)}</code> &mdash; {escape(operation.get('summary', ''))}</summary>"
        f"<div>{prose(operation.get('description', ''))}"
        f"{_parameters(operation)}{_request_body(schema, operation)}{_responses(operation)}"
        "</div></details>"
    )


def _parameters(operation: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{escape(each['in'])}</td>"
        f"<td>{_inline(each.get('description', ''))}</td></tr>"
        for each in operation.get("parameters", [])
    )
    head = "<tr><th>Parameter</th><th>Where</th><th>Meaning</th></tr>"
    return f"<table>{head}{rows}</table>" if rows else ""


def _request_body(schema: Mapping[str, Any], operation: Mapping[str, Any]) -> str:
    body = operation.get("requestBody")
    if not body:
        return ""
    example = ""
    for content in body["content"].values():
        name = content.get("schema", {}).get("$ref", "").rsplit("/", 1)[-1]
        examples = schema.get("components", {}).get("schemas", {}).get(name, {}).get("examples")
        if examples:
            example = f"<pre>{escape(json.dumps(examples[0], indent=2))}</pre>"
    kinds = ", ".join(f"<code>{escape(kind)}</code>" for kind in body["content"])
    return f"<h3>Body</h3>{prose(body.get('description', ''))}<p>{kinds}</p>{example}"


def _responses(operation: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(status)}</td><td>{_inline(response.get('description', ''))}"
        f"{_codes(response)}</td></tr>"
        for status, response in sorted(operation.get("responses", {}).items())
    )
    return f"<table><tr><th>Answer</th><th>Meaning</th></tr>{rows}</table>"


def _codes(response: Mapping[str, Any]) -> str:
    examples = response.get("content", {}).get("application/json", {}).get("examples", {})
    codes = " ".join(f"<code>{escape(code)}</code>" for code in examples)
    return f"<br><span class='quiet'>{codes}</span>" if codes else ""


def _inline(text: str) -> str:
    return _EMPHASIS.sub(r"<em>\1</em>", _CODE.sub(r"<code>\1</code>", escape(text)))
