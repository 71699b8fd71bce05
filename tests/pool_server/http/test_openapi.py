"""The description of the server is complete."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.pool_server.pool_driver import PoolDriver

OPEN_PATHS = {
    "/api/v1",
    "/api/v1/devices",
    "/api/v1/devices/token",
    "/api/v1/invitations/accept",
    "/healthz",
    "/readyz",
}


@pytest.fixture(scope="module")
def schema(pool: PoolDriver) -> dict[str, Any]:
    return pool.client(None).get("/openapi.json").json()


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_operations_are_described_with_their_refusals_in_the_one_form(
    schema: dict[str, Any],
) -> None:
    for path, method, operation in operations(schema):
        assert operation["summary"], (method, path)
        assert operation["description"], (method, path)
        for parameter in operation.get("parameters", []):
            assert parameter["description"], (method, path, parameter["name"])
        responses = operation["responses"]
        assert {"401", "403", "404", "409", "422", "500"} <= set(responses), (method, path)
        for status, response in responses.items():
            assert response["description"], (method, path, status)
            if int(status) >= 400:
                content = response["content"]["application/json"]
                assert content["schema"]["$ref"].endswith("/ErrorResponse"), (method, path, status)


def test_all_but_the_watchers_paths_need_the_token(schema: dict[str, Any]) -> None:
    assert set(schema["components"]["securitySchemes"]) == {"token"}
    for path, method, operation in operations(schema):
        assert bool(operation.get("security")) == (path not in OPEN_PATHS), (method, path)
