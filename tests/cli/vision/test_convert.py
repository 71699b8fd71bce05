"""``poolctl convert``, and dlib reading its output."""

from pathlib import Path

import dlib
import numpy as np
import pytest

from aggregators import merge, write_model
from aggregators.formats import file_digest
from tests.aggregators.small_models import make_detector, make_network, make_predictor
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


def test_landmark_models_go_to_forest_files_and_back(poolctl: Run, tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("a.dat", "a.forest", "again.dat", "half.forest")}
    write_model(make_predictor(1), paths["a.dat"])
    assert poolctl("convert", paths["a.dat"], "-o", paths["a.forest"]).code == 0
    assert poolctl("convert", paths["a.forest"], "-o", paths["again.dat"], "-q").code == 0
    assert paths["again.dat"].read_bytes() == paths["a.dat"].read_bytes()
    half = ("-o", paths["half.forest"], "--format", "poolctl-forest-half", "--json")
    shown = poolctl("convert", paths["a.dat"], *half)
    assert shown.data["format"] == "poolctl-forest-half"
    assert "rounds" in shown.err
    back = tmp_path / "back.dat"
    assert poolctl("convert", paths["half.forest"], "-o", back).code == 0
    rect = dlib.rectangle(20, 20, 119, 119)
    places = [
        [(point.x, point.y) for point in dlib.shape_predictor(str(path))(IMAGE, rect).parts()]
        for path in (paths["a.dat"], back)
    ]
    assert np.abs(np.array(places[0]) - np.array(places[1])).max() <= 1


def test_what_a_format_cannot_hold_is_said(poolctl: Run, tmp_path: Path) -> None:
    sub_models = [make_predictor(seed, initial_shape=make_predictor(1).initial_shape)
                  for seed in (1, 2)]  # fmt: skip
    several, network = tmp_path / "several.forest", tmp_path / "gaze.safetensors"
    one, detector = tmp_path / "one.forest", tmp_path / "faces.svm"
    merge("wba-final", sub_models, output=several)
    merge("wba-final", sub_models[:1], output=one)
    write_model(make_network(1), network)
    write_model(make_detector(1), detector)
    before = sorted(tmp_path.iterdir())
    out = tmp_path / "out.dat"
    wrong = [
        ((several, "-o", out), 6, "wba-cascade"),
        ((network, "-o", out), 6, "cannot hold a network; use safetensors"),
        ((detector, "-o", out), 6, "dlib-fhog-detector (.svm)"),
        ((detector, "-o", detector), 2, "choose another name"),
        ((several, "-o", one), 7, "another model already exists"),
        ((tmp_path / "none.svm", "-o", out), 4, "none.svm"),
    ]
    for arguments, code, text in wrong:
        outcome = poolctl("convert", *arguments, "--json")
        assert outcome.code == code, (arguments, outcome)
        assert text in outcome.error["message"], outcome.error
    planned = poolctl("convert", one, "-o", out, "--dry-run", "--json")
    assert planned.data["converted"] is False
    assert sorted(tmp_path.iterdir()) == before
    assert poolctl("convert", one, "-o", out).code == 0
    write_model(sub_models[0], tmp_path / "first.dat")
    assert out.read_bytes() == (tmp_path / "first.dat").read_bytes()
    assert poolctl("convert", one, "-o", out).code == 0, "the same bytes"
    assert poolctl("convert", several, "-o", one, "--force").code == 0
