"""Descriptions, labels and metrics of versions, by their owners."""

from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from pool_server.wire.labels import CORE_LABELS, VOCABULARY, VocabularyResponse
from pool_server.wire.names import LabelKey, LabelValue
from pool_server.wire.signatures.keys import Envelope, PrivateKey
from pool_server.wire.signatures.statements import open_statement
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload
from tests.pool_server.signatures.signers import register, signed, statement_of, upload_signed

KEY = PrivateKey.from_seed(b"c" * 32)


def path_of(version: dict[str, Any], what: str) -> str:
    return f"/api/v1/models/{version['site']}/{version['name']}/versions/1/{what}"


def change(client: httpx.Client, version: dict[str, Any], **said: Any) -> httpx.Response:
    return client.put(path_of(version, "description"), json=said)


def events_of(client: httpx.Client, kind: str, subject: str) -> list[dict[str, Any]]:
    items = client.get("/api/v1/events", params={"kind": kind, "limit": 200}).json()["items"]
    return [item["details"] for item in items if item["subject"] == subject]


def found_by(pool: PoolDriver, **query: str) -> list[str]:
    items = pool.member("changes").get("/api/v1/models", params=query).json()["items"]
    return [item["name"] for item in items]


def test_an_owner_corrects_a_version(pool: PoolDriver) -> None:
    owner, reader = pool.member("changes"), pool.member("changes-reader")
    labels = {"popluation": "infant", "parts": "68"}
    version = upload(owner, "changes/face", labels=labels, metrics={"error": 0.7})
    assert reader.get(path_of(version, "content")).status_code == 200
    right = {
        "labels": {"population": "infant", "parts": "68"},
        "metrics": {"error": 0.07},
        "description": "Hose in view",
    }
    assert error_of(change(reader, version, **right))[0] == 403
    bad = change(owner, version, labels={"population": "babies"})
    assert error_of(bad) == (422, "labels_refused")
    after = change(owner, version, **right).json()
    assert {name: after[name] for name in right} == right
    assert after["digest"] == version["digest"]
    assert found_by(pool, site="changes", label="population=infant") == ["face"]
    assert found_by(pool, site="changes", label="popluation") == []
    assert found_by(pool, site="changes", text="hose") == ["face"]
    [heard] = events_of(reader, "version.changed", "pool://changes/face@1")
    assert "label population: None -> infant" in heard["changes"]
    assert change(owner, version, **right).status_code == 200, "again changes nothing"
    entries = pool.member("changes", "admin").get(
        "/api/v1/audit", params={"action": "version.change", "subject": "changes/face@1"}
    )
    [entry] = entries.json()["items"]
    assert entry["details"]["changes"] == {
        "description": ["", "Hose in view"],
        "label popluation": ["infant", None],
        "label population": [None, "infant"],
        "metric error": [0.7, 0.07],
    }


def test_a_changed_version_must_be_signed_again(pool: PoolDriver) -> None:
    owner, name, content = pool.member("changes-signed"), "changes-signed/face", network_bytes()
    assert register(owner, "changes-signed", KEY).status_code == 201
    version = upload_signed(owner, name, KEY, content)
    old = signed(statement_of(name, content), KEY)
    text = "# Infants\n"
    said: dict[str, Any] = {}
    for place, body, stated in (
        ("description", {"description": "Infants"}, {"description": "Infants"}),
        ("card", {"text": text}, {"card_digest": sha256(text.encode())}),
    ):
        path = path_of(version, place)
        assert error_of(owner.put(path, json=body)) == (422, "signature_required")
        refused = owner.put(path, json={**body, "statement": old})
        assert error_of(refused) == (422, "statement_refused")
        said |= stated
        new = {**body, "statement": signed(statement_of(name, content, **said), KEY)}
        for _ in range(2):
            assert owner.put(path, json=new).status_code == 200
        old = new["statement"]
    assert owner.get(path_of(version, "card")).json()["source"] == text
    answer = owner.get(path_of(version, "statement")).json()
    statement = open_statement(Envelope.model_validate(answer["envelope"]), KEY.public)
    assert statement.predicate.description == "Infants"


def test_a_withdrawn_version_cannot_be_changed(pool: PoolDriver) -> None:
    owner = pool.member("changes")
    version = upload(owner, "changes/gone")
    owner.post(path_of(version, "withdraw"), json={"reason": "quality"})
    assert error_of(change(owner, version, description="Better")) == (409, "wrong_state")


def test_the_vocabulary_lists_only_visible_keys(pool: PoolDriver) -> None:
    owner = pool.member("changes")
    upload(owner, "changes/keyed", labels={"lens_mm": "12"})
    upload(owner, "changes/secret", labels={"secret_key": "1"}, visibility="private")
    known = pool.member("changes-reader").get("/api/v1/vocabulary").json()["keys_in_use"]
    assert "lens_mm" in known
    assert "secret_key" not in known
    assert "secret_key" in owner.get("/api/v1/vocabulary").json()["keys_in_use"]


def test_a_client_judges_labels_by_the_pools_vocabulary(pool: PoolDriver) -> None:
    answer = pool.member("words", "viewer").get("/api/v1/vocabulary")
    assert answer.status_code == 200
    received = VocabularyResponse.model_validate(answer.json())
    assert (received.labels, received.terms) == (VOCABULARY.labels, VOCABULARY.terms)
    assert received.problems_of({"population": "infant", "anything": "else"}) == []


def test_likely_misspellings_of_keys_are_questioned() -> None:
    known = VOCABULARY.model_copy(update={"keys_in_use": ["lens_mm", "popluation"]})
    near = {"popluation": "population", "image": "images", "lens_mn": "lens_mm"}
    assert {key: known.near_key(key) for key in near} == near
    assert [known.near_key(key) for key in ("population", "lens_mm", "hospital")] == [""] * 3


@pytest.mark.parametrize("label", CORE_LABELS, ids=lambda item: item.key)
def test_each_key_takes_its_own_example_and_says_what_it_expects(label: object) -> None:
    core = next(core_label for core_label in CORE_LABELS if core_label == label)
    TypeAdapter(LabelKey).validate_python(core.key)
    for value in (core.example, *core.values):
        TypeAdapter(LabelValue).validate_python(value)
        assert core.takes(value)
    assert core.expects()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"population": "babies"}, "one of infant, child"),
        ({"doi": "https://doi.org/10.5281/zenodo.1"}, "a DOI without https://doi.org/"),
        ({"images": "many"}, "a whole number of images"),
        ({"age_min_months": "nan"}, "a non-negative number of months"),
        ({"age_min_months": "9", "age_max_months": "4.5"}, "the youngest"),
    ],
    ids=str,
)
def test_wrong_values_of_core_keys_are_refused(
    pool: PoolDriver, labels: dict[str, str], expected: str
) -> None:
    refused = announce(pool.member("words"), "words/refused", network_bytes(), labels=labels)
    assert error_of(refused) == (422, "labels_refused")
    assert expected in refused.json()["error"]["message"]


def test_free_keys_accept_any_value(pool: PoolDriver) -> None:
    labels = {"study": "2026", "camera": "100%_dark", "images": "7"}
    assert upload(pool.member("words"), "words/free", labels=labels)["labels"] == labels
