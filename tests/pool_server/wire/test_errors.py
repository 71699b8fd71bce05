"""Problems with values are described, and every error has one look on the wire."""

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from pydantic import BaseModel

import pool_server.wire
from pool_server.errors import ConflictError, PoolError, StartError, StorageFailedError
from pool_server.http.error_responses import error_text, respond_to_pool_error
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


def below(root: type[PoolError]) -> list[type[PoolError]]:
    return [error for kind in root.__subclasses__() for error in (kind, *below(kind))]


@pytest.mark.parametrize("error", below(PoolError), ids=lambda error: error.__name__)
def test_statuses_and_codes_are_fit_for_programs(error: type[PoolError]) -> None:
    assert 400 <= error.status <= 599
    assert error.code.replace("_", "").isalpha()
    assert error.code == error.code.lower()
    assert error_text(error).endswith(".")


def test_an_error_may_have_a_code_of_its_own() -> None:
    error = ConflictError("the site is there already", code="site_exists")
    assert (error.status, error.code) == (409, "site_exists")


@pytest.mark.parametrize("kind", [StorageFailedError, StartError])
def test_internal_paths_are_not_sent(kind: type[PoolError]) -> None:
    answer = respond_to_pool_error(kind("cannot write /srv/secret/path", code="folder_unusable"))
    assert b"/srv" not in bytes(answer.body)
    assert b"folder_unusable" not in bytes(answer.body)
    assert answer.status_code == 503
