"""The robust methods: their arithmetic, their limits, and contributions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators import METHODS, encode_model, merge
from aggregators.errors import OptionError
from aggregators.models import StateDict
from tests.aggregators.methods.networks.small_rounds import (
    contribute,
    difference,
    make_base,
    write_base,
)
from tests.conformance.robust_methods import one_row

ROWS = np.random.default_rng(3).normal(size=(9, 40))


ROBUST = [name for name, method in METHODS.items() if method.needs_each and not method.personal]


def merged_row(method: str, rows: np.ndarray[Any, Any], **options: Any) -> np.ndarray[Any, Any]:
    model = merge(method, [one_row(row) for row in rows], options=options).model
    assert isinstance(model, StateDict)
    return np.asarray(model.tensors["w"])


def test_a_trimmed_mean_lies_between_mean_and_median() -> None:
    for rows in (ROWS, ROWS[:8]):
        np.testing.assert_allclose(merged_row("trimmed-mean", rows, trim=0.0), rows.mean(axis=0))
        for method, options in (("median", {}), ("trimmed-mean", {"trim": 0.5})):
            np.testing.assert_array_equal(
                merged_row(method, rows, **options), np.median(rows, axis=0)
            )
    np.testing.assert_allclose(
        merged_row("trimmed-mean", ROWS, trim=0.34), np.sort(ROWS, axis=0)[3:6].mean(axis=0)
    )


def test_a_trim_of_nobody_is_refused_in_rounds(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    made = [contribute(base, site, make_base(site + 1)) for site in range(4)]
    with pytest.raises(
        OptionError, match="none of 4 sites, which is the plain mean: it needs at least 5"
    ):
        merge("trimmed-mean", [base, *made])


@pytest.mark.parametrize("dropped", [0, 1, 2])
def test_each_parameter_stays_within_the_honest_range(dropped: int) -> None:
    honest = ROWS[:7]
    hostile = np.array([[1e300] * 40, [-1e300] * 40, [0.0] * 40])
    hostile[:dropped] = np.nan
    result = merged_row("trimmed-mean", np.concatenate([honest, hostile]), trim=0.3)
    assert (honest.min(axis=0) <= result).all()
    assert (result <= honest.max(axis=0)).all()


def test_krum_returns_the_input_that_the_definition_names() -> None:
    rows = np.concatenate([ROWS, 30 * ROWS[:2]])
    distances = ((rows[:, np.newaxis] - rows) ** 2).sum(axis=2)
    scores = [np.sort(np.delete(line, number))[: 11 - 2 - 2].sum() for number, line in
              enumerate(distances)]  # fmt: skip
    chosen = one_row(rows[int(np.argmin(scores))])
    models = [one_row(row) for row in rows]
    assert encode_model(merge("krum", models, options={"hostile": 2}).model) == encode_model(chosen)


@pytest.mark.parametrize(("sites", "hostile"), [(2, 0), (4, 1), (8, 3)])
def test_krum_refuses_too_few_sites(sites: int, hostile: int) -> None:
    with pytest.raises(OptionError, match=rf"found {sites} .* at least {2 * hostile + 3}"):
        merged_row("krum", ROWS[:sites], hostile=hostile)


def test_norm_clip_scales_large_updates_down() -> None:
    rows = ROWS[1:6] * np.array([[1], [2], [3], [4], [500]])
    norms = np.linalg.norm(rows, axis=1)
    scales = np.minimum(1, 1.5 * np.median(norms) / norms)
    np.testing.assert_allclose(
        merged_row("norm-clip", rows, limit=1.5), (rows * scales[:, np.newaxis]).mean(axis=0)
    )


@pytest.mark.parametrize("method", ROBUST)
def test_contributions_are_merged_by_their_difference_from_the_base(
    method: str, tmp_path: Path
) -> None:
    base, networks = make_base(0, "f4"), [make_base(seed, "f4") for seed in range(1, 6)]
    path = write_base(tmp_path, base)
    results = []
    for holds in ("values", "differences"):
        sent = [
            contribute(
                path,
                site,
                network if holds == "values" else difference(network, base),
                holds=holds,  # type: ignore[arg-type]
                samples=10**site,
            )
            for site, network in enumerate(networks)
        ]
        model = merge(method, [path, *sent]).model
        assert isinstance(model, StateDict)
        assert model.metadata == {"architecture": "small"}
        results.append(model)
    plain = merge(method, networks).model
    assert isinstance(plain, StateDict)
    for name in base.tensors:
        expected = results[0].tensors[name]
        np.testing.assert_allclose(results[1].tensors[name], expected, rtol=1e-5)
        if method != "norm-clip":
            np.testing.assert_allclose(plain.tensors[name], expected, rtol=1e-6)
