"""The core vocabulary: keys with a fixed meaning, and free ones next to them."""

import pytest
from pydantic import TypeAdapter

from pool_server.wire.labels import CORE_LABELS, VOCABULARY, VocabularyResponse
from pool_server.wire.names import LabelKey, LabelValue
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload


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
