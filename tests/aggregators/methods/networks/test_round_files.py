"""The files of network contributions: their content, their refusal, and checks for rounds."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators import read_model, write_model
from aggregators.errors import (
    ContributionError,
    ConversionError,
    FormatError,
    IncompatibleModelsError,
    UnknownFormatError,
)
from aggregators.methods.networks import read_network_contribution, write_network_contribution
from aggregators.methods.networks.round_files import (
    check_network_contribution,
    contribution_as_network,
)
from aggregators.models import NetworkContribution, StateDict, TensorInfo
from tests.aggregators.methods.networks.small_rounds import make_base

MADE = NetworkContribution(make_base(), "differences", 120, "ab" * 32, {"epochs": 2, "rate": 1e-3})


def test_a_contribution_comes_back(tmp_path: Path) -> None:
    write_network_contribution(MADE, tmp_path / "a.contribution")
    contribution = read_network_contribution(tmp_path / "a.contribution")
    assert (contribution.holds, contribution.samples, contribution.base_digest) == (
        "differences",
        120,
        "ab" * 32,
    )
    assert contribution.settings == MADE.settings
    for name, values in MADE.network.tensors.items():
        np.testing.assert_array_equal(contribution.network.tensors[name], values)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"version": "2"}, "metadata version"),
        ({"base": "AB" * 32}, "metadata base"),
        ({"holds": "gradients"}, "metadata holds"),
        ({"samples": "0"}, "metadata samples"),
        ({"samples": "1e3"}, "metadata samples"),
        ({"samples": "٣"}, "metadata samples"),
        ({"samples": "9" * 16}, "metadata samples"),
        ({"settings": "[1]"}, "metadata settings"),
        ({"settings": '{"rate": NaN}'}, "metadata settings"),
        ({"settings": '{"a": {"b": 1}}'}, "settings 'a'"),
        ({"colour": "red"}, "metadata 'colour'"),
    ],
)
def test_invalid_metadata_are_refused(changes: dict[str, str], field: str, tmp_path: Path) -> None:
    whole = contribution_as_network(MADE)
    path = tmp_path / "odd.contribution"
    write_model(
        StateDict(whole.tensors, whole.infos, {**whole.metadata, **changes}),
        path,
        format_name="safetensors",
    )
    with pytest.raises(FormatError, match=r"odd\.contribution") as caught:
        read_network_contribution(path)
    assert caught.value.what == field


@pytest.mark.parametrize("changes", [{"samples": 0}, {"base_digest": ""}, {"settings": {"a": []}}])
def test_what_could_not_be_read_is_not_written(changes: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="expected"):
        write_network_contribution(replace(MADE, **changes), tmp_path / "a.contribution")
    assert list(tmp_path.iterdir()) == []


def test_a_contribution_is_no_network(tmp_path: Path) -> None:
    write_network_contribution(MADE, tmp_path / "a.safetensors")
    with pytest.raises(UnknownFormatError, match="found a network contribution"):
        read_model(tmp_path / "a.safetensors")


_DIGEST, _SETTINGS = "ab" * 32, {"epochs": 1}


def _network(**tensors: Any) -> StateDict:
    arrays = {name: np.asarray(values) for name, values in tensors.items()}
    names = {"float32": "F32", "int64": "I64"}
    infos = {
        name: TensorInfo(names[str(array.dtype)], array.shape) for name, array in arrays.items()
    }
    return StateDict(arrays, infos)


def _check(change: Callable[[dict[str, Any]], None], **other: Any) -> None:
    base = {
        "weight": np.float32([[1, 2], [3, 4]]),
        "bn.running_var": np.float32([1e-3, 2]),
        "bn.num_batches_tracked": np.int64(7),
    }
    difference = {name: np.full_like(values, 1e-4) for name, values in base.items()}
    change(difference)
    fields: dict[str, Any] = {
        "holds": "differences", "samples": 5, "base_digest": _DIGEST, "settings": _SETTINGS,
    }  # fmt: skip
    contribution = NetworkContribution(network=_network(**difference), **(fields | other))
    check_network_contribution(
        contribution, _network(**base), base_digest=_DIGEST, settings=_SETTINGS
    )


def _set(name: str, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda tensors: tensors[name].reshape(-1).__setitem__(0, value)


def test_a_trained_difference_passes() -> None:
    _check(lambda _: None)
    # Rounding: a variance that vanished.
    _check(_set("bn.running_var", -1e-3 * (1 + 1e-6)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("weight", np.nan), "'weight' .F32. holds infinities or NaN"),
        (_set("weight", np.inf), "holds infinities or NaN"),
        (_set("weight", -3e38), "changes by 3e.38, expected at most 1e.06"),
        (_set("bn.running_var", -0.5), "'bn.running_var' would become -0.499"),
        (lambda tensors: [tensor.fill(0) for tensor in tensors.values()], "every difference is 0"),
        (lambda tensors: [x.fill(1e-40) for x in tensors.values()], "or lost next to the base"),
    ],
)
def test_numbers_that_no_network_can_have_are_refused(
    change: Callable[[dict[str, Any]], None], message: str
) -> None:
    with pytest.raises(ContributionError, match=message):
        _check(change)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"base_digest": "cd" * 32}, "another base: found cdcdcdcdcdcdcdcd"),
        ({"settings": {"epochs": 2}}, "epochs 2, the round asks for 1"),
        ({"holds": "values"}, "holds values, expected differences"),
    ],
)
def test_contributions_to_other_rounds_are_refused(other: dict[str, Any], message: str) -> None:
    with pytest.raises(ContributionError, match=message):
        _check(lambda _: None, **other)


def test_other_entries_are_refused() -> None:
    with pytest.raises(IncompatibleModelsError, match="entry 'weight'"):
        _check(lambda tensors: tensors.update(weight=np.float32([1, 2])))
