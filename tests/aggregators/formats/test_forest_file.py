"""The project's forest file: exactness, opening time, invalid files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators.errors import ConversionError, FormatError
from aggregators.formats import decode_model, encode_model, fingerprint, read_model, write_model
from aggregators.models import ShapePredictor
from tests.aggregators.formats.examples import assert_equal_models, make_ensemble, make_predictor
from tests.benchmarks.paper_size import make_paper_size_predictor


def test_arrays_are_views_into_the_mapped_file(tmp_path: Path) -> None:
    model = make_paper_size_predictor(0, levels=2, trees=50)
    path = tmp_path / "large.forest"
    write_model(model, path)
    loaded = read_model(path)
    assert isinstance(loaded, ShapePredictor)
    assert_equal_models(model, loaded)
    assert not loaded.leaves.flags.owndata
    assert not loaded.leaves.flags.writeable
    assert loaded.leaves.flags.aligned
    # A new file may take the name while the old one is in use.
    write_model(make_predictor(), path)
    assert_equal_models(model, loaded)


def test_half_precision_halves_the_file_and_keeps_leaves_near() -> None:
    model = make_paper_size_predictor(0, levels=1, trees=50)
    full, half = (encode_model(model, name) for name in ("poolctl-forest", "poolctl-forest-half"))
    assert len(half) < 0.55 * len(full)
    loaded = decode_model(half)
    assert isinstance(loaded, ShapePredictor)
    assert loaded.leaves.dtype == np.float32
    np.testing.assert_allclose(loaded.leaves, model.leaves, atol=3e-6)
    with pytest.raises(ConversionError, match="half precision"):
        encode_model(make_predictor(), "poolctl-forest-half")


def test_ensembles_are_described_with_their_members() -> None:
    described = fingerprint(make_ensemble())
    assert described["format"] == "poolctl-forest"
    assert described["members"] == 2
    assert described["levels"] == 2
    assert described["trees_per_level"] == [4, 1]
    assert described["depths"] == [0, 3]
    assert described["member_forests"][1]["trees_per_level"] == [1]


def change(data: bytes, name: str, values: Any) -> bytes:
    """Overwrite the first items of one entry."""
    length = int.from_bytes(data[:8], "little")
    begin = 8 + length + json.loads(data[8 : 8 + length])[name]["data_offsets"][0]
    raw = np.asarray(values).tobytes()
    return data[:begin] + raw + data[begin + len(raw) :]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("0/leaves", np.float32([np.nan]), "leaves of forest 0: found an infinite"),
        ("0/anchors", np.uint32([3]), "anchors of forest 0: found 3, expected below 3"),
        ("0/split_idx1", np.uint32([4]), "split_idx1 of level 0 of forest 0: found 4"),
        ("0/tree_depths", np.uint8([3]), "found shape"),
        ("0/trees_per_level", np.int64([2**62, 2**62]), "counts that do not add up"),
        ("0/pool_per_level", np.int64([2**63 - 1]), "counts that do not add up"),
        ("weights", np.float64([0.0]), "finite and positive"),
        ("1/initial_shape", np.float32([0.125]), "another initial shape"),
    ],
)
def test_unsound_arrays_are_refused(name: str, values: Any, message: str) -> None:
    data = change(encode_model(make_ensemble()), name, values)
    with pytest.raises(FormatError, match=message.replace(", ", " at byte .*, ")) as caught:
        decode_model(data)
    assert 0 < caught.value.offset < len(data)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"version":"1"', b'"version":"2"', "metadata version: found 2"),
        (b'"0/anchors"', b'"0/anchorz"', "entries: found '0/anchors' missing"),
        (b'"0/anchors":{"dtype":"U32"', b'"0/anchors":{"dtype":"I32"', "type of 0/anchors"),
    ],
)
def test_other_headers_are_refused(old: bytes, new: bytes, message: str) -> None:
    data = encode_model(make_predictor(), "poolctl-forest")
    assert old in data
    with pytest.raises(FormatError, match=message):
        decode_model(data.replace(old, new))
