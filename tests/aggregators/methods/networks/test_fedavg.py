"""FedAvg and its masked forms: types, counters, masks, and memory."""

import itertools
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from aggregators import encode_model, file_digest, merge, read_model, write_model
from aggregators.errors import ContributionError, FormatError, IncompatibleModelsError
from aggregators.methods.networks import read_network_contribution, write_network_contribution
from aggregators.methods.networks.round_files import check_network_contribution
from aggregators.models import NetworkContribution, StateDict, TensorInfo
from tests.aggregators.methods.networks.small_rounds import (
    contribute,
    difference,
    make_base,
    write_base,
)


def one_entry(values: NDArray[np.generic], dtype: str, **metadata: str) -> StateDict:
    return StateDict({"w": values}, {"w": TensorInfo(dtype, values.shape)}, metadata)


def mean_of(*networks: StateDict, weights: list[float] | None = None) -> NDArray[np.generic]:
    merged = merge("fedavg", networks, weights=weights).model
    assert isinstance(merged, StateDict)
    return merged.tensors["w"]


@pytest.mark.parametrize(("numpy_type", "dtype"), [("f2", "F16"), ("f4", "F32"), ("f8", "F64")])
def test_entries_keep_their_type_and_are_summed_in_float64(numpy_type: str, dtype: str) -> None:
    values = [np.array([60000, 1, -2], numpy_type), np.array([60000, 2, -4], numpy_type)]
    mean = mean_of(*(one_entry(value, dtype) for value in values), weights=[1, 3])
    assert mean.dtype == np.dtype(numpy_type)
    assert mean.tolist() == [60000, 1.75, -3.5]


def test_bfloat16_entries_stay_bfloat16(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.safetensors" for number in range(2)]
    for path, value in zip(paths, (1.0, 2.0), strict=True):
        write_model(one_entry(np.full(3, value, dtype=np.float32), "BF16"), path)
    output = tmp_path / "mean.safetensors"
    merge("fedavg", paths, output=output)
    merged = read_model(output)
    assert isinstance(merged, StateDict)
    assert merged.infos["w"].dtype == "BF16"
    assert merged.tensors["w"].tolist() == [1.5] * 3


def test_counters_come_from_the_lowest_digest_with_a_warning() -> None:
    networks = [one_entry(np.array([steps]), "I64") for steps in (5, 9)]
    results = [merge("fedavg", order) for order in (networks, networks[::-1])]
    counters = set()
    for result in results:
        assert isinstance(result.model, StateDict)
        assert "not floating-point differ" in result.warnings[0]
        assert result.warnings[0].endswith(": w")
        counters.add(int(result.model.tensors["w"][0]))
    assert len(counters) == 1


def test_a_diverged_network_is_named() -> None:
    networks = [one_entry(np.array([value], "f4"), "F32") for value in (1.0, np.nan)]
    with pytest.raises(IncompatibleModelsError, match=r"entry 'w' .*NaN.*model 2.*diverged"):
        mean_of(*networks)


def test_only_remarks_that_all_share_remain() -> None:
    values = np.ones(1, dtype=np.float32)
    networks = [
        one_entry(values, "F32", architecture="net", framework="x", site="a"),
        one_entry(2 * values, "F32", architecture="net", framework="x", site="b"),
    ]
    merged = merge("fedavg", networks).model
    assert isinstance(merged, StateDict)
    assert merged.metadata == {"architecture": "net", "framework": "x"}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (one_entry(np.ones(3, dtype=np.float32), "F32"), r"entry 'w' F32 \[2\] against F32 \[3\]"),
        (one_entry(np.ones(2), "F64"), r"entry 'w' F32 \[2\] against F64 \[2\]"),
        (StateDict({}, {}), r"entry 'w' F32 \[2\] against absent"),
    ],
)
def test_the_first_differing_entry_is_named(other: StateDict, message: str) -> None:
    with pytest.raises(IncompatibleModelsError, match=message):
        mean_of(one_entry(np.ones(2, dtype=np.float32), "F32"), other)


class _MadeOnDemand(Mapping[str, NDArray[np.generic]]):
    """Entries that are made when read."""

    def __init__(self, seed: int, entries: int, size: int) -> None:
        self._seed, self._entries, self._size = seed, entries, size

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        random = np.random.default_rng([self._seed, int(name)])
        return random.standard_normal(self._size, dtype=np.float32)

    def __iter__(self) -> Iterator[str]:
        return (f"{number:03}" for number in range(self._entries))

    def __len__(self) -> int:
        return self._entries


