"""The files of network contributions: what they hold, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators import read_model, write_model
from aggregators.errors import ConversionError, FormatError, UnknownFormatError
from aggregators.methods.networks import read_network_contribution, write_network_contribution
from aggregators.methods.networks.round_files import contribution_as_network
from aggregators.models import NetworkContribution, StateDict
from tests.aggregators.methods.networks.small_rounds import make_base

MADE = NetworkContribution(make_base(), "differences", 120, "ab" * 32, {"epochs": 2, "rate": 1e-3})


def test_a_contribution_comes_back(tmp_path: Path) -> None:
    write_network_contribution(MADE, tmp_path / "a.contribution")
    found = read_network_contribution(tmp_path / "a.contribution")
    assert (found.holds, found.samples, found.base_digest) == ("differences", 120, "ab" * 32)
    assert found.settings == MADE.settings
    for name, values in MADE.network.tensors.items():
        np.testing.assert_array_equal(found.network.tensors[name], values)


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
