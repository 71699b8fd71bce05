"""``poolctl convert``, and dlib reading what it wrote."""

from __future__ import annotations

from pathlib import Path

import dlib
import numpy as np
import pytest

from aggregators.formats import file_digest
from tests.cli.conftest import Run

IMAGE = np.random.default_rng(0).integers(0, 256, (140, 160), dtype=np.uint8)
TO_PYTHON = ("--detector-kind", "simple_object_detector")
TO_CPP = ("--detector-kind", "object_detector")


def found_by(detector: object) -> list[tuple[int, int, int, int]]:
    boxes = detector(IMAGE)  # type: ignore[operator]
    return [(box.left(), box.top(), box.right(), box.bottom()) for box in boxes]


@pytest.fixture
def frontal(tmp_path: Path) -> Path:
    """dlib's own detector of five orientations, in a file as C++ writes it."""
    path = tmp_path / "frontal.svm"
    path.write_bytes(dlib.get_frontal_face_detector().__getstate__()[0])
    return path


def test_detectors_are_written_for_cpp_and_for_python(
    poolctl: Run, frontal: Path, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError):
        dlib.simple_object_detector(str(frontal))
    python, cpp = tmp_path / "python.svm", tmp_path / "cpp.svm"
    shown = poolctl("convert", frontal, "-o", python, *TO_PYTHON, "--upsample", 1, "--json")
    assert (shown.data["detector_kind"], shown.data["upsampling"]) == ("simple_object_detector", 1)
    assert shown.data["digest"] == file_digest(python)
    assert "now 1 times" in shown.err
    loaded = dlib.simple_object_detector(str(python))
    assert (loaded.num_detectors, loaded.upsampling_amount) == (5, 1)
    again = poolctl("convert", python, "-o", cpp, *TO_CPP, "--json")
    assert (again.data["detector_kind"], again.data["upsampling"]) == ("object_detector", None)
    assert cpp.read_bytes() == frontal.read_bytes()
    plain = dlib.fhog_object_detector(str(cpp))
    assert found_by(plain) == found_by(dlib.get_frontal_face_detector())
