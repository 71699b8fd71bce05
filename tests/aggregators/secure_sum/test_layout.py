"""Encoding contributions: exact sums, means as the plain methods combine them, refusals."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregators.errors import ConversionError, IncompatibleModelsError, OptionError
from aggregators.methods.leaf_refit import mean_change
from aggregators.models import LeafContribution, NetworkContribution, StateDict, TensorInfo
from aggregators.secure_sum.layout import (
    BitBudget,
    SumLayout,
    combine_leaves,
    combine_network,
    decode_sum,
    encode,
    encode_leaves,
    encode_network,
    leaf_presence_layout,
    leaf_sums_layout,
    network_layout,
)
from aggregators.secure_sum.sharing import UInt64, add_to

_BUDGET = BitBudget()


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_sums_decode_to_the_weighted_mean(labs: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = generator.uniform(-256, 256, (labs, 2, 5))
    weights = generator.integers(1, 2**16, (labs, 2), endpoint=True)
    values[0, 0, 0], weights[0, 0] = -256, 2**16
    total = encode(values[0], weights[0], _BUDGET)
    for lab in range(1, labs):
        add_to(total, encode(values[lab], weights[lab], _BUDGET))
    mean, sums = decode_sum(total, 2, labs, _BUDGET)
    assert sums.tolist() == weights.sum(axis=0).tolist()
    expected = (values * weights[:, :, np.newaxis]).sum(axis=0) / sums[:, np.newaxis]
    assert np.abs(mean - expected).max() <= 1e-7


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf, 256.001, -1e30])
def test_values_out_of_range_are_refused_by_name(wrong: float) -> None:
    values = np.zeros((1, 5))
    values[0, 3] = wrong
    with pytest.raises(ConversionError, match=r"^entry d: found .*expected .* at most 256$"):
        encode(values, np.array([1]), _BUDGET, lambda index: f"entry {'abcde'[index]}")


@pytest.mark.parametrize("weight", [-1, 2**16 + 1])
def test_weights_out_of_range_are_refused(weight: int) -> None:
    with pytest.raises(ConversionError, match=f"found {weight}, expected 0 to 65536"):
        encode(np.zeros((1, 2)), np.array([weight]), _BUDGET)


def test_impossible_sums_are_refused() -> None:
    good = encode(np.full((1, 2), 256.0), np.array([3]), _BUDGET)
    assert decode_sum(good, 1, 1, _BUDGET)[0].tolist() == [[256.0, 256.0]]
    for place, value in ((0, int(good[0]) + 2), (2, 0), (2, 2**16 + 1), (2, 2**61 - 2)):
        wrong = good.copy()
        wrong[place] = value
        with pytest.raises(ValueError, match="sum"):
            decode_sum(wrong, 1, 1, _BUDGET)


def test_a_budget_beyond_the_field_is_refused() -> None:
    with pytest.raises(OptionError, match="at most 59"):
        BitBudget(fraction=26)


_DIGEST = "ab" * 32


def _network(seed: int) -> StateDict:
    generator = np.random.default_rng(seed)
    tensors: dict[str, Any] = {
        "b.weight": generator.normal(size=(3, 2)).astype(np.float32),
        "a.bias": generator.normal(size=4).astype(np.float64),
        "bn.num_batches_tracked": np.array(seed, dtype=np.int64),
        "empty": np.zeros((0, 3), dtype=np.float32),
    }
    names = {"float32": "F32", "float64": "F64", "int64": "I64"}
    infos = {name: TensorInfo(names[str(x.dtype)], x.shape) for name, x in tensors.items()}
    return StateDict(tensors, infos)


def _sum(encoded: list[UInt64]) -> UInt64:
    total = encoded[0].copy()
    for vector in encoded[1:]:
        add_to(total, vector)
    return total


@pytest.mark.parametrize("holds", ["values", "differences"])
def test_a_network_sum_is_the_mean_difference(holds: str) -> None:
    base = _network(7)
    layout = SumLayout.model_validate_json(network_layout(base, _DIGEST).model_dump_json())
    assert (layout.shape, layout.size) == ((1, 10), 11)
    labs = [NetworkContribution(_network(n), holds, n + 1, _DIGEST) for n in range(3)]
    total = _sum([encode_network(layout, lab, base, _BUDGET) for lab in labs])
    mean, weights = decode_sum(total, 1, 3, _BUDGET)
    combined = combine_network(layout, mean, int(weights[0]), {"labs": 3})
    assert (combined.samples, combined.holds, combined.base_digest) == (6, "differences", _DIGEST)
    for name in ("b.weight", "a.bias"):
        origin = base.tensors[name] if holds == "values" else 0.0
        expected = sum((n + 1) * (lab.network.tensors[name] - origin) for n, lab in enumerate(labs))
        assert combined.network.tensors[name].dtype == base.tensors[name].dtype
        assert np.abs(combined.network.tensors[name] - expected / 6).max() < 2e-7
    assert combined.network.tensors["bn.num_batches_tracked"] == 7
    assert combined.network.tensors["empty"].shape == (0, 3)


def test_what_does_not_fit_is_refused_by_name() -> None:
    base = _network(7)
    layout = network_layout(base, _DIGEST)
    wrong = _network(1)
    wrong.tensors["b.weight"][2, 0] = np.nan  # type: ignore[index]
    lab = NetworkContribution(wrong, "values", 5, _DIGEST)
    with pytest.raises(ConversionError, match=r"entry 'b\.weight', difference 4: found nan"):
        encode_network(layout, lab, base, _BUDGET)
    with pytest.raises(IncompatibleModelsError, match="base"):
        encode_network(layout, replace(lab, base_digest="cd" * 32), base, _BUDGET)
    with pytest.raises(ConversionError, match="found 65537, expected 0 to 65536"):
        encode_network(layout, replace(lab, network=base, samples=65537), base, _BUDGET)


def test_leaf_sums_equal_the_plain_mean_where_three_labs_reach() -> None:
    generator = np.random.default_rng(1)
    labs = []
    for _ in range(5):
        counts = generator.integers(0, 9, 40) * (generator.random(40) < 0.5)
        changes = generator.normal(0, 0.01, (40, 6, 2)) * (counts > 0)[:, np.newaxis, np.newaxis]
        labs.append(
            LeafContribution(changes.astype(np.float32), counts.astype(np.uint32), _DIGEST, {})
        )
    presence = leaf_presence_layout(labs[0])
    total = _sum([encode_leaves(presence, lab, _BUDGET) for lab in labs])
    reached = decode_sum(total, 40, 5, _BUDGET)[1]
    assert reached.tolist() == [
        sum(int(lab.counts[leaf] > 0) for lab in labs) for leaf in range(40)
    ]
    layout = leaf_sums_layout(presence, reached, 3)
    groups = int((reached >= 3).sum())
    assert 0 < groups < 40
    total = _sum([encode_leaves(layout, lab, _BUDGET) for lab in labs])
    combined = combine_leaves(layout, *decode_sum(total, groups, 5, _BUDGET))
    expected = mean_change([(lab.changes, lab.counts.astype(np.float64)) for lab in labs])
    expected[reached < 3] = 0
    assert np.abs(combined.changes - expected).max() < 1e-7
    assert (
        combined.counts.tolist()
        == (sum(lab.counts.astype(int) for lab in labs) * (reached >= 3)).tolist()
    )
    assert layout.digest != presence.digest
    with pytest.raises(IncompatibleModelsError, match="labs per leaf"):
        leaf_sums_layout(presence, reached, 6)
