"""Encoded contributions, exact sums, shares that reveal nothing, and checks of alterations."""

import itertools
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from aggregators.errors import ConversionError, IncompatibleModelsError, OptionError
from aggregators.models import NetworkContribution, StateDict, TensorInfo, UInt32
from aggregators.secure_sum import field_kernel
from aggregators.secure_sum.layout import (
    BitBudget,
    SumLayout,
    combine_network,
    decode_sum,
    encode,
    encode_network,
    network_layout,
)
from aggregators.secure_sum.sharing import (
    P,
    UInt64,
    add_check_values,
    add_to,
    challenges,
    check_values,
    commitment,
    explicit_server,
    explicit_share,
    from_bytes,
    from_signed,
    inner_product,
    random_numbers,
    share_from_seed,
    subtract_from,
    to_bytes,
    to_signed,
)

_EDGES = st.sampled_from([0, 1, P - 1, P // 2, 2**32 - 1, 2**32, 2**29, 2**60])

_NUMBERS = st.lists(
    st.tuples(_EDGES | st.integers(0, P - 1), _EDGES | st.integers(0, P - 1)),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("p", [P, 2**32 - 5, 8191, 5])
@given(pairs=_NUMBERS)
def test_arithmetic_is_that_of_integers(pairs: list[tuple[int, int]], p: int) -> None:
    pairs = [(a % p, b % p) for a, b in pairs]
    first, second = np.array(pairs, dtype=np.uint64).T.copy()
    assert inner_product(first, second, p) == sum(a * b for a, b in pairs) % p
    total = first.copy()
    add_to(total, second, p)
    assert total.tolist() == [(a + b) % p for a, b in pairs]
    subtract_from(total, second, p)
    assert total.tolist() == first.tolist()


@given(st.lists(st.integers(-(2**60) + 1, 2**60 - 1), max_size=9))
def test_signed_integers_return(values: list[int]) -> None:
    numbers = from_signed(np.array(values, dtype=np.int64))
    assert [int(number) for number in numbers] == [value % P for value in values]
    assert to_signed(numbers).tolist() == values
    assert to_signed(from_bytes(to_bytes(numbers), len(values))).tolist() == values


def test_bytes_outside_the_field_are_refused() -> None:
    with pytest.raises(ValueError, match="number 1: found 2305843009213693951, expected less"):
        from_bytes(np.array([5, P], dtype="<u8").tobytes(), 2)
    with pytest.raises(ValueError, match="found 15 bytes, expected 16"):
        from_bytes(bytes(15), 2)


def test_random_numbers_are_the_counter_mode_stream_without_large_words() -> None:
    key = bytes(range(32))
    # The first words of AES-256-CTR from a zero block, by OpenSSL 3: openssl enc -aes-256-ctr.
    stream = bytes.fromhex("f29000b62a499fd0a9f39a6add2e7780")
    numbers = np.frombuffer(stream, dtype="<u8") & np.uint64(P)
    assert random_numbers(key, 2).tolist() == numbers.tolist()
    longer = random_numbers(key, 1000, 5)
    assert set(longer.tolist()) == {0, 1, 2, 3, 4}
    counts = np.bincount(random_numbers(key, 100_000, 5).astype(int))
    assert ((counts - 20_000) ** 2 / 20_000).sum() < 18.5  # chi-squared, 4 degrees, p = .001
    assert random_numbers(key, 1000, 5).tolist() == longer.tolist()


def test_two_million_numbers_take_less_than_a_second() -> None:
    first, second = (random_numbers(bytes([n] * 32), 2_000_000) for n in (1, 2))
    inner_product(first[:1], second[:1])
    start = time.process_time()
    inner_product(first, second)
    assert time.process_time() - start < 1


_SERVERS = ("s1", "s2", "s3")


def _shares(
    numbers: UInt64, lab: str, random_bytes: Callable[[int], bytes] = os.urandom
) -> dict[str, UInt64]:
    session = "session"
    explicit = explicit_server(session, lab, _SERVERS)
    seeds = {server: random_bytes(32) for server in _SERVERS if server != explicit}
    shares = {
        server: share_from_seed(seed, session, lab, server, len(numbers))
        for server, seed in seeds.items()
    }
    return {explicit: explicit_share(numbers, seeds, session, lab), **shares}


def test_shares_add_up_and_checks_agree() -> None:
    vectors = {lab: random_numbers(os.urandom(32), 50) for lab in ("a", "b", "c")}
    shares = {lab: _shares(numbers, lab) for lab, numbers in vectors.items()}
    sums = {server: np.zeros(50, dtype=np.uint64) for server in _SERVERS}
    for lab, server in itertools.product(vectors, _SERVERS):
        add_to(sums[server], shares[lab][server])
    total = np.zeros(50, dtype=np.uint64)
    for part in sums.values():
        add_to(total, part)
    expected = [sum(map(int, column)) % P for column in zip(*vectors.values(), strict=True)]
    assert total.tolist() == expected
    drawn = list(challenges(bytes(32), 3, 47))
    tags = add_check_values(check_values(numbers, drawn) for numbers in vectors.values())
    assert tags == add_check_values(check_values(part, drawn) for part in sums.values())
    assert all(commitment("s", vectors, "s1", b"o", part) for part in sums.values())


def test_explicit_shares_are_spread_over_the_servers() -> None:
    counts = Counter(explicit_server("session", f"lab-{n}", _SERVERS) for n in range(3000))
    assert all(abs(counts[server] - 1000) < 100 for server in _SERVERS)


def test_every_part_of_a_commitment_binds() -> None:
    numbers = random_numbers(bytes(32), 9)
    altered = numbers.copy()
    altered[8] ^= np.uint64(1)
    made = {
        commitment(*arguments)
        for arguments in [
            ("s", ["a", "b"], "s1", b"o", numbers),
            ("t", ["a", "b"], "s1", b"o", numbers),
            ("s", ["ab"], "s1", b"o", numbers),
            ("s", ["a", "b"], "s2", b"o", numbers),
            ("s", ["a", "b"], "s1", b"p", numbers),
            ("s", ["a", "b"], "s1", b"o", altered),
        ]
    }
    assert len(made) == 6
    assert commitment("s", ["b", "a"], "s1", b"o", numbers) in made


def _every_case(value: int, *, explicit_seen: bool) -> tuple[UInt32, UInt32, UInt32]:
    """Return for every choice of a lab's mask and of two shares, in a field of 5: the shares of two
    servers, the lab's tag, and the third server's share. Vectors have one number and one mask.
    """
    p = 5
    choices = np.array(list(itertools.product(range(p), repeat=5)), dtype=np.uint64).T
    mask, first, second = choices[0], choices[1:3], choices[3:5]
    explicit = np.array([np.full_like(mask, value), mask])
    for row in (0, 1):
        subtract_from(explicit[row], first[row], p)
        subtract_from(explicit[row], second[row], p)
    challenge = [np.array([2], dtype=np.uint64)]
    tags = [
        check_values(np.array([value, number], dtype=np.uint64), challenge, p)[0] for number in mask
    ]
    seen, hidden = (explicit, second) if explicit_seen else (second, explicit)
    held = ((first[0] * p + first[1]) * p + seen[0]) * p + seen[1]
    held, tag = held.astype(np.uint32), np.array(tags, dtype=np.uint32)
    return held, tag, hidden.astype(np.uint32)


def _views(first: int, second: int, *, explicit_seen: bool) -> UInt32:
    """Return the view of two of three servers on two labs, for every choice, in order: the shares
    that they hold, both tags, and the sum that the third server opens.
    """
    held_a, tag_a, hidden_a = _every_case(first, explicit_seen=explicit_seen)
    held_b, tag_b, hidden_b = _every_case(second, explicit_seen=explicit_seen)
    codes = (held_a * 5 + tag_a)[:, np.newaxis] * 3125 + held_b * 5 + tag_b
    for row in (0, 1):
        codes = codes * 5 + (hidden_a[row][:, np.newaxis] + hidden_b[row]) % 5
    return np.sort(codes.reshape(-1))


@pytest.mark.parametrize("explicit_seen", [False, True])
def test_servers_but_one_see_the_same_whatever_the_labs_give(explicit_seen: bool) -> None:
    views = _views(0, 3, explicit_seen=explicit_seen)
    assert len(views) == 5**10
    assert np.array_equal(views, _views(4, 4, explicit_seen=explicit_seen))
    # Inputs of another sum are seen as such.
    assert not np.array_equal(views, _views(0, 4, explicit_seen=explicit_seen))


def test_shares_at_full_size_do_not_show_the_vector() -> None:
    # Labs give 0 or the largest number; a distinguisher ranks by the mean of an observed share.
    rng = np.random.default_rng(5)
    scores: dict[int, list[float]] = {0: [], 1: []}
    for trial in range(8000):
        which = int(rng.integers(2))
        vector = np.full(8, which * (P - 1), dtype=np.uint64)
        seen = list(_shares(vector, f"lab-{trial}", rng.bytes).values())[
            :2
        ]  # the explicit share and one more
        scores[which].append(float(np.mean([part.astype(float).mean() for part in seen])))
    below = np.array(scores[0])[:, np.newaxis] < np.array(scores[1])
    assert abs(below.mean() - 0.5) < 0.02  # three standard deviations of 4000 against 4000


@njit
def _undetected(chi: UInt64, sums: UInt64, altered: UInt64, p: int) -> int:  # pragma: no cover
    count = 0
    for trial in range(len(chi)):
        honest = field_kernel.inner_product(chi[trial], sums[trial], p)
        count += honest == field_kernel.inner_product(chi[trial], altered[trial], p)
    return count


def test_alterations_pass_with_the_probability_of_the_field() -> None:
    p, trials = 8191, 1_000_000
    rng = np.random.default_rng(3)
    chi = rng.integers(0, p, (trials, 3)).astype(np.uint64)
    sums = rng.integers(0, p, (trials, 3)).astype(np.uint64)
    altered = (sums + rng.integers(1, p, (trials, 3)).astype(np.uint64)) % np.uint64(p)
    passed = _undetected(chi, sums, altered, np.uint64(p))  # type: ignore[call-arg]
    expected = trials / p
    assert abs(passed - expected) < 3 * sqrt(expected), passed


@pytest.mark.parametrize("trials", [10_000])
def test_no_alteration_passes_at_full_size(trials: int) -> None:
    numbers = random_numbers(bytes(32), 8)
    rng = np.random.default_rng(4)
    for trial in range(trials):
        drawn = list(challenges(trial.to_bytes(32, "big"), 3, 5))
        altered = numbers.copy()
        altered[rng.integers(8)] ^= np.uint64(1 << int(rng.integers(3)))
        assert check_values(altered, drawn) != check_values(numbers, drawn)


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
