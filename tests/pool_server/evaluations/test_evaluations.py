"""Evaluations: any site scores any model that it may see."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.pool_server.model_files import detector_bytes
from tests.pool_server.pool_driver import PoolDriver, error_of, upload

HERE, THERE = "ab" * 32, "cd" * 32


def post(client: httpx.Client, model: str, value: float = 0.5, **fields: Any) -> httpx.Response:
    request = {
        "model": model,
        "dataset": "ward",
        "dataset_digest": HERE,
        "scores": {"recall": {"value": value, "low": value - 0.1, "high": value + 0.1}},
        **fields,
    }
    return client.post("/api/v1/evaluations", json=request)


def matrix(client: httpx.Client, **query: Any) -> dict[str, Any]:
    answer = client.get("/api/v1/evaluations", params={"score": "recall", **query})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def cells(row: dict[str, Any]) -> list[tuple[str, str, float]]:
    return [(each["site"], each["dataset"], each["value"]) for each in row["cells"]]


def test_the_newest_of_the_same_measurement_counts(pool: PoolDriver) -> None:
    home = pool.member("eval-a")
    upload(home, "eval-a/again")
    for value, fields in (
        (0.1, {}), (0.2, {}), (0.3, {"protocol": "strict"}), (0.4, {"dataset_digest": THERE}),
        (0.5, {"scores": {"f1": {"value": 0.5}}}),
    ):  # fmt: skip
        assert post(home, "eval-a/again", value, **fields).status_code == 201
    address = "/api/v1/models/eval-a/again/versions/1/evaluations"
    newest = home.get(address).json()["items"]
    assert [sorted(each["scores"]) for each in newest] == [["f1"], ["recall"], ["recall"]]
    history = [
        item
        for page in pages(home, address, {"history": "true", "limit": 2})
        for item in page["items"]
    ]
    assert len(history) == 5
    (row,) = matrix(home, name="again")["rows"]
    # The last evaluation has no recall: the one before it still counts for that.
    assert sorted(each["value"] for each in row["cells"]) == [0.2, 0.3, 0.4]


def pages(client: httpx.Client, address: str, query: dict[str, Any]) -> list[dict[str, Any]]:
    found = [client.get(address, params=query).json()]
    while cursor := found[-1]["next_cursor"]:
        found.append(client.get(address, params={**query, "cursor": cursor}).json())
    return found


@pytest.mark.both_databases
def test_the_matrix_is_models_by_sites(pool: PoolDriver) -> None:
    home, other = pool.member("eval-m"), pool.member("eval-n")
    upload(home, "eval-m/one", detector_bytes())
    upload(home, "eval-m/two")
    upload(home, "eval-m/unseen")
    post(home, "eval-m/one", 0.8)
    post(other, "eval-m/one", 0.6, dataset="clinic", dataset_digest=THERE)
    post(other, "eval-m/two", 0.9, protocol="strict")
    found = matrix(other, site="eval-m")
    assert found["sites"] == ["eval-m", "eval-n"]
    assert [(row["address"], cells(row)) for row in found["rows"]] == [
        ("pool://eval-m/two@1", [("eval-n", "ward", 0.9)]),
        ("pool://eval-m/one@1", [("eval-m", "ward", 0.8), ("eval-n", "clinic", 0.6)]),
    ]
    filters: list[tuple[dict[str, Any], list[str]]] = [
        ({"kind": "hog-svm"}, ["one"]),
        ({"measured_by": "eval-n"}, ["two", "one"]),
        ({"measured_by": "eval-m"}, ["one"]),
        ({"dataset_digest": THERE}, ["one"]),
        ({"protocol": "strict"}, ["two"]),
        ({"score": "precision"}, []),
        ({"name": "two"}, ["two"]),
        ({"model": ["eval-m/one@1", "pool://eval-m/unseen@1"]}, ["one"]),
    ]
    for query, expected in filters:
        rows = matrix(other, **({"site": "eval-m"} | query))["rows"]
        assert [row["address"].split("/")[-1] for row in rows] == [f"{n}@1" for n in expected]
    refused = other.get("/api/v1/evaluations", params={"score": "recall", "model": "eval-m/one"})
    assert error_of(refused)[0] == 422
    one_by_one = pages(
        other, "/api/v1/evaluations", {"score": "recall", "site": "eval-m", "limit": 1}
    )
    assert [len(page["rows"]) for page in one_by_one] == [1, 1]


@pytest.mark.parametrize(
    "fields",
    [
        {"dataset": "/data/patients/ward"},
        {"dataset": "a\nb"},
        {"scores": {"recall": {"value": 0.5, "low": 0.4}}},
        {"scores": {"recall": {"value": 0.5, "low": 0.6, "high": 0.4}}},
        {"per_image": [{"image": "a.png", "recall": 1}]},
    ],
    ids=str,
)
def test_scores_only(pool: PoolDriver, fields: dict[str, Any]) -> None:
    upload(pool.member("eval-a"), "eval-a/strict")
    refused = post(pool.member("eval-a"), "eval-a/strict", **fields)
    assert error_of(refused) == (422, "invalid_request")
