"""Descriptions of problems with values."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from pydantic import BaseModel

import pool_server.wire
from pool_server.settings import PoolSettings
from pool_server.wire.errors import PATTERN_WORDS


def patterns(schema: Any) -> Iterator[str]:
    """Yield the patterns in a JSON schema."""
    if isinstance(schema, dict):
        if isinstance(pattern := schema.get("pattern"), str):
            yield pattern
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


def test_every_pattern_has_a_description() -> None:
    used = {pattern for model in models() for pattern in patterns(model.model_json_schema())}
    assert used - set(PATTERN_WORDS) == set()
    assert len(used) > 10
