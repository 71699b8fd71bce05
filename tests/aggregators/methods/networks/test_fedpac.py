"""FedPAC's half on the server: mixing weights, heads for single sites, and hostile statistics."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregators import encode_model, file_digest, find_method, merge, read_model, write_model
from aggregators.errors import (
    ContributionError,
    ConversionError,
    FormatError,
    IncompatibleModelsError,
    OptionError,
    SiteOnlyError,
    UnknownFormatError,
)
from aggregators.formats.safetensors_file import TensorsFormat, require_shareable
from aggregators.methods.merging import encode_input, read_input
from aggregators.methods.networks import (
    read_network_contribution,
    state_path,
    write_network_contribution,
)
from aggregators.methods.networks.fedpac import minimise_on_simplex, mixing_weights
from aggregators.methods.networks.replies import Reply, decode_reply, encode_reply
from aggregators.methods.networks.round_files import check_network_contribution
from aggregators.methods.networks.updates import head_entries
from aggregators.methods.round_options import split_options
from aggregators.models import (
    ClassStatistics,
    NetworkContribution,
    OptimiserState,
    StateDict,
    TensorInfo,
)
from tests.aggregators.methods.networks.small_rounds import (
    class_statistics,
    difference,
    make_base,
    write_base,
)

HEAD = "conv.weight"


def draw_matrix(seed: int, size: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(size, random.integers(1, size + 3)))
    noise = random.uniform(0, 0.2, size) * random.integers(0, 2)
    return np.asarray(rows @ rows.T * 10.0 ** random.integers(-6, 7) + np.diag(noise))


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.integers(1, 12))
def test_the_minimum_on_the_simplex_meets_its_conditions(seed: int, size: int) -> None:
    matrix = draw_matrix(seed, size)
    point = minimise_on_simplex(matrix)
    assert (point >= 0).all()
    assert point.sum() == pytest.approx(1, abs=1e-12)
    # At the minimum all entries that count promise the same, and no other promises more.
    gradient, scale = matrix @ point, np.abs(matrix).max()
    assert np.ptp(gradient[point > 1e-6]) <= 1e-5 * scale
    assert gradient.min() >= gradient[point > 1e-6].max() - 1e-5 * scale


def test_of_equal_answers_the_even_one_is_taken() -> None:
    for matrix in (np.zeros((4, 4)), np.ones((4, 4)), 1e-9 * np.ones((4, 4))):
        np.testing.assert_allclose(minimise_on_simplex(matrix), 0.25)


def test_sites_with_equal_classes_mix_equally_and_others_stay_apart() -> None:
    alike = np.tile([1.0, 0.0, 2.0], (3, 1))
    assert np.array_equal(mixing_weights(alike, np.full(3, 0.1)), np.full((3, 3), 1 / 3))
    far = np.vstack([alike[:2], [[-50.0, 40.0, 0.0]]])
    weights = mixing_weights(far, np.full(3, 0.1))
    np.testing.assert_allclose(weights[0], [0.5, 0.5, 0], atol=1e-9)
    assert np.array_equal(weights[2], [0, 0, 1])
    # Of two sites alike, the one with many samples knows better.
    np.testing.assert_allclose(mixing_weights(alike[:2], np.array([0.1, 0.3]))[0], [0.75, 0.25])


def test_a_site_far_away_does_not_change_what_the_others_mix() -> None:
    near = np.random.default_rng(3).normal(size=(4, 6))
    near[:, 5] = 0
    variances = np.full(4, 2.0)
    alone = mixing_weights(near, variances)
    assert (alone > 0.05).sum() > 6
    liar = [[*near[:, :5].mean(axis=0), 1e6]]
    with_liar = mixing_weights(np.vstack([near, liar]), np.append(variances, 0))
    np.testing.assert_allclose(with_liar[:4, :4], alone, atol=1e-6)
    assert np.array_equal(with_liar[4], [0, 0, 0, 0, 1])


def test_small_weights_are_left_out() -> None:
    weights = mixing_weights(np.zeros((2, 1)), np.array([1.0, 2000.0]))
    assert np.array_equal(weights, [[1, 0], [1, 0]])


def write(base: Path, site: int, **changed: Any) -> Path:
    contribution = NetworkContribution(
        difference(make_base(site), make_base()),
        "differences",
        10 * site,
        file_digest(base),
        {},
        statistics=class_statistics(site),
    )
    path = base.with_name(f"{site}.contribution")
    write_network_contribution(replace(contribution, **changed), path)
    return path


def replies(base: Path, sites: list[Path], **options: Any) -> tuple[StateDict, list[Reply]]:
    merged = merge("fedpac", [base, *sites], options=options)
    assert merged.state is not None
    network = read_model(base)
    assert isinstance(network, StateDict)
    assert isinstance(merged.model, StateDict)
    files = [encode_reply(merged.state, file_digest(site)) for site in sites]
    return merged.model, [decode_reply(file, network.infos) for file in files if file is not None]


def test_the_network_has_the_bytes_of_fedavg_and_each_site_its_own_mixture(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    sites = [write(base, site) for site in (1, 2, 3)]
    network, answers = replies(base, sites)
    assert encode_model(network) == encode_model(merge("fedavg", [base, *sites]).model)
    statistics = [class_statistics(site) for site in (1, 2, 3)]
    shares = [item.counts / item.counts.sum() for item in statistics]
    references = np.array(
        [(p[:, None] * s.means).reshape(-1) for p, s in zip(shares, statistics, strict=True)]
    )
    weights = mixing_weights(references, np.array([item.variance for item in statistics]))
    heads = [make_base(site).tensors[HEAD] for site in (1, 2, 3)]
    for reply, mixture in zip(answers, weights, strict=True):
        expected = sum(weight * head for weight, head in zip(mixture, heads, strict=True))
        np.testing.assert_allclose(reply.head[HEAD], expected, rtol=1e-9)
    # Samples are 10, 20 and 30: none is more than three times the median.
    counts = [10 * site * share for site, share in zip((1, 2, 3), shares, strict=True)]
    for label in range(4):
        mean = np.average(
            [item.means[label] for item in statistics], axis=0, weights=[c[label] for c in counts]
        )
        for reply in answers:
            np.testing.assert_allclose(reply.prototypes[label], mean, rtol=1e-5)
    assert all(np.isnan(reply.prototypes[4]).all() for reply in answers)


def test_the_order_of_the_sites_changes_no_byte(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    sites = [write(base, site) for site in (1, 2, 3)]
    states = set()
    for order in itertools.permutations(sites):
        merged = merge("fedpac", [base, *order])
        assert merged.state is not None
        states.add((bytes(encode_model(merged.model)), encode_input(merged.state)))
    assert len(states) == 1


def test_a_state_read_again_has_the_same_replies_for_those_who_contributed(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    sites = [write(base, site) for site in (1, 2)]
    output = tmp_path / "result.safetensors"
    merged = merge("fedpac", [base, *sites], output=output)
    read = read_input(state_path(output))
    assert isinstance(read, OptimiserState)
    assert merged.state is not None
    for site in sites:
        digest = file_digest(site)
        assert encode_reply(read, digest) == encode_reply(merged.state, digest) is not None
    assert encode_reply(read, file_digest(base)) is None
    # The next round takes it among its inputs and does not need it.
    network = read_model(output)
    assert isinstance(network, StateDict)
    following = write(output, 3)
    with_state = merge("fedpac", [output, state_path(output), following])
    assert encode_model(with_state.model) == encode_model(
        merge("fedpac", [output, following]).model
    )


def test_a_reply_cannot_be_given_away_and_a_false_one_is_refused(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    site = write(base, 1)
    merged = merge("fedpac", [base, site])
    assert merged.state is not None
    content = encode_reply(merged.state, file_digest(site))
    assert content is not None
    file = tmp_path / "reply"
    file.write_bytes(content)
    with pytest.raises(UnknownFormatError, match="a site reply"):
        read_model(file)
    read = TensorsFormat().decode(content)
    with pytest.raises(SiteOnlyError):
        require_shareable(read, file.name)
    network = make_base()
    for name, values, message in (
        ("head/conv.weight", np.full((3, 4), np.nan), "out of range"),
        ("prototypes", np.full((5, 4), 1e7, "f4"), "out of range"),
        ("head/conv.weight", np.zeros((3, 5)), r"F64 \[3, 5\]"),
    ):
        kinds = {"float32": "F32", "float64": "F64"}
        infos = {**read.infos, name: TensorInfo(kinds[values.dtype.name], values.shape)}
        false = StateDict({**read.tensors, name: values}, infos, read.metadata)
        write_model(false, file)
        with pytest.raises((FormatError, IncompatibleModelsError), match=message):
            decode_reply(file.read_bytes(), network.infos)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"counts": np.array([3, -1, 2, 0, 0])}, "out of range"),
        ({"counts": np.zeros(5, "i8")}, "out of range"),
        ({"counts": np.full(5, 2**52)}, "out of range"),
        ({"counts": np.ones(4, "i8")}, "counts, means and variance"),
        ({"means": np.full((5, 4), np.inf, "f4")}, "out of range"),
        ({"means": np.full((5, 4), 1e7, "f4")}, "out of range"),
        ({"means": np.ones((5, 4), "f4")}, "zeros for classes without samples"),
        ({"means": np.zeros((5, 4), "f8")}, "counts, means and variance"),
        ({"means": np.zeros(5, "f4")}, "counts, means and variance"),
        ({"variance": -0.1}, "out of range"),
        ({"variance": float("nan")}, "out of range"),
    ],
)
def test_impossible_statistics_are_refused(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    base = write_base(tmp_path)
    good = class_statistics(1)
    hostile = ClassStatistics(**{**vars(good), **changed})
    with pytest.raises(ConversionError, match=message):
        write(base, 1, statistics=hostile)


def test_statistics_come_where_a_round_wants_them_and_nowhere_else(tmp_path: Path) -> None:
    base = write_base(tmp_path)
    network, digest = make_base(), file_digest(base)

    def check(path: Path, *, expects_statistics: bool = True) -> None:
        check_network_contribution(
            read_network_contribution(path), network,
            base_digest=digest, settings={}, replies=expects_statistics,
        )  # fmt: skip

    check(write(base, 1))
    with pytest.raises(ContributionError, match="has statistics of classes, expected no"):
        check(write(base, 1), expects_statistics=False)
    with pytest.raises(ContributionError, match="has no statistics of classes, expected"):
        check(write(base, 1, statistics=None))
    narrow = replace(class_statistics(1), means=np.zeros((5, 3), "f4"))
    with pytest.raises(ContributionError, match="means of 3 features, expected the 4"):
        check(write(base, 1, statistics=narrow))
    with pytest.raises(IncompatibleModelsError, match="statistics of classes"):
        merge("fedpac", [base, write(base, 1, statistics=None)])
    # More classes than others have is no harm.
    _, answers = replies(base, [write(base, 1), write(base, 2, statistics=class_statistics(2, 9))])
    assert {answer.prototypes.shape for answer in answers} == {(9, 4)}


def test_the_last_layer_is_the_one_with_the_fewest_outputs() -> None:
    infos = {
        "a.weight": TensorInfo("F32", (4, 3)), "b.weight": TensorInfo("F32", (2, 4)),
        "b.bias": TensorInfo("F32", (2,)), "norm.weight": TensorInfo("F32", (1,)),
    }  # fmt: skip
    assert head_entries(infos) == ("b.weight", "b.bias")
    with pytest.raises(IncompatibleModelsError, match=r"a\.weight, b\.weight"):
        head_entries({**infos, "a.weight": TensorInfo("F32", (2, 3))})


def test_secure_sums_and_differential_privacy_refuse_it_with_the_reason() -> None:
    assert "compares the contributions" in find_method("fedpac").reason_not_summable
    with pytest.raises(OptionError, match="fedpac do more than train"):
        split_options("fedpac", {"dp_epsilon": 3})
