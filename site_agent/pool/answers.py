"""Answers of a pool: of bounded size, and about what was asked for.

A pool, or whoever has broken into it, could answer a question with what it truthfully says of
another model: every signature would hold. So each answer that names its subject is compared with
the path of the request.
"""

from __future__ import annotations

import re

import httpx
from pydantic import BaseModel

from site_agent.errors import PoolAnswerError

MOST_ANSWER_BYTES = 64 * 1024 * 1024
"""The family of a model with thousands of recipes takes a few megabytes."""

_VERSION = re.compile(r"/api/v1/models/([^/]+)/([^/]+)(?:/versions/([^/]+))?")
_KEYS_OF = re.compile(r"/api/v1/sites/([^/]+)/keys")
_IDENTIFIER = re.compile(r"/(lineage|rounds|merges|uploads|sessions)/([0-9a-f]+)")
_FIELD_OF = {
    "lineage": "root",
    "rounds": "round_id",
    "merges": "merge_id",
    "uploads": "upload_id",
    "sessions": "session_id",
}


def read_whole(response: httpx.Response) -> httpx.Response:
    """Read the body of an answer that was begun, and return the complete answer.

    Raises
    ------
    PoolAnswerError
        The body is too large, or compressed, which nobody asked for.
    """
    host = f"{response.url.scheme}://{response.url.netloc.decode()}"
    body = bytearray()
    try:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise PoolAnswerError(
                f"{host} sent a compressed answer ({encoding[:40]}), although none was asked for",
                hint="a proxy between here and the pool may have compressed it",
            )
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > MOST_ANSWER_BYTES:
                raise PoolAnswerError(
                    f"{host} sent more than {MOST_ANSWER_BYTES:,} bytes as one answer"
                )
    finally:
        response.close()
    return httpx.Response(
        response.status_code,
        headers=response.headers,
        content=bytes(body),
        request=response.request,
    )


def require_subject(path: str, answer: BaseModel) -> None:
    """Raise if an answer is about something else than the path of its request names.

    An alias and the newest version are what the pool says they are; of these only the model is
    compared.

    Raises
    ------
    PoolAnswerError
        Names both.
    """
    if match := _VERSION.search(path):
        site, name, reference = match.groups(default="")
        address, said = f"pool://{site}/{name}", getattr(answer, "address", None)
        if said is not None:
            require_same(address, said.partition("@")[0])
            if reference.isdecimal():
                require_same(f"{address}@{int(reference)}", said)
        if reference.startswith("sha256:"):
            for field in ("digest", "root"):
                require_field(answer, field, reference.removeprefix("sha256:"))
    if match := _KEYS_OF.search(path):
        for key in getattr(answer, "items", [answer]):
            require_field(key, "site", match[1])
    for noun, identifier in _IDENTIFIER.findall(path):
        require_field(answer, _FIELD_OF[noun], identifier)


def require_field(answer: BaseModel, field: str, asked: str) -> None:
    """Raise `PoolAnswerError` if an answer has this field and says something else than asked."""
    require_same(asked, getattr(answer, field, asked))


def require_same(asked: object, found: object) -> None:
    """Raise `PoolAnswerError` if `found` is not what was asked for."""
    if asked != found:
        raise PoolAnswerError(
            f"the pool was asked for {asked} and answered with {str(found)[:200]}",
            hint="do not use what it gave; tell the pool's admin",
        )
