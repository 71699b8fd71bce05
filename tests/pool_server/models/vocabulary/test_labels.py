"""The core vocabulary: keys that mean the same everywhere, beside free ones."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from pool_server.wire.labels import CORE_LABELS
from pool_server.wire.names import LabelKey, LabelValue
from tests.pool_server.model_files import network_bytes
from tests.pool_server.pool_driver import PoolDriver, announce, error_of


@pytest.mark.parametrize("label", CORE_LABELS, ids=lambda each: each.key)
def test_each_key_takes_its_own_example_and_says_what_it_expects(label: object) -> None:
    core = next(each for each in CORE_LABELS if each == label)
    TypeAdapter(LabelKey).validate_python(core.key)
    for value in (core.example, *core.values):
        TypeAdapter(LabelValue).validate_python(value)
        assert core.takes(value)
    assert core.expects()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"population": "babies"}, "one of infant, child"),
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
