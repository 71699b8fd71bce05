"""State dicts: beside the safetensors library, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from aggregators.errors import ConversionError, FormatError
from aggregators.formats import decode_model, encode_model, fingerprint, read_model
from aggregators.formats.tensors import narrow_to_bfloat16, widen_bfloat16
from aggregators.models import StateDict, TensorInfo
from tests.aggregators.formats.examples import make_state_dict


def craft(header: Any, data: bytes = b"") -> bytes:
    """Make a file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str, shape: list[Any], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_the_library_reads_our_files() -> None:
    model = make_state_dict()
    loaded = safetensors.numpy.load(
        encode_model(
            StateDict(
                {name: array for name, array in model.tensors.items() if name != "brain"},
                {name: info for name, info in model.infos.items() if name != "brain"},
            )
        )
    )
    assert set(loaded) == set(model.tensors) - {"brain"}
    for name, array in loaded.items():
        np.testing.assert_array_equal(array, model.tensors[name])


def test_files_of_the_library_come_back_byte_for_byte(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    tensors = {
        "b": random.normal(size=(3, 5)).astype(np.float32),
        "a": random.normal(size=7).astype(np.float32),
        "z": random.normal(size=2),
        "half": random.normal(size=3).astype(np.float16),
        "flags": np.array([True, False, True]),
    }
    kinds = (np.uint8, np.int8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
    tensors |= {f"count {kind.__name__}": np.arange(3, dtype=kind) for kind in kinds}
    path = tmp_path / "network.safetensors"
    safetensors.numpy.save_file(tensors, path, metadata={"format": "np"})
    model = read_model(path)
    assert isinstance(model, StateDict)
    for name, array in tensors.items():
        np.testing.assert_array_equal(model.tensors[name], array)
        assert not model.tensors[name].flags.writeable
    assert encode_model(model) == path.read_bytes()
    described = fingerprint(model)
    assert described["parameters"] == 15 + 7 + 2 + 3 + 3 + 8 * 3
    assert described["tensors"]["b"] == ["F32", [3, 5]]
    assert described["architecture"] is None


def test_entries_are_read_when_asked_for(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "large.safetensors"
    safetensors.numpy.save_file({f"t{k}": np.ones(2**20, np.float32) for k in range(8)}, path)
    tracemalloc.start()
    model = read_model(path)
    assert isinstance(model, StateDict)
    assert float(model.tensors["t3"].sum()) == 2**20
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2**20


@given(st.lists(st.integers(0, 0xFFFF), min_size=1, max_size=50))
def test_bfloat16_comes_back(bits: list[int]) -> None:
    halves = np.array(bits, dtype=np.uint16)
    values = widen_bfloat16(halves)
    again = narrow_to_bfloat16(values)
    defined = ~np.isnan(values)
    np.testing.assert_array_equal(again[defined], halves[defined])
    assert np.isnan(widen_bfloat16(again)[~defined]).all()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bfloat16_is_the_nearest(value: float) -> None:
    single = np.array([value], dtype=np.float32)
    rounded = float(widen_bfloat16(narrow_to_bfloat16(single))[0])
    assert rounded == pytest.approx(value, rel=2**-8, abs=1e-40) or np.isinf(rounded)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (craft({"a": entry("F32", [2], 0, 8)}, bytes(7)), "end of the tensors"),
        (craft({"a": entry("F32", [3], 0, 8)}, bytes(8)), "8 bytes .*, expected 12 for F32"),
        (
            craft({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, bytes(6)),
            "tensor 'b': found data that begin",
        ),
        (
            craft({"a": entry("U8", [4], 0, 4), "b": entry("U8", [2], 5, 7)}, bytes(7)),
            "tensor 'b': found data that begin",
        ),
        (craft({"a": entry("U8", [4], 4, 0)}), "data_offsets"),
        (craft({"a": entry("U8", [2**62, 2**62], 0, 2**60)}), "expected"),
        (craft({"a": entry("U8", [-1], 0, 0)}), "shape"),
        (craft({"a": entry("U8", [True], 0, 1)}, bytes(1)), "shape"),
        (craft({"a": entry("U8", [1] * 33, 0, 1)}, bytes(1)), "at most 32"),
        (craft({"a": entry("F7", [1], 0, 1)}, bytes(1)), "type F7"),
        (craft({"a": entry("F8_E4M3", [1], 0, 1)}, bytes(1)), "type F8_E4M3"),
        (craft({"a": {"dtype": "U8"}}), "other fields"),
        (craft({"__metadata__": {"a": 1}}), "__metadata__"),
        (craft(b'{"a":1,"a":1}'), "'a' twice"),
        (craft(b'{"a":' + b"[" * 100_000), "invalid JSON"),
        (craft(b'{"a":' + b"1" * 5000 + b"}"), "invalid JSON"),
        (craft(b'{"a":NaN}'), "NaN"),
        (craft(b'{"\xff":1}'), "not UTF-8"),
        (craft(b'{"a":'), "invalid JSON"),
        ((2**40).to_bytes(8, "little") + b"{}", "header length: found 1099511627776"),
        ((2**25).to_bytes(8, "little") + b"{" + bytes(2**25), "header length: found 33554432"),
        (craft({"a": entry("BOOL", [1], 0, 1)}, b"\2"), "a byte above 1"),
    ],
)
def test_malformed_containers_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        decode_model(data)
    assert 0 <= caught.value.offset <= len(data)


def test_a_long_header_is_refused_as_fast_as_a_short_one() -> None:
    """A comparison of each name with each would take hours."""
    names = [f'"{number}":0' for number in range(400_000)]
    with pytest.raises(FormatError, match="'399999' twice"):
        decode_model(craft(f"{{{','.join([*names, names[-1]])}}}".encode()))


def test_arrays_that_differ_from_their_infos_are_not_written() -> None:
    array = np.zeros(3, np.float32)
    for infos in (
        {"a": TensorInfo("F64", (3,))},
        {"a": TensorInfo("F32", (2,))},
        {"a": TensorInfo("C7", (3,))},
        {"b": TensorInfo("F32", (3,))},
    ):
        with pytest.raises(ConversionError, match=r"found .*, "):
            encode_model(StateDict({"a": array}, infos))
