"""The robust methods: their arithmetic, their limits, and contributions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators import METHODS, encode_model, merge, write_model
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


def test_a_geometric_median_has_the_smallest_sum_of_distances() -> None:
    rows = np.concatenate([ROWS, 5 + 30 * ROWS[:3]])
    median = merged_row("geometric-median", rows)

    def distances(point: np.ndarray[Any, Any]) -> float:
        return float(np.linalg.norm(rows - point, axis=1).sum())

    # At the minimum the unit vectors towards the updates cancel out.
    towards = (rows - median) / np.linalg.norm(rows - median, axis=1)[:, np.newaxis]
    assert np.linalg.norm(towards.sum(axis=0)) < 1e-8
    others = [*rows, rows.mean(axis=0), np.median(rows, axis=0), median + 1e-3 * ROWS[0]]
    assert all(distances(median) < distances(other) for other in others)


def test_a_geometric_median_of_few_updates() -> None:
    first, second, third = ROWS[:3]
    two = merged_row("geometric-median", np.array([first, second]))
    np.testing.assert_allclose(two, (first + second) / 2, rtol=1e-12)
    # More than half are equal: it is that update, to the last bit.
    equal = merged_row("geometric-median", np.array([first, second, first, 1e9 * third, first]))
    np.testing.assert_array_equal(equal, first)
    # At corners of an equilateral triangle, and in its middle.
    corners = np.eye(3)
    np.testing.assert_allclose(merged_row("geometric-median", corners), 1 / 3, rtol=1e-9)
    line = merged_row("geometric-median", np.array([[0.0], [1.0], [3.0], [1e6], [-1e6]]))
    np.testing.assert_allclose(line, 1, atol=1e-4)


@pytest.mark.parametrize("size", [1e3, 1e30, 1e150, 1e300])
def test_fewer_than_half_of_the_sites_move_a_geometric_median_so_far(size: float) -> None:
    honest = ROWS[:5]
    centre = merged_row("geometric-median", honest)
    spread = np.linalg.norm(honest - centre, axis=1).max()
    for hostile in (size * ROWS[5:9], np.full((4, 40), -size)):
        result = merged_row("geometric-median", np.concatenate([honest, hostile]))
        # The bound of Lopuhaa and Rousseeuw for a share of 4/9: 2 (1 - 4/9) / (1 - 8/9) = 10.
        assert np.linalg.norm(result - centre) <= 10 * spread


def test_smoothing_leads_a_geometric_median_to_the_mean() -> None:
    rows = np.concatenate([ROWS[:6], 1.2 * ROWS[6:]])
    mean = rows.mean(axis=0)
    apart = [
        np.linalg.norm(merged_row("geometric-median", rows, smoothing=smoothing) - mean)
        for smoothing in (1e-6, 0.7, 1.0)
    ]
    assert apart[0] > apart[1] > apart[2]


def test_a_geometric_median_reads_networks_in_blocks(tmp_path: Path) -> None:
    import tracemalloc

    numbers = 1 << 20
    paths = []
    for site in range(5):
        row = np.random.default_rng(site).normal(size=numbers)
        paths.append(tmp_path / f"{site}.safetensors")
        write_model(one_row(row), paths[-1])
    tracemalloc.start()
    merge("geometric-median", paths, output=tmp_path / "merged.safetensors")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The result's one entry (8 MiB) and blocks of all sites; the sites together have 40 MiB.
    assert peak_bytes < 24 * (1 << 20)


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
