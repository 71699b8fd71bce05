"""The robust methods: their arithmetic, their limits, and contributions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators import METHODS, encode_model, merge, write_model
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


@pytest.mark.parametrize("size", [1e3, 1e30, 1e150, 1e300])
def test_fewer_than_half_of_the_sites_move_a_geometric_median_so_far(size: float) -> None:
    honest = ROWS[:5]
    centre = merged_row("geometric-median", honest)
    spread = np.linalg.norm(honest - centre, axis=1).max()
    for hostile in (size * ROWS[5:9], np.full((4, 40), -size)):
        result = merged_row("geometric-median", np.concatenate([honest, hostile]))
        # The bound of Lopuhaa and Rousseeuw for a share of 4/9: 2 (1 - 4/9) / (1 - 8/9) = 10.
        assert np.linalg.norm(result - centre) <= 10 * spread


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
        wanted = results[0].tensors[name]
        np.testing.assert_allclose(results[1].tensors[name], wanted, rtol=1e-5)
        if method != "norm-clip":
            np.testing.assert_allclose(plain.tensors[name], wanted, rtol=1e-6)