@pytest.mark.parametrize("networks", [2, 8])
def test_memory_does_not_grow_with_the_number_of_inputs(networks: int, tmp_path: Path) -> None:
    entries, size = 20, 50_000
    paths = [tmp_path / f"{seed}.safetensors" for seed in range(networks)]
    infos = {f"{number:03}": TensorInfo("F32", (size,)) for number in range(entries)}
    for seed, path in enumerate(paths):
        write_model(StateDict(_MadeOnDemand(seed, entries, size), infos), path)
    tracemalloc.start()
    merge("fedavg", paths, output=tmp_path / "mean.safetensors")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    one_entry_bytes = 8 * size
    assert peak_bytes < 5 * one_entry_bytes, "less than half of one model"


class TestOneSite:
    """A site that nobody can check, among honest ones."""

    @pytest.fixture
    def base(self, tmp_path: Path) -> Path:
        return write_base(tmp_path)

    @pytest.mark.parametrize("method", ["fedavg", "fedavgm", "fedadam"])
    def test_it_counts_as_three_times_the_median_at_most(self, base: Path, method: str) -> None:
        def combine(*samples: int) -> NDArray[np.generic]:
            files = [
                contribute(base, site, make_base(site + 1), samples=count)
                for site, count in enumerate(samples)
            ]
            model = merge(method, [base, *files]).model
            assert isinstance(model, StateDict)
            return model.tensors["conv.weight"]

        np.testing.assert_allclose(combine(10, 20, 30, 2**53), combine(10, 20, 30, 60))
        # Of two, the smaller one decides.
        np.testing.assert_allclose(combine(10, 2**53), combine(10, 30))
        assert not np.allclose(combine(10, 20, 30, 60), combine(10, 20, 30, 50))

    def test_equal_files_of_two_sites_are_two_of_the_median(self, base: Path) -> None:
        small = contribute(base, 1, make_base(1), samples=10)
        large = contribute(base, 2, make_base(2), samples=1000)
        [one, two] = [
            merge("fedavg", [base, *files]).model.tensors["conv.weight"]  # type: ignore[union-attr]
            for files in ([small, large], [small, large, large])
        ]
        origin, far = make_base().tensors["conv.weight"], make_base(2).tensors["conv.weight"]
        near = make_base(1).tensors["conv.weight"]
        np.testing.assert_allclose(one, (near + 3 * far) / 4)
        np.testing.assert_allclose(two, (10 * near + 2000 * far) / 2010)
        assert not np.allclose(origin, one)

    def test_it_is_named_where_it_moved_the_result_nearly_alone(self, base: Path) -> None:
        honest = [contribute(base, site, make_base(site)) for site in (1, 2, 3)]
        assert not merge("fedavg", [base, *honest]).warnings
        loud = make_base(4)
        loud.tensors["conv.weight"][:] *= 50
        merged = merge("fedavg", [base, *honest, contribute(base, 4, loud)])
        [warning] = [warning_ for warning_ in merged.warnings if "alone" in warning_]
        assert "base.safetensors-4.contribution alone" in warning

    @pytest.mark.parametrize("method", ["fedavg", "fedadam"])
    def test_a_result_that_is_not_finite_is_refused(self, tmp_path: Path, method: str) -> None:
        high, files = make_base(0, "f4"), []
        high.tensors["conv.weight"][:] = 1e38
        base = write_base(tmp_path, high)
        for site in (1, 2):
            large = make_base(site, "f4")
            large.tensors["conv.weight"][:] = 3e38
            files.append(contribute(base, site, large, holds="differences"))
        with pytest.raises(IncompatibleModelsError, match="infinities or NaN"):
            merge(method, [base, *files], options={} if method == "fedavg" else {"eta": 1e40},
                  output=tmp_path / "out")  # fmt: skip
        assert not (tmp_path / "out").exists()


METHODS = ["fedprox", "fedper", "fedselect", "fedcpf", "cpf-random", "local"]

MASKED = "conv.weight"


def differences(seed: int) -> StateDict:
    return difference(make_base(seed), make_base())


