"""Files of networks, dense and sparse: compared with the safetensors library, and invalid ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from aggregators import merge
from aggregators.errors import ConversionError, FormatError
from aggregators.formats import decode_model, encode_model, fingerprint, read_model, write_model
from aggregators.formats.safetensors_file import (
    narrow_to_bfloat16,
    parse_safetensors,
    widen_bfloat16,
)
from aggregators.models import StateDict, TensorInfo
from tests.aggregators.formats.examples import (
    assert_equal_models,
    make_sparse_state_dict,
    make_state_dict,
)


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


HEAD = {"format": "poolctl-sparse", "version": "1", "network": "{}"}


def craft_sparse(
    entries: dict[str, tuple[str, list[int], bytes]], shapes: Any, **changed: str
) -> bytes:
    """Make a sparse file with any entries (type, shape, bytes) and any metadata."""
    header: dict[str, Any] = {"__metadata__": HEAD | {"shapes": json.dumps(shapes)} | changed}
    data = b""
    for name, (dtype, shape, content) in entries.items():
        header[name] = entry(dtype, shape, len(data), len(data) + len(content))
        data += content
    return craft(header, data)


def packed(*values: int, dtype: str = "<i4") -> bytes:
    return np.array(values, dtype=dtype).tobytes()


def test_a_file_holds_what_the_format_says() -> None:
    network = StateDict(
        {"w": np.array([[0, 0, 7.5], [0, -1, 0]] * 5, np.float32), "b": np.ones(2, np.float32)},
        {"w": TensorInfo("F32", (10, 3)), "b": TensorInfo("F32", (2,))},
        {"architecture": "x"},
    )
    contents = parse_safetensors(encode_model(network, "poolctl-sparse"))
    assert contents.array("values/w").tolist() == [7.5, -1] * 5
    assert contents.array("values/b").tolist() == [1, 1]
    # Numbers 2, 4, 8, 10, 14, 16, 20, 22, 26 and 28, the least significant bit first.
    assert contents.array("mask/w").tolist() == [0b10100, 0b1000101, 0b1010001, 0b10100]
    assert json.loads(contents.metadata["shapes"]) == {"w": [10, 3]}
    assert json.loads(contents.metadata["network"]) == {"architecture": "x"}
    many = np.zeros((5, 40), np.float32)
    many[[0, 4], [3, 39]] = 2
    network = StateDict({"w": many}, {"w": TensorInfo("F32", (5, 40))})
    contents = parse_safetensors(encode_model(network, "poolctl-sparse"))
    assert contents.array("index/w").tolist() == [3, 199]


@given(
    arrays(
        st.sampled_from([np.float32, np.float64, np.int64, np.bool_, np.uint8]),
        array_shapes(min_dims=0, min_side=0, max_side=20),
        elements=st.just(0) | st.sampled_from([0, 1]),
        fill=st.just(0),
    )
)
def test_every_entry_comes_back_in_its_type_and_shape(values: np.ndarray) -> None:
    names = {"float32": "F32", "float64": "F64", "int64": "I64", "bool": "BOOL", "uint8": "U8"}
    network = StateDict({"w": values}, {"w": TensorInfo(names[values.dtype.name], values.shape)})
    data = encode_model(network, "poolctl-sparse")
    assert_equal_models(decode_model(data), network)
    assert len(data) <= values.nbytes + 400


def test_the_sign_of_zero_is_kept() -> None:
    again = decode_model(encode_model(make_sparse_state_dict(), "poolctl-sparse"))
    assert isinstance(again, StateDict)
    assert np.signbit(again.tensors["negative"]).tolist() == [True] + [False] * 40


def test_sparse_and_dense_files_of_one_network_are_the_same_to_methods(tmp_path: Path) -> None:
    network = make_sparse_state_dict()
    paths = [tmp_path / "a.safetensors", tmp_path / "a.sparse"]
    for path in paths:
        write_model(network, path)
    dense, sparse = (read_model(path) for path in paths)
    assert fingerprint(sparse) == fingerprint(dense)
    assert encode_model(sparse) == paths[0].read_bytes()
    write_model(sparse, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == paths[0].read_bytes()
    merged = [
        merge("fedavg", inputs, output=tmp_path / f"{number}.safetensors").digest
        for number, inputs in enumerate([[paths[0], paths[0]], [paths[1], paths[0]]])
    ]
    assert merged[0] == merged[1]


FLOATS = ("F32", [2], packed(1, 1, dtype="<f4"))

ONE_MASK = {"values/w": FLOATS, "mask/w": ("U8", [1], b"\3")}

ONE_INDEX = {"values/w": FLOATS, "index/w": ("I32", [2], packed(0, 3))}


def changed(entries: dict[str, Any], name: str, *content: Any) -> dict[str, Any]:
    return entries | {name: content}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (craft_sparse(ONE_MASK, {"w": [2**40]}), "at most 4294967296"),
        (craft_sparse(ONE_MASK, {"w": [9]}), r"mask of 'w': found U8 of shape \(1,\)"),
        (craft_sparse(ONE_MASK, {"w": [1]}), "bits behind the last number"),
        (craft_sparse(changed(ONE_MASK, "mask/w", "U8", [1], b"\7"), {"w": [5]}), "3 ones"),
        (craft_sparse(changed(ONE_MASK, "mask/w", "I8", [1], b"\3"), {"w": [5]}), "found I8"),
        (craft_sparse(ONE_INDEX, {"w": [3]}), "positions 0 to 3 .* expected 0 to 2"),
        (craft_sparse(ONE_INDEX, {"w": [5000]}), "2 of 5000 numbers"),
        (
            craft_sparse(changed(ONE_INDEX, "index/w", "I32", [2], packed(-1, 3)), {"w": [5]}),
            "positions -1 to 3",
        ),
        (
            craft_sparse(changed(ONE_INDEX, "index/w", "I32", [2], packed(3, 3)), {"w": [5]}),
            "do not increase",
        ),
        (
            craft_sparse(changed(ONE_INDEX, "index/w", "I32", [1], packed(3)), {"w": [5]}),
            r"found I32 of shape \(1,\)",
        ),
        (
            craft_sparse(changed(ONE_INDEX, "values/w", "F32", [1, 2], bytes(8)), {"w": [5]}),
            "expected one dimension",
        ),
        (craft_sparse(ONE_INDEX | ONE_MASK, {"w": [5]}), "a mask and indices"),
        (craft_sparse({"values/w": FLOATS}, {"w": [5]}), "a shape without a mask or indices"),
        (craft_sparse(ONE_MASK, {}), "'w': found no shape"),
        (craft_sparse({"mask/w": ("U8", [1], b"\3")}, {"w": [5]}), "found no values"),
        (craft_sparse({"weight/w": FLOATS}, {}), "expected values/, mask/ or index/"),
        (craft_sparse(ONE_MASK, {"w": [-5]}), "a list of at most 32 sizes"),
        (craft_sparse(ONE_MASK, {"w": "x"}), "a list of at most 32 sizes"),
        (craft_sparse(ONE_MASK, []), "metadata shapes: found a list"),
        (craft_sparse({}, {}, network="["), "metadata network: found invalid JSON"),
        (craft_sparse({}, {}, network='{"a":1}'), "expected an object of strings"),
        (craft_sparse({}, {}, network='{"format":"poolctl-forest"}'), "format poolctl-forest"),
        (craft_sparse({}, {}, version="2"), "metadata version"),
        (craft_sparse({}, {}, more="2"), "metadata 'more'"),
    ],
)
def test_malformed_files_are_refused(data: bytes, message: str) -> None:
    # As the format writes it, so that the file is recognised.
    data = data.replace(b'"format": "poolctl-sparse"', b'"format":"poolctl-sparse" ', 1)
    with pytest.raises(FormatError, match=message) as caught:
        decode_model(data)
    assert 0 <= caught.value.offset <= len(data)


def test_networks_that_could_not_be_read_again_are_not_written() -> None:
    network = make_state_dict()
    other = StateDict(network.tensors, network.infos, {"format": "poolctl-forest"})
    with pytest.raises(ConversionError, match="found format poolctl-forest"):
        encode_model(other, "poolctl-sparse")
