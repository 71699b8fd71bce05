"""State dicts: compared with the safetensors library, and invalid files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from aggregators.errors import FormatError
from aggregators.formats import decode_model, encode_model, fingerprint, read_model
from aggregators.formats.safetensors_file import narrow_to_bfloat16, widen_bfloat16
from aggregators.models import StateDict
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


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (craft({"a": entry("F32", [2], 0, 8)}, bytes(7)), "end of the tensors"),
        (craft({"a": entry("F32", [3], 0, 8)}, bytes(8)), "8 bytes .*, expected 12 for F32"),
        (
            craft({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, bytes(6)),
            "tensor 'b': found data that begin",
        ),
        (craft({"a": entry("U8", [2**62, 2**62], 0, 2**60)}), "expected"),
        (craft({"a": entry("U8", [-1], 0, 0)}), "shape"),
        (craft({"a": entry("U8", [1] * 33, 0, 1)}, bytes(1)), "at most 32"),
        (craft({"a": entry("F7", [1], 0, 1)}, bytes(1)), "type F7"),
        (craft(b'{"a":1,"a":1}'), "'a' twice"),
        (craft(b'{"a":' + b"[" * 100_000), "invalid JSON"),
        (craft(b'{"a":'), "invalid JSON"),
        ((2**40).to_bytes(8, "little") + b"{}", "header length: found 1099511627776"),
        # To check what such a header holds took most of a minute.
        (craft(b"{" + b" " * (2**24 - 1)), "found 16777216 .*, expected 2 to 4194304 bytes"),
        (craft({"a": entry("BOOL", [1], 0, 1)}, b"\2"), "a byte above 1"),
        (craft({"a" * 257: entry("U8", [1], 0, 1)}, b"\0"), "a name of 257 characters"),
        (craft({"half \ud83d": entry("U8", [1], 0, 1)}, b"\0"), "not Unicode"),
        (craft({"__metadata__": {"architecture": "\udfff"}}), "not Unicode"),
    ],
)
def test_malformed_containers_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message) as caught:
        decode_model(data)
    assert 0 <= caught.value.offset <= len(data)


def test_escaped_characters_are_read() -> None:
    model = decode_model(craft({"\U0001f441 \\u": entry("U8", [1], 0, 1)}, b"\0"))
    assert isinstance(model, StateDict)
    assert list(model.tensors) == ["\U0001f441 \\u"]


def test_descriptions_are_bounded() -> None:
    def network(tensors: int, metadata: dict[str, str]) -> bytes:
        layout = {
            f"layers.{k}.conv1.weight": entry("F32", [512, 0, 3, 3], 0, 0) for k in range(tensors)
        }
        return craft({"__metadata__": metadata} | layout)

    assert len(fingerprint(decode_model(network(3000, {})))["tensors"]) == 3000
    with pytest.raises(FormatError, match=r"description of the model .* at most 262,144"):
        fingerprint(decode_model(network(8000, {})))
    with pytest.raises(FormatError, match="architecture: found 257 characters"):
        fingerprint(decode_model(network(1, {"architecture": "x" * 257})))
