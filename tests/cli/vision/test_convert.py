"""``poolctl convert``, dlib reading its output, and the commands with a pruned network."""

from pathlib import Path

import dlib
import numpy as np
import pytest

from aggregators import merge, read_model, write_model
from aggregators.formats import file_digest
from aggregators.models import StateDict
from aggregators.pruning import prune, weights_of_layers
from tests.aggregators.methods.networks.small_rounds import make_state_dict
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
        ((several, "-o", one), 7, "already exists"),
        ((tmp_path / "none.svm", "-o", out), 4, "none.svm"),
    ]
    for arguments, code, text in wrong:
        outcome = poolctl("convert", *arguments, "--json")
        assert outcome.code == code, (arguments, outcome)
        assert text in outcome.error["message"], outcome.error
    assert sorted(tmp_path.iterdir()) == before
    assert poolctl("convert", one, "-o", out).code == 0
    write_model(sub_models[0], tmp_path / "first.dat")
    assert out.read_bytes() == (tmp_path / "first.dat").read_bytes()
    assert poolctl("convert", several, "-o", one, "--force").code == 0


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """A network of one convolution and two linear layers."""
    random = np.random.default_rng(0)
    shapes = {
        "conv.weight": (4, 1, 5, 5),
        "conv.bias": (4,),
        "fc1.weight": (50, 100),
        "fc2.weight": (2, 50),
    }
    path = tmp_path / "gaze.safetensors"
    write_model(
        make_state_dict(
            {name: random.normal(size=shape).astype("f4") for name, shape in shapes.items()},
            architecture="small",
        ),
        path,
    )
    return path


def zeros_in(path: Path) -> dict[str, int]:
    network = read_model(path)
    assert isinstance(network, StateDict)
    return {name: int((tensor == 0).sum()) for name, tensor in network.tensors.items()}


def test_a_pruned_network_goes_through_the_commands(
    poolctl: Run, network: Path, tmp_path: Path
) -> None:
    sparse, dense = tmp_path / "gaze.sparse", tmp_path / "pruned.safetensors"
    pruned = read_model(network)
    assert isinstance(pruned, StateDict)
    write_model(prune(pruned, weights_of_layers(pruned, "linear"), 0.9), sparse)
    assert zeros_in(sparse) == {
        "conv.weight": 0, "conv.bias": 0, "fc1.weight": 4500, "fc2.weight": 90
    }  # fmt: skip
    assert sparse.stat().st_size < network.stat().st_size / 4
    assert poolctl("convert", sparse, "-o", dense).code == 0
    assert zeros_in(dense) == zeros_in(sparse)
    again = tmp_path / "again.sparse"
    assert poolctl("convert", dense, "-o", again).code == 0
    assert again.read_bytes() == sparse.read_bytes()
    inspected = poolctl("inspect", sparse, "--json").data
    assert inspected["format"] == "poolctl-sparse"
    assert "fedavg" in inspected["merge_keys"]
    assert inspected["merge_keys"] == poolctl("inspect", network, "--json").data["merge_keys"]
    merged = tmp_path / "merged.safetensors"
    assert poolctl("merge", "fedavg", sparse, network, "-o", merged).code == 0
    refused = poolctl("merge", "fedavg", sparse, network, "-o", tmp_path / "merged.sparse")
    assert "use safetensors" in refused.err