def write(folder: Path, site: int, shared: np.ndarray | None = None, *, samples: int = 10) -> Path:
    """Write a contribution with zeros as its personal numbers."""
    made = differences(site)
    tensors = dict(made.tensors)
    masks = {}
    if shared is not None:
        tensors[MASKED] = np.where(shared, tensors[MASKED], 0)
        masks[MASKED] = shared
    digest = file_digest(folder / "base.safetensors")
    contribution = NetworkContribution(
        StateDict(tensors, made.infos), "differences", samples, digest, {}, masks
    )
    path = folder / f"{site}.contribution"
    write_network_contribution(contribution, path)
    return path


def combined(method: str, base: Path, sites: list[Path], **options: str) -> StateDict:
    model = merge(method, [base, *sites], options=options).model
    assert isinstance(model, StateDict)
    return model


def draw_masks(seed: int, count: int) -> list[np.ndarray]:
    return list(np.random.default_rng(seed).random((count, 3, 4)) < 0.6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mean", ["samples", "sites"])
def test_without_masks_the_result_has_the_bytes_of_fedavg(
    method: str, mean: str, tmp_path: Path
) -> None:
    base = write_base(tmp_path)
    sites = [write(tmp_path, site, samples=7 * site + 3) for site in range(1, 5)]
    expected = encode_model(combined("fedavg", base, sites, mean=mean))
    assert encode_model(combined(method, base, sites, mean=mean)) == expected
    if method == "fedprox":
        return
    # A mask in which all is shared alters nothing either.
    everything = np.ones((3, 4), dtype=np.bool_)
    sites = [write(tmp_path, site, everything, samples=7 * site + 3) for site in range(1, 5)]
    result = combined(method, base, sites, mean=mean).tensors[MASKED]
    np.testing.assert_allclose(result, combined("fedavg", base, sites, mean=mean).tensors[MASKED])


def test_each_number_is_the_mean_over_the_sites_that_share_it(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    masks = draw_masks(0, 3)
    masks[0][0], masks[1][0], masks[2][0] = False, False, False  # nobody shares the first row
    sites = [write(tmp_path, site + 1, mask) for site, mask in enumerate(masks)]
    result = combined("fedcpf", base, sites).tensors[MASKED]
    start = np.asarray(make_base().tensors[MASKED])
    for row, column in np.ndindex(3, 4):
        differences_ = [
            differences(site + 1).tensors[MASKED][row, column]
            for site, mask in enumerate(masks)
            if mask[row, column]
        ]
        expected = start[row, column] + (np.mean(differences_) if differences_ else 0.0)
        assert result[row, column] == pytest.approx(expected, rel=1e-12)
    assert np.array_equal(result[0], start[0])


def test_the_order_of_the_sites_does_not_matter(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    sites = [write(tmp_path, site + 1, mask) for site, mask in enumerate(draw_masks(1, 3))]
    orders = itertools.permutations(sites)
    assert len({encode_model(combined("fedcpf", base, list(order))) for order in orders}) == 1


def test_the_file_keeps_masks_to_the_bit(tmp_path: Path) -> None:
    write_base(tmp_path)
    mask = draw_masks(2, 1)[0]
    read = read_network_contribution(write(tmp_path, 1, mask))
    assert list(read.shared) == [MASKED]
    assert np.array_equal(read.shared[MASKED], mask)
    assert set(read.network.infos) == set(make_base().infos)


def test_a_personal_number_in_a_contribution_is_refused(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    mask = draw_masks(3, 1)[0]
    made = read_network_contribution(write(tmp_path, 1, mask))
    network = read_model(base)
    assert isinstance(network, StateDict)
    check_network_contribution(made, network, base_digest=file_digest(base), settings={})
    leaking = replace(made, network=differences(1))
    with pytest.raises(ContributionError, match="personal numbers"):
        check_network_contribution(leaking, network, base_digest=file_digest(base), settings={})


def test_a_mask_of_another_size_is_refused(tmp_path: Path) -> None:
    write_base(tmp_path)
    made = read_network_contribution(write(tmp_path, 1))
    wrong = replace(made, shared={MASKED: np.ones(3, dtype=np.bool_)})
    with pytest.raises(Exception, match="a bit for each number") as caught:
        write_network_contribution(wrong, tmp_path / "wrong")
    assert isinstance(caught.value.__cause__, FormatError)
    assert not (tmp_path / "wrong").exists()
