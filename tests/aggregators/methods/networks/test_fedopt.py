"""The server optimisers: their arithmetic, their state, and their errors."""

import itertools
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators import (
    encode_model,
    file_digest,
    merge,
    read_model,
    read_recipe,
    recipe_path,
    replay,
)
from aggregators.errors import AggregatorError, IncompatibleModelsError, RecipeError
from aggregators.methods.networks import state_path
from aggregators.models import Model, NetworkContribution, OptimiserState, StateDict, TensorInfo
from tests.aggregators.methods.networks.small_rounds import (
    contribute,
    difference,
    make_base,
    write_base,
)

ADAPTIVE = ("fedadam", "fedyogi", "fedadagrad")
METHODS = ("fedavgm", *ADAPTIVE)


def tensors_of(model: Model) -> Mapping[str, np.ndarray[Any, Any]]:
    assert isinstance(model, StateDict)
    return model.tensors


def nearby(base: Model, seed: int) -> StateDict:
    """Return a network that a site might have trained from a base."""
    assert isinstance(base, StateDict)
    noise = make_base(seed).tensors
    tensors = {
        name: tensor if tensor.dtype == np.int64 else 0.9 * tensor + 0.1 * noise[name]
        for name, tensor in base.tensors.items()
    }
    return StateDict(tensors, base.infos)


def trained(site: int, round_number: int, base: Path) -> Path:
    """Write a site's contribution."""
    return contribute(base, site, nearby(read_model(base), 100 * round_number + site))


def steps_by_hand(
    method: str, weight: np.ndarray[Any, Any], rounds: list[list[np.ndarray[Any, Any]]]
) -> np.ndarray[Any, Any]:
    """Follow the published formulas; `rounds` has each site's trained numbers."""
    first, second, third = rounds[0]
    # The only entry that is stepped; statistics are averaged.
    unit = np.sqrt(np.mean(((1 * first + 2 * second + 3 * third) / 6 - weight) ** 2))
    tau = 0.5 * unit
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
        weight = weight + 0.03 * unit * m / (np.sqrt(v) + tau)
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


