"""Examples of requests and answers in the description of the API, made from the schemas."""

from collections.abc import Mapping
from typing import Any

from pool_server.wire.names import DIGEST_PATTERN

_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_ADDRESS = "pool://site-a/face-68@2"
_KEY = "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="
_BY_NAME: dict[str, Any] = {
    "address": _ADDRESS,
    "addresses": [_ADDRESS],
    "attacks": [{"name": "membership", "measure": "AUC", "found": {"value": 0.81}}],
    "base": _ADDRESS,
    "charter": _DIGEST,
    "checksum": _DIGEST,
    "code": "DUO:0000042",
    "created_by": "site-a/laptop",
    "dataset": "ward-2026",
    "deadline": "2026-03-08T12:00:00Z",
    "email": "ada@lab.example",
    "envelope": '{"payloadType": "...", "payload": "...", "signatures": []}',
    "file_name": "siteA.dat",
    "kind": "ert",
    "labels": {"population": "infant"},
    "metrics": {"mean_error": 0.0727},
    "model": _ADDRESS,
    "name": "face-68",
    "next_cursor": "djE6YmVmb3JlPTQy",
    "number": 1,
    "origin": "site-a@pool.example.org",
    "phase": "share",
    "public_key": _KEY,
    "reason": "quality",
    "recipe": {
        "schema": "poolctl-recipe/1",
        "method": {"name": "wba-cascade", "version": 1},
        "options": {"step": 1.1},
        "inputs": [{"digest": _DIGEST, "weight": 1.5, "address": _ADDRESS}],
    },
    "round_id": "4f1d2c3b4a596877",
    "scores": {"mean_error": {"value": 0.0727, "low": 0.0701, "high": 0.0755}},
    "sender": "site-a",
    "servers": ["server-1", "server-2"],
    "site": "site-a",
    "sites": ["site-a", "site-b"],
    "size_bytes": 123_456_789,
    "token_id": "4f1d2c3b4a596877",
    "url": "/api/v1/uploads/0123456789abcdef0123456789abcdef/parts/1",
}
"""Examples of fields by their names, which mean the same in all requests and answers."""
_OF_TYPE = {"number": 0.5, "boolean": False, "string": "...", "null": None}


def add_examples(schema: dict[str, Any]) -> dict[str, Any]:
    """Give each type of a description an example; a request's has what it cannot do without."""
    types = schema["components"]["schemas"]
    for name, described in types.items():
        described.setdefault("examples", [_example(described, types, name.endswith("Request"))])
    return schema


def _example(described: Mapping[str, Any], types: Mapping[str, Any], is_request: bool) -> Any:
    said = [*described.get("examples", ()), *described.get("enum", ())]
    said += [described[word] for word in ("const", "default") if described.get(word) is not None]
    if said:
        return said[0]
    for word in ("anyOf", "allOf", "oneOf"):
        if word in described:
            return _example(described[word][0], types, is_request)
    if "$ref" in described:
        return _example(types[described["$ref"].rsplit("/", 1)[-1]], types, is_request)
    kind = described.get("type", "object")
    if kind == "array":
        return [_example(described.get("items", {}), types, is_request)]
    if kind == "object":
        fields = described.get("properties", {})
        shown = described.get("required") or fields if is_request else fields
        return {name: _of_field(name, fields[name], types, is_request) for name in shown}
    return _plain_example(kind, described)


def _plain_example(kind: str, described: Mapping[str, Any]) -> Any:
    if described.get("pattern") == DIGEST_PATTERN:
        return _DIGEST
    if described.get("format") == "date-time":
        return "2026-03-01T12:00:00Z"
    return int(described.get("minimum", 1)) if kind == "integer" else _OF_TYPE[kind]


def _of_field(
    name: str, described: Mapping[str, Any], types: Mapping[str, Any], is_request: bool
) -> Any:
    found = _example(described, types, is_request)
    known = _BY_NAME.get(name, found)
    # What one type takes as a text may be an object in another.
    return known if type(known) is type(found) and not described.get("enum") else found
