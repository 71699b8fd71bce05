"""The server optimisers: their arithmetic, their state, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators import encode_model, merge, read_model
from aggregators.errors import AggregatorError, IncompatibleModelsError
from aggregators.methods.networks import state_path
from aggregators.models import Model, NetworkContribution, OptimiserState, StateDict
from tests.aggregators.methods.networks.small_rounds import contribute, make_base, write_base

METHODS = ("fedavgm", "fedadam", "fedyogi", "fedadagrad")


def tensors_of(model: Model) -> Mapping[str, np.ndarray[Any, Any]]:
    assert isinstance(model, StateDict)
    return model.tensors


def nearby(base: Model, seed: int) -> StateDict:
    """Return what a site might have trained from a base."""
    assert isinstance(base, StateDict)
    noise = make_base(seed).tensors
    tensors = {
        name: each if each.dtype == np.int64 else 0.9 * each + 0.1 * noise[name]
        for name, each in base.tensors.items()
    }
    return StateDict(tensors, base.infos)


def trained(site: int, round_number: int, base: Path) -> Path:
    """Write a site's contribution."""
    return contribute(base, site, nearby(read_model(base), 100 * round_number + site))


def steps_by_hand(
    method: str, weight: np.ndarray[Any, Any], rounds: list[list[np.ndarray[Any, Any]]]
) -> np.ndarray[Any, Any]:
    """Follow the published formulas; `rounds` has what each site has trained."""
    first, second, third = rounds[0]
    # The only entry that is stepped; statistics are averaged.
    tau = 0.5 * np.sqrt(np.mean(((1 * first + 2 * second + 3 * third) / 6 - weight) ** 2))
    m, v = np.zeros_like(weight), np.full_like(weight, tau * tau)
    for first, second, third in rounds:
        delta = (1 * first + 2 * second + 3 * third) / 6 - weight
        if method == "fedavgm":
            m = 0.8 * m + delta
            weight = weight + 0.5 * m
            continue
        m = 0.85 * m + 0.15 * delta
        if method == "fedadam":
            v = 0.97 * v + 0.03 * delta**2
        elif method == "fedyogi":
            v = v - 0.03 * delta**2 * np.sign(v - delta**2)
        else:
            v = v + delta**2
        weight = weight + 0.03 * m / (np.sqrt(v) + tau)
    return weight


@pytest.mark.parametrize("method", METHODS)
def test_fifty_rounds_follow_the_published_formulas(method: str) -> None:
    options: dict[str, Any] = {"eta": 0.03, "beta1": 0.85, "tau": 0.5}
    if method in ("fedadam", "fedyogi"):
        options["beta2"] = 0.97
    if method == "fedavgm":
        options = {"eta": 0.5, "beta": 0.8}
    base: Model = make_base()
    state: list[OptimiserState] = []
    rounds = []
    for number in range(1, 51):
        digest = sha256(encode_model(base)).hexdigest()
        networks = [nearby(base, 100 * number + site) for site in range(3)]
        sent = [
            NetworkContribution(network, "values", site, digest)
            for site, network in enumerate(networks, start=1)
        ]
        rounds.append([np.asarray(network.tensors["conv.weight"]) for network in networks])
        result = merge(method, [base, *state, *sent], options=options)
        assert bool(result.warnings) == (number == 1)
        assert result.state is not None
        base, state = result.model, [result.state]
    expected = steps_by_hand(method, np.asarray(make_base().tensors["conv.weight"]), rounds)
    np.testing.assert_allclose(tensors_of(base)["conv.weight"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", ["fedadam", "fedyogi", "fedadagrad"])
def test_updates_of_any_size_make_steps_of_one_size(method: str, tmp_path: Path) -> None:
    """As tau is relative: above the updates it would be the divisor, and nothing would adapt."""
    steps = []
    for size in (1.0, 1e-6):
        base = write_base(tmp_path)
        far = make_base(1)
        near = {
            name: each if each.dtype.kind == "i" else old + size * (each - old)
            for (name, each), old in zip(
                far.tensors.items(), make_base().tensors.values(), strict=True
            )
        }
        sent = contribute(base, 1, StateDict(near, far.infos))
        result = tensors_of(merge(method, [base, sent]).model)
        steps.append(result["conv.weight"] - make_base().tensors["conv.weight"])
    np.testing.assert_allclose(steps[0], steps[1], rtol=1e-6)


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    sent = trained(1, 1, base)
    result = tmp_path / "1.safetensors"
    merge("fedadam", [base, sent], output=result)
    state, later = state_path(result), trained(1, 2, result)
    broken = make_base(7)
    broken.tensors["conv.weight"][1] = np.inf
    refused: list[tuple[str, list[Path], str]] = [
        ("fedyogi", [result, state, later], "method fedyogi against fedadam"),
        ("fedadam", [base, state, sent], "state that was written beside the base"),
        ("fedadam", [result, state, sent], r"base \w+ against \w+ .*the site trained from"),
        ("fedadam", [result, state], "number of contributions"),
        ("fedadam", [sent, state], "number of networks 1, the base against 0"),
        ("fedadam", [base, result, sent], "number of networks 1, the base against 2"),
        ("fedavg", [result, state, later], "optimiser state, and this method merges"),
        ("fedadam", [base, contribute(base, 7, broken)], r"NaN.*7.contribution.*diverged"),
    ]
    for method, inputs, message in refused:
        with pytest.raises(IncompatibleModelsError, match=message):
            merge(method, inputs, output=tmp_path / "refused")
    with pytest.raises(AggregatorError, match="is one of the inputs"):
        merge("fedadam", [result, state, later], output=result)
