"""The laws of masked means, on contributions with known masks."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregators import encode_model, file_digest, merge, read_model
from aggregators.errors import ContributionError, FormatError
from aggregators.methods.networks import read_network_contribution, write_network_contribution
from aggregators.methods.networks.round_files import check_network_contribution
from aggregators.models import NetworkContribution, StateDict
from tests.aggregators.methods.networks.small_rounds import difference, make_base, write_base

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
