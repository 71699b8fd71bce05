"""Refused values of a form, by the field of the page and in its words."""

import re
from collections.abc import Mapping, Sequence

from pool_server.wire.errors import ErrorBody

_FIELD_OF_CODE = {
    "card_refused": "card",
    "digest_mismatch": "file",
    "format_refused": "file",
    "labels_refused": "labels",
    "sharing_refused": "visibility",
    "terms_refused": "term",
    "too_large": "file",
}
_HINTS = {
    "visibility": "Choose “as usual here”, or change it on the page of the model.",
    "term": "Several sites or words go into one field, with commas between.",
}
"""Hints for a page in place of those that name commands."""
_LABEL = re.compile(r"^label ([a-z][a-z0-9_.-]*)=")
_LABEL_FIELD = "label-"


def field_problems(typed: Mapping[str, Sequence[str]], body: ErrorBody) -> dict[str, str]:
    """Return the problem of each refused field; empty if the refusal is about no field."""
    problems: dict[str, str] = {}
    for entry in body.details.get("fields", []):
        where = str(entry["where"]).removeprefix("body.")
        name, problem = _place(typed, where.split("."), str(entry["problem"]))
        problems.setdefault(name, problem)
    if not problems and body.code in _FIELD_OF_CODE:
        name = _FIELD_OF_CODE[body.code]
        if name == "card" and "card" not in typed:
            name = "text"
        if match := _LABEL.search(body.message):
            name = _label_field(typed, match[1])
        hint = _HINTS.get(name, "")
        problems[name] = f"{body.message}. {hint}" if hint else body.message
    return problems


def _place(typed: Mapping[str, Sequence[str]], steps: list[str], problem: str) -> tuple[str, str]:
    """Return the field of the page for a value of the request, and the problem in its words."""
    group, key = steps[0], ".".join(steps[1:])
    if group == "labels" and key:
        name = key.removesuffix(".[key]")
        return _label_field(typed, name), f"{name}: {problem}"
    if group == "metrics" and key:
        return "metrics", f"{key}: {problem}"
    if group == "terms" and key.isdigit() and int(key) < len(typed.get("term", ())):
        code = typed["term"][int(key)]
        problem = problem.replace(f"{code}=", "").replace(" after it ", " ")
        return f"detail-{code}", re.sub(rf"^{re.escape(code)} \([^)]*\) ", "", problem)
    return steps[-1], problem


def _label_field(typed: Mapping[str, Sequence[str]], key: str) -> str:
    """Return the field in which a label was typed: its own, or that of other labels."""
    name = f"{_LABEL_FIELD}{key}"
    return name if any(typed.get(name, ())) else "labels"
