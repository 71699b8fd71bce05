"""Finding models: every filter, alone and with others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.pool_server.conftest import OpenPool
from tests.pool_server.model_files import detector_bytes, network_bytes
from tests.pool_server.pool_driver import PoolDriver, error_of, upload

# Where the database matters.
pytestmark = pytest.mark.both_databases


@pytest.fixture(scope="module")
def shelf(open_pool: OpenPool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    """A pool with a known handful of models."""
    with open_pool(tmp_path_factory.mktemp("shelf")) as pool:
        lab_a, lab_b = pool.member("lab-a"), pool.member("lab_b")
        upload(lab_a, "lab-a/faces", detector_bytes(80), labels={"population": "infant"})
        upload(
            lab_a, "lab-a/faces", detector_bytes(96),
            labels={"population": "infant", "camera": "100%_dark", "images": "90"},
            metrics={"recall": 0.9},
        )  # fmt: skip
        upload(
            lab_b, "lab_b/faces", detector_bytes(80),
            labels={"population": "adult", "images": "500"},
            metrics={"recall": 0.8, "precision": 0.7},
            description="Air-puff HOSE in view", terms=[{"code": "DUO:0000042"}],
        )  # fmt: skip
        lab_a.put("/api/v1/models/lab-a/faces/aliases/best", json={"version": "1"})
        upload(lab_b, "lab_b/gaze", network_bytes(4), labels={"population": "adult"})
        upload(lab_b, "lab_b/gaze", network_bytes(5))
        yield pool


def found(pool: PoolDriver, **query: Any) -> list[str]:
    answer = pool.admin.get("/api/v1/models", params=query)
    assert answer.status_code == 200, answer.text
    return [f"{each['site']}/{each['name']}@{each['version']}" for each in answer.json()["items"]]


ALL = ["lab_b/gaze@2", "lab_b/gaze@1", "lab_b/faces@1", "lab-a/faces@2", "lab-a/faces@1"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ALL),
        ({"kind": "hog-svm"}, ALL[2:]),
        ({"site": "lab_b"}, ALL[:3]),
        ({"label": "population=infant"}, ALL[3:]),
        ({"label": "population"}, ALL[1:]),
        ({"label": ["population=infant", "camera"]}, ALL[3:4]),
        ({"label": "images>=90"}, ALL[2:4]),
        ({"label": "images>90"}, ALL[2:3]),
        ({"label": "population>1"}, []),
        ({"metric": "recall<0.9"}, ALL[2:3]),
        ({"metric": "recall=0.9"}, ALL[3:4]),
        ({"metric": ["recall>0", "precision>0.5"]}, ALL[2:3]),
        ({"text": "HOSE air-puff"}, ALL[2:3]),
        ({"text": "infant"}, ALL[3:]),
        ({"text": "in"}, ALL[2:3]),
        ({"text": "%"}, ALL[3:4]),
        ({"text": "_"}, ALL[:4]),
        ({"text": "'; DROP TABLE models; --"}, []),
        ({"latest": "true"}, [ALL[0], ALL[2], ALL[3]]),
        ({"kind": "hog-svm", "label": "population=adult", "metric": "recall<1"}, ALL[2:3]),
        ({"mergeable_with": "lab-a/faces@1"}, ["lab_b/faces@1"]),
        ({"mergeable_with": "pool://lab-a/faces"}, []),
        ({"mergeable_key": "mwma:nonsense"}, []),
    ],
    ids=str,
)
def test_filters(shelf: PoolDriver, query: dict[str, Any], expected: list[str]) -> None:
    assert found(shelf, **query) == expected


@pytest.mark.parametrize(
    "query",
    [
        {"label": "A=x"},
        {"label": "a<inf"},
        {"sort": "size"},
        {"metric": "recall"},
        {"metric": "recall<nan"},
        {"mergeable_key": "mwma"},
        {"mergeable_with": "not an address"},
        {"cursor": "nonsense"},
        {"text": "a b c d e f g h i"},
        {"label": ["a"] * 33},
    ],
    ids=str,
)
def test_filters_that_cannot_be_read(shelf: PoolDriver, query: dict[str, Any]) -> None:
    answer = shelf.admin.get("/api/v1/models", params=query)
    assert error_of(answer) == (422, "invalid_query")


BY_NAME = ["lab-a/faces@1", "lab-a/faces@2", "lab_b/faces@1", "lab_b/gaze@1", "lab_b/gaze@2"]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        ("-created", ALL),
        ("created", ALL[::-1]),
        ("name", BY_NAME),
        ("-name", BY_NAME[::-1]),
        ("metric.recall", ["lab_b/faces@1", "lab-a/faces@2"]),
        ("-metric.recall", ["lab-a/faces@2", "lab_b/faces@1"]),
        ("metric.absent", []),
    ],
)
def test_orders(shelf: PoolDriver, sort: str, expected: list[str]) -> None:
    assert found(shelf, sort=sort) == expected
    collected: list[str] = []
    query: dict[str, Any] = {"sort": sort, "limit": 1}
    while "cursor" not in query or query["cursor"]:
        page = shelf.admin.get("/api/v1/models", params=query).json()
        collected += [f"{each['site']}/{each['name']}@{each['version']}" for each in page["items"]]
        query["cursor"] = page["next_cursor"]
    assert collected == expected
