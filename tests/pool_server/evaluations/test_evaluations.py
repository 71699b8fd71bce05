"""Evaluations: any site scores any model that it may see."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from pool_server import evaluations
from pool_server.app import open_parts
from pool_server.database.records import SiteRecord
from pool_server.http.identity import Caller
from pool_server.wire.evaluations import MatrixQuery
from tests.pool_server.model_files import detector_bytes
from tests.pool_server.pool_driver import PoolDriver, error_of, pages_of, pool_in_process, upload
from tests.pool_server.statements import recorded_statements

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
    return answer.json()


def cells(row: dict[str, Any]) -> list[tuple[str, str, float]]:
    return [(cell["site"], cell["dataset"], cell["value"]) for cell in row["cells"]]


def test_evaluations_are_listed_with_their_sites(pool: PoolDriver) -> None:
    home, other = pool.member("eval-a"), pool.member("eval-b")
    version = upload(home, "eval-a/face")
    posted = post(other, "eval-a/face", images=12, faces=13, split="test", protocol="strict")
    assert posted.status_code == 201, posted.text
    assert posted.json() | {"created_at": None, "evaluation_id": 0} == {
        "evaluation_id": 0, "digest": version["digest"], "site": "eval-b", "dataset": "ward",
        "dataset_digest": HERE, "split": "test", "protocol": "strict", "images": 12, "faces": 13,
        "scores": {"recall": {"value": 0.5, "low": 0.4, "high": 0.6}}, "created_at": None,
        "created_by": "eval-b/test-contributor",
    }  # fmt: skip
    assert post(home, f"sha256:{version['digest']}", 0.7).status_code == 201
    items = home.get("/api/v1/models/eval-a/face/versions/1/evaluations").json()["items"]
    assert [item["site"] for item in items] == ["eval-a", "eval-b"]


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
    assert [sorted(evaluation["scores"]) for evaluation in newest] == [
        ["f1"],
        ["recall"],
        ["recall"],
    ]
    paged = pages_of(home, address, limit=2)
    assert [len(page["items"]) for page in paged] == [2, 1]
    (row,) = matrix(home, model="eval-a/again@1")["rows"]
    # The last evaluation has no recall: the one before it still counts for that.
    assert sorted(cell["value"] for cell in row["cells"]) == [0.2, 0.3, 0.4]


@pytest.mark.both_databases
def test_the_matrix_is_models_by_sites(pool: PoolDriver) -> None:
    home, other = pool.member("eval-m"), pool.member("eval-n")
    upload(home, "eval-m/one", detector_bytes())
    upload(home, "eval-m/two")
    upload(home, "eval-m/unseen")
    post(home, "eval-m/one", 0.8)
    post(other, "eval-m/one", 0.6, dataset="clinic", dataset_digest=THERE)
    post(other, "eval-m/two", 0.9, protocol="strict")
    models = [f"eval-m/{name}@1" for name in ("one", "two", "unseen")]
    result = matrix(other, model=models)
    assert result["sites"] == ["eval-m", "eval-n"]
    assert [(row["address"], cells(row)) for row in result["rows"]] == [
        ("pool://eval-m/two@1", [("eval-n", "ward", 0.9)]),
        ("pool://eval-m/one@1", [("eval-m", "ward", 0.8), ("eval-n", "clinic", 0.6)]),
    ]
    filters: list[tuple[dict[str, Any], list[str]]] = [
        ({"kind": "hog-svm"}, ["one"]),
        ({"score": "precision"}, []),
        ({"model": ["eval-m/one@1", "pool://eval-m/unseen@1"]}, ["one"]),
    ]
    for query, expected in filters:
        rows = matrix(other, **({"model": models} | query))["rows"]
        assert [row["address"].split("/")[-1] for row in rows] == [f"{n}@1" for n in expected]
    refused = other.get("/api/v1/evaluations", params={"score": "recall", "model": "eval-m/one"})
    assert error_of(refused)[0] == 422
    # A filter that is no longer there must not give the scores of all data sets.
    refused = other.get(
        "/api/v1/evaluations", params={"score": "recall", "dataset_digest": "0" * 64}
    )
    assert error_of(refused) == (422, "invalid_request")
    assert "dataset_digest" in refused.json()["error"]["message"]
    one_by_one = pages_of(other, "/api/v1/evaluations", score="recall", model=models, limit=1)
    assert [len(page["rows"]) for page in one_by_one] == [1, 1]


def test_scores_of_hidden_models_are_hidden(pool: PoolDriver) -> None:
    home, other = pool.member("eval-a"), pool.member("eval-b")
    draft = upload(home, "eval-a/hidden", draft=True)
    for model in ("eval-a/hidden@1", "eval-a/hidden"):
        assert error_of(post(other, model)) == (404, "model_not_found")
    assert error_of(post(other, f"sha256:{draft['digest']}")) == (404, "version_not_found")
    assert post(home, "eval-a/hidden@1").status_code == 201
    assert matrix(home, model="eval-a/hidden@1")["rows"]
    assert matrix(other, model="eval-a/hidden@1")["rows"] == []


def test_a_digest_does_not_reveal_the_scores_of_a_private_copy(pool: PoolDriver) -> None:
    content = detector_bytes()
    upload(pool.member("eval-p"), "eval-p/private", content, visibility="private")
    assert post(pool.member("eval-p"), "eval-p/private").status_code == 201
    other = pool.member("eval-q")
    upload(other, "eval-q/same", content)
    assert post(other, "eval-q/same", 0.9).status_code == 201
    items = other.get("/api/v1/models/eval-q/same/versions/1/evaluations").json()["items"]
    assert [item["site"] for item in items] == ["eval-q"]
    [row] = matrix(other, model="eval-q/same@1")["rows"]
    assert cells(row) == [("eval-q", "ward", 0.9)]
    assert "eval-p" not in other.get("/api/v1/models/eval-q/same/versions/1/card").text
    kept = pool.member("eval-p").get("/api/v1/models/eval-p/private/versions/1/evaluations").json()
    assert [item["site"] for item in kept["items"]] == ["eval-q", "eval-p"]


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


def test_the_matrix_takes_a_fixed_number_of_queries(tmp_path: Path) -> None:
    with pool_in_process(tmp_path) as pool:
        home = pool.member("lab")
        for number in range(4):
            upload(home, f"lab/m{number}")
            for protocol in ("a", "b"):
                post(home, f"lab/m{number}", protocol=protocol)
        parts = open_parts(pool.settings)
        counts = []
        engine = parts.database.engine
        with parts.database.read() as session, recorded_statements(engine) as statements:
            site = session.scalars(select(SiteRecord).where(SiteRecord.name == "lab")).one()
            caller = Caller("t", "test", site.id, "lab", "viewer", None)
            for limit in (1, 4):
                statements.clear()
                result = evaluations.matrix(
                    caller, session, MatrixQuery(score="recall", limit=limit)
                )
                assert len(result.rows) == limit
                counts.append(len(statements))
        parts.database.close()
    assert counts == [2, 2]
