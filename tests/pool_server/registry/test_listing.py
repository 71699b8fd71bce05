"""Finding models: every filter, alone and with others."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from pool_server.app import open_parts
from pool_server.database.records import SiteRecord
from pool_server.http.identity import Caller
from pool_server.registry.endpoints import list_models
from pool_server.wire.models import ModelQuery
from tests.pool_server.conftest import OpenPool
from tests.pool_server.model_files import detector_bytes, network_bytes
from tests.pool_server.pool_driver import PoolDriver, error_of, pages_of, upload
from tests.pool_server.statements import recorded_statements

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
        upload(lab_b, "lab_b/gaze", network_bytes(4), labels={"population": "adult"})
        upload(lab_b, "lab_b/gaze", network_bytes(5))
        yield pool


def found(pool: PoolDriver, **query: Any) -> list[str]:
    pages = pages_of(pool.admin, "/api/v1/models", **query)
    items = [item for page in pages for item in page["items"]]
    return [f"{item['site']}/{item['name']}@{item['version']}" for item in items]


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


def test_mergeable_with_a_digest(shelf: PoolDriver) -> None:
    version = shelf.admin.get("/api/v1/models/lab-a/faces/versions/1").json()
    assert found(shelf, mergeable_with=f"sha256:{version['digest']}") == ["lab_b/faces@1"]
    unknown = shelf.admin.get("/api/v1/models", params={"mergeable_with": "sha256:" + "0" * 64})
    assert error_of(unknown) == (404, "version_not_found")


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
def test_invalid_filters_are_refused(shelf: PoolDriver, query: dict[str, Any]) -> None:
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
    for limit in (1, 200):
        assert found(shelf, sort=sort, limit=limit) == expected


def test_a_cursor_is_valid_for_one_order_only(shelf: PoolDriver) -> None:
    first = shelf.admin.get("/api/v1/models", params={"limit": 1}).json()
    query = {"limit": 1, "sort": "name", "cursor": first["next_cursor"]}
    assert error_of(shelf.admin.get("/api/v1/models", params=query)) == (422, "invalid_query")


def facets(pool: PoolDriver, **query: Any) -> dict[str, Any]:
    answer = pool.admin.get("/api/v1/models/facets", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_facets_count_the_versions_of_a_listing(shelf: PoolDriver) -> None:
    assert facets(shelf) == {
        "counted": 5,
        "complete": True,
        "kinds": [{"value": "hog-svm", "count": 3}, {"value": "network", "count": 2}],
        "sites": [{"value": "lab_b", "count": 3}, {"value": "lab-a", "count": 2}],
        "states": [{"value": "available", "count": 5}],
        "labels": {
            "population": [{"value": "adult", "count": 2}, {"value": "infant", "count": 2}],
            "camera": [{"value": "100%_dark", "count": 1}],
        },
    }


@pytest.mark.parametrize(
    "query",
    [{"label": "population=infant"}, {"mergeable_with": "lab-a/faces@1"}, {"latest": "true"}],
    ids=str,
)
def test_facets_are_narrowed_like_the_listing(shelf: PoolDriver, query: dict[str, Any]) -> None:
    listed = shelf.admin.get("/api/v1/models", params=query).json()["items"]
    counted = facets(shelf, **query)
    assert counted["counted"] == len(listed)
    assert {facet["value"]: facet["count"] for facet in counted["sites"]} == Counter(
        version["site"] for version in listed
    )


def test_references_to_versions(shelf: PoolDriver) -> None:
    address = "/api/v1/models/lab_b/gaze/versions"
    newest = shelf.admin.get(f"{address}/latest").json()
    assert newest["version"] == 2
    assert shelf.admin.get(f"{address}/2").json() == newest
    assert shelf.admin.get(f"{address}/sha256:{newest['digest']}").json() == newest
    assert error_of(shelf.admin.get(f"{address}/3")) == (404, "version_not_found")
    assert error_of(shelf.admin.get(f"{address}/-1")) == (422, "invalid_query")
    assert error_of(shelf.admin.get("/api/v1/models/lab_b/none")) == (404, "model_not_found")
    assert [
        item["version"] for item in shelf.admin.get("/api/v1/models/lab_b/gaze").json()["items"]
    ] == [2, 1]


def test_the_number_of_queries_does_not_grow_with_rows(shelf: PoolDriver, tmp_path: Path) -> None:
    parts = open_parts(shelf.settings)
    counts = []
    for limit in (1, 5):
        query = ModelQuery(
            label=["population"], metric=["recall>0"], mergeable_with="lab-a/faces@1", limit=limit
        )
        with (
            parts.database.read() as session,
            recorded_statements(parts.database.engine) as statements,
        ):
            site = session.scalars(select(SiteRecord).where(SiteRecord.name == "lab-a")).one()
            caller = Caller("t", "test", site.id, "lab-a", "viewer", None)
            statements.clear()
            list_models(caller, session, query)
            with_filters = len(statements)
            statements.clear()
            page = list_models(caller, session, ModelQuery(limit=limit))
        counts.append((with_filters, len(statements)))
    parts.database.close()
    assert "DUO:0000042" in {term.code for item in page.items for term in item.terms}
    # Where a page is not full at once, the finder makes up to three more queries.
    assert all(abs(many - few) <= 3 for few, many in zip(*counts, strict=True)), counts
    assert counts[1][1] <= 16, counts


def test_pages_have_no_gaps_while_versions_are_added(pool: PoolDriver) -> None:
    lab = pool.member("lab-p")
    before = [f"lab-p/m{upload(lab, 'lab-p/m')['version']}" for _ in range(4)][::-1]
    seen: list[str] = []
    cursor = None
    while True:
        query = {"site": "lab-p", "limit": 2} | ({"cursor": cursor} if cursor else {})
        page = pool.admin.get("/api/v1/models", params=query).json()
        seen += [f"lab-p/m{item['version']}" for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        upload(lab, "lab-p/m")
    assert seen == before
