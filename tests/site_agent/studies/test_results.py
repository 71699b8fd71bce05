"""The SQL of protocols beyond SQLite: aggregates, labels and settings."""

import math
from typing import Any

import pytest

from site_agent.studies.results import Results
from tests.site_agent.studies.drawn_results import results_of


def ask(expression: str, values: list[Any]) -> Any:
    rows = [{"shots": number, "error_deg": value} for number, value in enumerate(values)]
    results: Results = results_of("cross-encoder", tested=rows)
    _, ((answer,),) = results.query(f"SELECT {expression} FROM tested")
    return answer


@pytest.mark.parametrize(
    ("expression", "values", "expected"),
    [
        ("mean(error_deg)", [1.0, None, 2.0, 3.0], 2),
        ("mean(error_deg)", [None], None),
        ("mean(coalesce(error_deg, 9e999))", [1.0, None], math.inf),
        ("sd(error_deg)", [1.0, 2.0, 3.0], 1),
        ("half(error_deg)", [1.0, 2.0, 3.0], 4.303 / math.sqrt(3)),
        ("half(error_deg)", [1.0], None),
        ("low(error_deg)", [2.0, 2.0], 2),
        ("high(error_deg, -shots) > mean(error_deg)", [1.0, 2.0, 3.0], 1),
        ("percent(error_deg)", [0.0, 1 / 3], "17 % (0 to 33)"),
        ("percent(error_deg)", [1.0, 1.0], "100 %"),
        ("label('pca') || place('pca') || label('new')", [0.0], "PCA-126new"),
        (":draws", [0.0], 5),
    ],
)
def test_aggregates_labels_and_settings(expression: str, values: list[Any], expected: Any) -> None:
    answer = ask(expression, values)
    assert answer == (expected if isinstance(expected, str | None) else pytest.approx(expected))
