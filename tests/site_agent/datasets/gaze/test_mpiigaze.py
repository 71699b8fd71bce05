"""MPIIGaze as published: angles by its own notes, right eyes mirrored, damaged files."""

import shutil
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
import pytest
from scipy.io import savemat

from site_agent.datasets.gaze import matlab_file
from site_agent.datasets.gaze.check import check_gaze, is_gaze_data, open_gaze
from site_agent.datasets.gaze.matlab_file import read_matlab
from site_agent.datasets.gaze.records import gaze_digest
from site_agent.errors import AnnotationFileError, InvalidInputError
from tests.site_agent.datasets.gaze.made import ramp, write_day

# Worked out by hand: straight ahead; 30 degrees to the left of the picture; 45 degrees down.
GAZES = np.array([[0, 0, -1], [-0.5, 0, -np.sqrt(0.75)], [0, np.sqrt(0.5), -np.sqrt(0.5)]])
ANGLES_DEG = np.array([[0, 0], [30, 0], [0, -45]])
# Turns of 20 degrees about y (down) and of -10 degrees about x (right).
POSES = np.deg2rad([[0.0, 20.0, 0.0], [-10.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
HEAD_DEG = np.array([[20, 0], [0, 10], [0, 0]])
NAMES = ["0001.jpg", "0002.jpg", "0005.jpg"]


def day(folder: Path, name: str = "day01", **changed: object) -> Path:
    both = {}
    for eye in ("left", "right"):
        both[eye] = {"gaze": GAZES, "image": ramp(3), "pose": POSES, **changed}
    return write_day(folder / "Data" / "Normalized" / "p00" / f"{name}.mat", both, NAMES)


def test_angles_are_those_of_the_published_conversion(tmp_path: Path) -> None:
    day(tmp_path)
    assert is_gaze_data(tmp_path)
    assert is_gaze_data(tmp_path / "Data" / "Normalized")
    dataset = open_gaze(tmp_path)
    assert (dataset.layout, dataset.persons) == ("mpiigaze", ("p00",))
    samples = dataset.read()
    assert samples.eye.tolist() == ["left"] * 3 + ["right"] * 3
    assert samples.frame.tolist() == [0, 1, 2] * 2
    assert set(samples.session) == {"day01"}
    np.testing.assert_allclose(np.rad2deg(samples.gaze[:3]), ANGLES_DEG, atol=1e-9)
    np.testing.assert_allclose(np.rad2deg(samples.head[:3]), HEAD_DEG, atol=1e-9)
    # Right eyes are mirrored: the picture, and the sign of yaws.
    np.testing.assert_allclose(samples.gaze[3:], samples.gaze[:3] * (-1, 1))
    np.testing.assert_allclose(samples.head[3:], samples.head[:3] * (-1, 1))
    assert (samples.patches[:3] == ramp(3)).all()
    assert (samples.patches[3:] == ramp(3)[:, :, ::-1]).all()


@pytest.mark.parametrize("begin", [b"MATLAB 7.3 MAT-file, Platform: GLNXA64", b"\x89HDF\r\n\x1a\n"])
def test_files_of_matlab_7_3_are_named_as_such(tmp_path: Path, begin: bytes) -> None:
    day(tmp_path).write_bytes(begin.ljust(600, b"\0"))
    with pytest.raises(AnnotationFileError, match=r"MATLAB file of version 7\.3 .*save FILE"):
        open_gaze(tmp_path).read()


def test_any_pose_is_turned_as_opencv_does(tmp_path: Path) -> None:
    poses = np.random.default_rng(0).normal(0, 0.4, (3, 3))
    day(tmp_path, pose=poses)
    samples = open_gaze(tmp_path).read()
    for pose, (yaw, pitch) in zip(poses, samples.head[:3], strict=True):
        x, y, z = cv2.Rodrigues(pose)[0][:, 2]
        assert (yaw, pitch) == pytest.approx((np.arctan2(x, z), np.arcsin(y)))


def test_the_evaluation_subset_is_what_its_lists_name(tmp_path: Path) -> None:
    day(tmp_path)
    day(tmp_path, "day02")
    list_file = tmp_path / "Evaluation Subset" / "sample list for eval" / "p00.txt"
    list_file.parent.mkdir(parents=True)
    list_file.write_text("day02/0005.jpg left\nday01/0001.jpg right\nday01/0002.jpg right\n")
    samples = open_gaze(tmp_path).read(["p00"])
    names = list(zip(samples.session, samples.frame.tolist(), samples.eye, strict=True))
    assert names == [("day01", 0, "right"), ("day01", 1, "right"), ("day02", 2, "left")]
    everything = open_gaze(tmp_path / "Data" / "Normalized")
    assert len(everything.read()) == 12
    assert gaze_digest(everything) != gaze_digest(open_gaze(tmp_path))
    for text, line, message in (
        ("day01/0001.jpg left\nday01/0009.jpg left\n", 2, "names day01/0009.jpg left"),
        ("day01/0001.jpg\n", 1, "expected a line such as"),
    ):
        list_file.write_text(text)
        with pytest.raises(AnnotationFileError, match=message) as caught:
            open_gaze(tmp_path).read()
        assert caught.value.line == line
    with pytest.raises(InvalidInputError, match="no person p07; it has p00"):
        open_gaze(tmp_path).read(["p07"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"image": ramp(2)}, r"image has shape \(2, 36, 60\), expected \(3, 36, 60\)"),
        ({"image": ramp(3) / 255}, "holds float64, expected uint8"),
        ({"gaze": 600 * GAZES}, "not of length 1"),
        ({"gaze": GAZES + np.nan}, "not of length 1"),
        ({"pose": POSES + np.inf}, "not finite"),
    ],
)
def test_values_that_cannot_be(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    file = day(tmp_path, **changed)
    with pytest.raises(AnnotationFileError, match=message) as caught:
        open_gaze(tmp_path).read()
    assert caught.value.path == file


def test_damaged_files(tmp_path: Path) -> None:
    file = day(tmp_path)
    whole = file.read_bytes()
    for content in (whole[:200], whole[:-30], b"", b"no matlab file at all" * 20):
        file.write_bytes(content)
        with pytest.raises(AnnotationFileError, match=r"day01\.mat: .*(whole|lacks)"):
            open_gaze(tmp_path).read()
    file.write_bytes(whole)
    shutil.copytree(file.parent, file.parents[1] / "p01")
    file.write_bytes(whole[:-30])
    findings = check_gaze([tmp_path])
    assert [
        (finding.code, finding.file) for finding in findings if finding.severity == "error"
    ] == [("damaged-file", file)]
    assert {finding.code for finding in findings} >= {"few-samples", "one-session"}
    write_day(file, {"left": {"gaze": GAZES, "image": ramp(3), "pose": POSES}}, NAMES)
    with pytest.raises(AnnotationFileError, match=r"lacks data\.right\.image"):
        open_gaze(tmp_path).read(["p00"])
    with pytest.raises(AnnotationFileError, match="is not gaze data; expected"):
        open_gaze(tmp_path / "Data")


def test_damaged_files_are_refused_and_never_crash(tmp_path: Path) -> None:
    """A general reader crashes the whole program for some of these."""
    whole = day(tmp_path).read_bytes()
    random = np.random.default_rng(0)
    plain = tmp_path / "plain.mat"
    savemat(plain, {"data": {"left": {"gaze": GAZES, "name": "text"}}, "empty": np.empty((0, 0))})
    read = read_matlab(plain.read_bytes())
    np.testing.assert_array_equal(read["data"]["left"]["gaze"], GAZES)
    assert read["data"]["left"]["name"] == "text"
    for content in (whole, plain.read_bytes()):
        for _ in range(1000):
            damaged = bytearray(content)
            for place in random.integers(0, len(damaged), random.integers(1, 8)):
                damaged[place] = random.integers(0, 256)
            with suppress(ValueError):
                read_matlab(bytes(damaged[: random.integers(100, len(damaged) + 1)]))


def test_a_file_that_grows_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matlab_file, "MOST_BYTES", 1 << 16)
    file = tmp_path / "zeros.mat"
    savemat(file, {"zeros": np.zeros(1 << 20)}, do_compression=True)
    with pytest.raises(ValueError, match="holds more than 65,536 bytes"):
        read_matlab(file.read_bytes())
