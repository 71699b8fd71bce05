"""The description of the server is complete."""

from collections.abc import Iterator
from typing import Any

import pytest

from pool_server.wire.names import RequestModel
from tests.pool_server.pool_driver import PoolDriver

OPEN_PATHS = {
    "/api/v1",
    "/api/v1/devices",
    "/api/v1/devices/token",
    "/api/v1/invitations/accept",
    "/healthz",
    "/readyz",
}
FEED_PATH = "/api/v1/events/feed"
BINARY = "application/octet-stream"


@pytest.fixture(scope="module")
def schema(pool: PoolDriver) -> dict[str, Any]:
    document: dict[str, Any] = pool.client(None).get("/openapi.json").json()
    return document


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def test_every_operation_is_described(schema: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in schema["tags"] if tag["description"]}
    for path, method, operation in operations(schema):
        assert operation["summary"], (method, path)
        assert operation["description"], (method, path)
        assert set(operation["tags"]) <= tags, (method, path)


def test_operation_ids_are_unique(schema: dict[str, Any]) -> None:
    identifiers = [operation["operationId"] for *_, operation in operations(schema)]
    assert len(identifiers) == len(set(identifiers))


def test_every_parameter_is_described_and_has_an_example(schema: dict[str, Any]) -> None:
    for path, method, operation in operations(schema):
        for parameter in operation.get("parameters", []):
            where = (method, path, parameter["name"])
            assert parameter["description"], where
            assert parameter["schema"].get("examples") or parameter.get("examples"), where


def test_every_refusal_is_documented_in_the_one_form(schema: dict[str, Any]) -> None:
    for path, method, operation in operations(schema):
        responses = operation["responses"]
        assert {"401", "403", "404", "409", "422", "500"} <= set(responses), (method, path)
        for status, response in responses.items():
            assert response["description"], (method, path, status)
            if int(status) >= 400:
                content = response["content"]["application/json"]
                assert content["schema"]["$ref"].endswith("/ErrorResponse"), (method, path, status)


def test_all_but_the_watchers_paths_need_the_token(schema: dict[str, Any]) -> None:
    assert set(schema["components"]["securitySchemes"]) == {"token", "feed token"}
    for path, method, operation in operations(schema):
        assert bool(operation.get("security")) == (path not in OPEN_PATHS), (method, path)
        in_address = {"feed token": []} in operation.get("security", [])
        assert in_address == (path == FEED_PATH), (method, path)


def test_every_body_has_an_example(schema: dict[str, Any]) -> None:
    for path, method, operation in operations(schema):
        contents = [operation["requestBody"]["content"]] if "requestBody" in operation else []
        contents += [
            response["content"]
            for status, response in operation["responses"].items()
            if int(status) < 300 and "content" in response
        ]
        for content in contents:
            for kind, description in content.items():
                if kind not in {BINARY, "text/plain", "application/atom+xml", "image/svg+xml"}:
                    name = description["schema"]["$ref"].rsplit("/", 1)[-1]
                    assert schema["components"]["schemas"][name].get("examples"), (
                        method,
                        path,
                        name,
                    )


def test_the_example_of_each_request_is_one(schema: dict[str, Any]) -> None:
    waiting, tried = [RequestModel], set()
    while waiting:
        request = waiting.pop()
        waiting += request.__subclasses__()
        if request.__name__ in schema["components"]["schemas"]:
            request.model_validate(schema["components"]["schemas"][request.__name__]["examples"][0])
            tried.add(request.__name__)
    assert {"UploadRequest", "RoundRequest", "PrivacyReceipt"} <= tried
