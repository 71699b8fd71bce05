"""Recognising, reading and writing model files."""

import bz2
import gzip
import io
import os
import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest

from aggregators.errors import ConversionError, FormatError, UnknownFormatError
from aggregators.formats import encode_model, file_digest, read_model, recognise, write_model
from aggregators.models import ShapePredictor
from aggregators.whole_file import write_whole
from tests.aggregators.formats.examples import make_detector, make_ensemble, make_predictor


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


def test_reading_ignores_the_name(tmp_path: Path) -> None:
    path = tmp_path / "detector.dat"
    path.write_bytes(encode_model(make_detector()))
    assert recognise(path).name == "dlib-fhog-detector"


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
