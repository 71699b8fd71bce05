"""What is wrong with values, in words."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from pydantic import BaseModel

import pool_server.wire
from pool_server.settings import PoolSettings
from pool_server.wire.people.sites import SiteRequest
from pool_server.wire.problem_words import PATTERN_WORDS
from pool_server.wire.transfers.uploads import VersionDescription
from site_agent.errors import PoolRefusedRequestError
from site_agent.pool.requests import build_request


def patterns(schema: Any) -> Iterator[str]:
    """Yield the patterns in a JSON schema."""
    if isinstance(schema, dict):
        if isinstance(found := schema.get("pattern"), str):
            yield found
        # Of a mapping's keys.
        yield from schema.get("patternProperties", {})
        for value in schema.values():
            yield from patterns(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from patterns(value)


def models() -> Iterator[type[BaseModel]]:
    yield PoolSettings
    for module in pkgutil.walk_packages(pool_server.wire.__path__, "pool_server.wire."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, BaseModel) and value is not BaseModel:
                yield value


def test_every_pattern_has_its_words() -> None:
    used = {found for model in models() for found in patterns(model.model_json_schema())}
    assert used - set(PATTERN_WORDS) == set()
    assert len(used) > 10


@pytest.mark.parametrize(
    ("kind", "fields", "words"),
    [
        (SiteRequest, {"name": "Sité A"}, "name: found 'Sité A', expected small letters a-z"),
        (
            VersionDescription,
            {"labels": {"popülation": "x"}},
            "labels: key: found 'popülation', exp",
        ),
        (
            VersionDescription,
            {"labels": {"age": "a\tb"}},
            "labels.age: found 'a\\tb', expected one lin",
        ),
    ],
)
def test_a_request_is_refused_in_words(
    kind: type[BaseModel], fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(PoolRefusedRequestError) as caught:
        build_request(kind, **fields)
    assert str(caught.value).startswith(words)
    assert "pattern" not in str(caught.value)
