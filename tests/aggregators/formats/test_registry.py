"""Recognising, reading and writing model files; the project's forest file."""

import bz2
import gzip
import io
import json
import os
import resource
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators.errors import ConversionError, FormatError, UnknownFormatError
from aggregators.formats import (
    decode_model,
    encode_model,
    file_digest,
    fingerprint,
    read_model,
    recognise,
    write_model,
)
from aggregators.models import ShapePredictor
from aggregators.whole_file import write_whole
from tests.aggregators.formats.examples import assert_equal_models, make_ensemble, make_predictor
from tests.benchmarks.paper_size import make_paper_size_predictor


def make_zip(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, b"content")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "only 0 bytes"),
        (bz2.compress(encode_model(make_predictor())), "bunzip2"),
        (gzip.compress(b"model", mtime=0), "gunzip"),
        (make_zip("archive/data.pkl"), "PyTorch file .* safetensors.torch"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (
            b"\x01\x01\x01\x0aloss_mmod_\x01\x02",
            r"a neural network of dlib \(loss_mmod\).* HOG-SVM detector",
        ),
        (bytes.fromhex("0000002066747970") + b"isom....", r"a video \(MP4\).*expected a model"),
        (b"RIFF\x24\xff\0\0AVI LIST....", r"a video \(AVI\)"),
        (b"\x89PNG\r\n\x1a\n....", r"a picture \(PNG\)"),
        (b'{"images": []}', r"a text \(JSON\)"),
        ("file,person\na.png,Zoé".encode()[:-1], r"a table \(CSV\)"),
        (b"Dear colleagues", "a text at byte 0, expected a model"),
        (b"BM\xff\x01\0\0\0\0\0\0\xff", "a picture"),
        (bytes(range(200, 250)), "bytes c8 c9 ca .* expected one of: .*dlib"),
    ],
)
def test_unknown_files_get_advice(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "model.dat"
    path.write_bytes(content)
    for read in (recognise, read_model):
        with pytest.raises(
            UnknownFormatError, match=rf"model\.dat: file format: found .*{message}"
        ):
            read(path)


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        ("a.dat", "dlib-shape-predictor"),
        ("a.v2.FOREST", "poolctl-forest"),
        ("a", "dlib-shape-predictor"),
        ("a.model", "dlib-shape-predictor"),
    ],
)
def test_the_suffix_chooses_the_format(tmp_path: Path, name: str, format_name: str) -> None:
    write_model(make_predictor(), tmp_path / name)
    assert recognise(tmp_path / name).name == format_name


def test_a_format_that_cannot_hold_the_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"a\.dat: .*WBA ensemble; use poolctl-f"):
        write_model(make_ensemble(), tmp_path / "a.dat")
    with pytest.raises(ConversionError, match="found 'onnx', expected one of dlib-fhog-detector"):
        write_model(make_ensemble(), tmp_path / "a", format_name="onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.dat"
    digest = write_model(make_predictor(), path)
    model = make_predictor(1)
    leaves = model.leaves.copy()
    leaves[-1] = np.nan  # found when half of the file is written
    with pytest.raises(ConversionError, match="leaf value of tree 0 of level 1"):
        write_model(ShapePredictor(**{**vars(model), "leaves": leaves}), path)
    assert [item.name for item in tmp_path.iterdir()] == ["model.dat"]
    assert file_digest(path) == digest


@pytest.mark.timeout(20)
def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="a pipe or device"):
        read_model(tmp_path / "pipe")


def test_where_there_is_no_room_file_and_size_are_named(tmp_path: Path) -> None:
    path = tmp_path / "merged.dat"
    path.write_bytes(b"old")
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
    try:
        with pytest.raises(
            OSError, match=r"100,000 bytes of it were written; [0-9,]+ are free"
        ) as no:
            write_whole(path, bytes(1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))
    assert no.value.filename == str(path)
    assert [path.name for path in tmp_path.iterdir()] == ["merged.dat"]
    assert path.read_bytes() == b"old"


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