def test_a_state_in_memory_gives_the_same_bytes_as_one_in_files(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    sent = [trained(site, 1, base) for site in range(2)]
    first = merge("fedyogi", [base, *sent], output=tmp_path / "1.safetensors")
    in_memory = merge("fedyogi", [base, *sent])
    assert in_memory.state is not None
    again = [trained(site, 2, tmp_path / "1.safetensors") for site in range(2)]
    state = state_path(tmp_path / "1.safetensors")
    from_files = merge(
        "fedyogi", [tmp_path / "1.safetensors", state, *again], output=tmp_path / "2.safetensors"
    )
    from_memory = merge(
        "fedyogi",
        [in_memory.model, in_memory.state, *again],
        output=tmp_path / "memory.safetensors",
    )
    assert first.digest == in_memory.state.network_digest
    assert from_files.digest == from_memory.digest
    assert from_files.recipe.output == from_memory.recipe.output


@pytest.mark.parametrize("holds", ["values", "differences"])
@pytest.mark.parametrize("mean", ["samples", "sites"])
def test_fedavgm_without_momentum_is_fedavg(holds: Any, mean: str, tmp_path: Path) -> None:
    base, networks = make_base(0, "f4"), [make_base(seed, "f4") for seed in (1, 2, 3)]
    path = write_base(tmp_path, base)
    sent = [
        contribute(
            path,
            site,
            network if holds == "values" else difference(network, base),
            holds=holds,
            samples=site + 1,
        )
        for site, network in enumerate(networks)
    ]
    stepped = merge("fedavgm", [path, *sent], options={"eta": 1, "beta": 0, "mean": mean})
    averaged = merge("fedavg", [path, *sent], options={"mean": mean})
    weights = [1.0, 2, 3] if mean == "samples" else None
    plain = merge("fedavg", networks, weights=weights)
    for name in ("conv.weight", "norm.running_mean", "norm.running_var"):
        result = tensors_of(stepped.model)[name]
        np.testing.assert_array_max_ulp(result, tensors_of(averaged.model)[name], maxulp=1)
        # Differences in single precision were rounded by the sites already.
        np.testing.assert_allclose(result, tensors_of(plain.model)[name], rtol=1e-5)
        if holds == "values":
            np.testing.assert_array_max_ulp(result, tensors_of(plain.model)[name], maxulp=1)
    counters = [tensors_of(made.model)["norm.num_batches_tracked"] for made in (stepped, averaged)]
    assert counters[0] == counters[1]
    assert stepped.model.metadata == base.metadata  # type: ignore[union-attr]


@pytest.mark.parametrize("method", METHODS)
def test_what_no_site_changes_stays(method: str, tmp_path: Path) -> None:
    base = write_base(tmp_path)
    sent = contribute(base, 1, make_base())
    for options in ({}, {} if method == "fedavgm" else {"tau": 0.0}):
        result = tensors_of(merge(method, [base, sent], options=options).model)
        for name, values in make_base().tensors.items():
            np.testing.assert_array_equal(result[name], values)


def test_the_gaze_paper_has_tau_in_the_root(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    sent = contribute(base, 1, make_base(1))
    options = {"eta": 0.1, "beta1": 0.9, "beta2": 0.9, "tau": 0.2, "root": "sqrt(v+tau^2)"}
    result = tensors_of(merge("fedadam", [base, sent], options=options).model)
    old, new = (np.asarray(make_base(seed).tensors["conv.weight"]) for seed in (0, 1))
    unit = np.sqrt(np.mean((new - old) ** 2))
    tau = 0.2 * unit
    a, v = 0.1 * (new - old), 0.9 * tau**2 + 0.1 * (new - old) ** 2
    np.testing.assert_allclose(result["conv.weight"], old + 0.1 * unit * a / np.sqrt(v + tau**2))


@pytest.mark.parametrize("method", ADAPTIVE)
def test_at_defaults_and_equal_rounds_server_optimisers_come_as_near_as_fedavg(method: str) -> None:
    """Sites go a part of the way to an optimum of their own, at most numbers a small one."""
    draw = np.random.default_rng(0)
    infos = {"w": TensorInfo("F64", (400,))}
    centre, rates = draw.normal(size=400), draw.uniform(0.02, 0.4, 400)
    optima = [centre + 0.3 * draw.normal(size=400) for _ in range(5)]

    def distance_after_rounds(name: str) -> float:
        base: Model = StateDict({"w": np.zeros(400)}, infos)
        state: list[OptimiserState] = []
        for _ in range(12):
            digest = sha256(encode_model(base)).hexdigest()
            changes = [rates * (optimum - tensors_of(base)["w"]) for optimum in optima]
            sent = [
                NetworkContribution(StateDict({"w": change}, infos), "differences", 10, digest)
                for change in changes
            ]
            made = merge(name, [base, *state, *sent])
            base, state = made.model, [] if made.state is None else [made.state]
        return float(np.linalg.norm(tensors_of(base)["w"] - np.mean(optima, axis=0)))

    assert distance_after_rounds(method) < distance_after_rounds("fedavg")


def test_the_order_of_the_inputs_does_not_matter_and_a_recipe_repeats_it(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    sent = [trained(site, 1, base) for site in range(3)]
    outputs = set()
    for number, order in enumerate(itertools.permutations([base, *sent])):
        output = tmp_path / f"{number}"
        merged = merge("fedadam", order, output=output)
        outputs.add((merged.digest, file_digest(state_path(output))))
    assert len(outputs) == 1
    recipe = read_recipe(recipe_path(tmp_path / "0"))
    assert recipe.output is not None
    assert (recipe.output.digest, recipe.output.state) in outputs
    files = {file_digest(path): path for path in (base, *sent)}
    replay(recipe, files.__getitem__, tmp_path / "again")
    assert file_digest(state_path(tmp_path / "again")) == recipe.output.state
    changed = recipe.output.model_copy(update={"state": "0" * 64})
    with pytest.raises(RecipeError, match="the optimiser's state gave sha256"):
        replay(recipe.model_copy(update={"output": changed}), files.__getitem__, tmp_path / "other")
    without = replay(recipe, files.__getitem__, tmp_path / "less", without=file_digest(sent[0]))
    direct = merge("fedadam", [base, *sent[1:]], output=tmp_path / "direct")
    assert without.recipe.output == direct.recipe.output


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
        ("fedadam", [base, state, sent], "state that was written with the base"),
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
