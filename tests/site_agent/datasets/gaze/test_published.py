"""Layouts of published data sets: angles, drawn data in each, and refusals."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import pytest
from scipy.io import savemat

from site_agent.datasets.gaze import matlab_file, records
from site_agent.datasets.gaze.check import check_gaze, is_gaze_data, open_gaze
from site_agent.datasets.gaze.matlab_file import read_matlab
from site_agent.datasets.gaze.published import MOST_OF_A_PERSON
from site_agent.datasets.gaze.records import gaze_digest
from site_agent.datasets.synthetic.drawing import write_layout
from site_agent.datasets.synthetic.eye_patches.dataset import EyeDrawing
from site_agent.errors import AnnotationFileError, InvalidInputError
from site_agent.networks.views import GRID_CHANNEL, VIEWS
from site_agent.work import no_progress
from tests.site_agent.datasets.gaze.made import ramp, write_day

LAYOUTS = ("mpiifacegaze", "gazecapture", "nvgaze", "lpw")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return two persons of about 12 frames in each layout."""
    folder = tmp_path_factory.mktemp("published")
    for layout in LAYOUTS:
        settings = EyeDrawing(layout=layout, persons=2, frames_per_person=12, sessions=(2, 2))
        write_layout(folder / layout, settings, no_progress)
    return {layout: folder / layout for layout in LAYOUTS}


def copy_of(folder: Path, target: Path) -> Path:
    for file in folder.rglob("*"):
        if file.is_file():
            place = target / file.relative_to(folder)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read_bytes())
    return target


def edit_json(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_drawn_data_are_recognised_and_read(drawn: dict[str, Path], layout: str) -> None:
    dataset = open_gaze(drawn[layout])
    samples = dataset.read()
    assert (dataset.layout, len(dataset.persons)) == (layout, 2)
    assert samples.patches.shape == (len(samples), *dataset.view.shape)
    assert samples.patches.std() > 10
    assert np.abs(samples.gaze).max() <= dataset.view.target.far
    errors = [finding for finding in check_gaze([drawn[layout]]) if finding.severity == "error"]
    assert not errors


def test_a_data_set_is_only_seen_as_what_it_holds(drawn: dict[str, Path]) -> None:
    faces = open_gaze(drawn["mpiifacegaze"])
    larger = faces.seen_as(VIEWS["face-448"]).read(["p00"])
    assert larger.patches.shape[1:] == (3, 448, 448)
    for layout, view in (("mpiifacegaze", "eye"), ("lpw", "near-eye"), ("gazecapture", "face")):
        with pytest.raises(InvalidInputError, match="the network takes"):
            open_gaze(drawn[layout]).seen_as(VIEWS[view])
    with pytest.raises(InvalidInputError) as refused:
        open_gaze(drawn["nvgaze"]).seen_as(VIEWS["eye"])
    assert refused.value.hint == "for these pictures train with --set architecture=near-eye"


def test_a_table_of_near_eye_pictures_without_gaze_is_named(tmp_path: Path) -> None:
    (tmp_path / "01").mkdir()
    (tmp_path / "01.csv").write_text("imagefile,eye,yaw,pitch\na.png,L,0,0\n")
    with pytest.raises(AnnotationFileError, match=r"01\.csv, line 1: .*yaw, pitch; expected one"):
        open_gaze(tmp_path).read()


def test_faces_that_lie_are_refused(drawn: dict[str, Path], tmp_path: Path) -> None:
    with h5py.File(drawn["mpiifacegaze"] / "p00.mat") as file:
        data, label = file["Data/data"][:], file["Data/label"][:]
    label[:, 4::2], label[:, 5::2] = label[:, 5::2].copy(), label[:, 4::2].copy()
    with h5py.File(tmp_path / "p00.mat", "w") as file:
        file["Data/data"], file["Data/label"] = data.transpose(0, 1, 3, 2), label
    with pytest.raises(AnnotationFileError, match="expected upright faces"):
        open_gaze(tmp_path).read()


def test_colours_and_angles_of_faces_are_in_their_order(tmp_path: Path) -> None:
    data = np.zeros((1, 3, 448, 448), dtype=np.uint8)
    data[:, 0] = 200  # blue comes first
    with h5py.File(tmp_path / "p07.mat", "w") as file:
        file["Data/data"], file["Data/label"] = data, [[0.1, 0.2, 0.3, 0.4]]
    samples = open_gaze(tmp_path).read()
    assert samples.patches[0, :, 5, 5].tolist() == [0, 0, 200]
    assert samples.gaze.tolist() == [[0.2, 0.1]], "yaw, pitch"
    assert samples.head.tolist() == [[0.4, 0.3]]


def test_phones_give_centimetres_and_the_persons_own_left(
    drawn: dict[str, Path], tmp_path: Path
) -> None:
    folder = copy_of(drawn["gazecapture"], tmp_path / "gc")
    person = folder / "00001"
    grid = json.loads((person / "faceGrid.json").read_text())
    dots = json.loads((person / "dotInfo.json").read_text())
    samples = open_gaze(folder).read(["00001"])
    valid = np.flatnonzero(grid["IsValid"])
    assert samples.frame.tolist() == valid.tolist()
    np.testing.assert_allclose(10 * samples.gaze[:, 0], np.array(dots["XCam"])[valid])
    cells = samples.patches[0, GRID_CHANNEL] > 0
    assert cells.mean() == pytest.approx(grid["W"][0] * grid["H"][0] / 625, rel=0.1)
    assert cells[: int((grid["Y"][0] - 1) * 224 / 25)].sum() == 0, "the grid counts from 1"
    texts = [finding.text for finding in check_gaze([folder])]
    assert any("1 of 10 frames are left out: no valid face" in text for text in texts)

    (person / "frames" / "00000.jpg").unlink()
    assert any("their pictures are missing" in item.text for item in check_gaze([folder]))
    left = (person / "appleLeftEye.json").read_bytes()
    (person / "appleLeftEye.json").write_bytes((person / "appleRightEye.json").read_bytes())
    (person / "appleRightEye.json").write_bytes(left)
    with pytest.raises(AnnotationFileError, match="person's own left eye"):
        open_gaze(folder).read(["00001"])


def test_phones_with_files_that_do_not_fit_are_refused(
    drawn: dict[str, Path], tmp_path: Path
) -> None:
    folder = copy_of(drawn["gazecapture"], tmp_path / "gc")
    edit_json(folder / "00000" / "dotInfo.json", XCam=[1.0])
    with pytest.raises(AnnotationFileError, match=r"dotInfo\.json"):
        open_gaze(folder).read(["00000"])
    (folder / "00001" / "appleFace.json").unlink()
    with pytest.raises(AnnotationFileError, match=r"appleFace\.json: found no such file"):
        open_gaze(folder).read(["00001"])


def test_crops_stand_for_missing_frames(drawn: dict[str, Path], tmp_path: Path) -> None:
    folder = copy_of(drawn["gazecapture"], tmp_path / "gc")
    person = folder / "00000"
    for part in ("appleFace", "appleLeftEye", "appleRightEye"):
        copy_of(person / "frames", person / part)
    for file in (person / "frames").iterdir():
        file.unlink()
    assert len(open_gaze(folder).read(["00000"]))


def test_near_eye_gaze_is_in_radians_and_right_eyes_are_mirrored(
    drawn: dict[str, Path], tmp_path: Path
) -> None:
    folder = copy_of(drawn["nvgaze"], tmp_path / "nv")
    samples = open_gaze(folder).read(["01"])
    table = folder / "01.csv"
    lines = table.read_text().splitlines()
    name, side, x, _ = lines[3].split(",")
    assert (name, side, samples.eye[1]) == ("000001.jpg", "R", "right")
    assert samples.gaze[1, 0] == -float(x)
    # A pupil left of the middle looks to the person's right.
    dark = samples.patches[:, 0] < 30
    place = np.array([np.nonzero(eye)[1].mean() for eye in dark])
    assert np.corrcoef(place, samples.gaze[:, 0])[0, 1] < -0.9

    degrees = [line.rsplit(",", 2)[0] + ",12.5,-3.0" for line in lines[2:]]
    table.write_text("\n".join([*lines[:2], *degrees]))
    with pytest.raises(AnnotationFileError, match=r"line 3: .*expected angles in radians"):
        open_gaze(folder).read(["01"])
    table.write_text("\n".join(["imagefile,eye,gaze_x_degree,gaze_y_degree", *degrees]))
    turned = open_gaze(folder).read(["01"]).gaze[0]
    np.testing.assert_allclose(turned, np.deg2rad([12.5, -3.0]))


def test_of_many_near_eye_pictures_some_are_used_and_it_is_said(
    drawn: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site_agent.datasets.gaze.published.MOST_OF_A_PERSON", 4)
    assert len(open_gaze(drawn["nvgaze"]).read(["02"])) == 4
    assert any("4 of 02, evenly spaced" in item.text for item in check_gaze([drawn["nvgaze"]]))
    assert MOST_OF_A_PERSON == 3000


def test_pupils_are_read_from_videos(drawn: dict[str, Path], tmp_path: Path) -> None:
    folder = copy_of(drawn["lpw"], tmp_path / "lpw")
    samples = open_gaze(folder).read(["1"])
    dark = np.array([np.argwhere(eye[0] < 40).mean(axis=0) for eye in samples.patches])
    across = (dark[:, 1] + 0.5) / 127 - 0.5
    np.testing.assert_allclose(across, samples.gaze[:, 0], atol=0.01)
    high = ((dark[:, 0] + 0.5) / 127 - 0.5) * 480 / 640
    np.testing.assert_allclose(high, samples.gaze[:, 1], atol=0.01)

    table = folder / "1" / "1.txt"
    lines = table.read_text().splitlines()
    table.write_text("\n".join(["-1 -1", *lines[1:]]))
    assert len(open_gaze(folder).read(["1"])) == len(samples) - 1
    assert any("no pupil within the picture" in item.text for item in check_gaze([folder]))
    table.write_text("\n".join(lines[1:]))
    with pytest.raises(AnnotationFileError, match=f"lines for the {len(lines)} frames"):
        open_gaze(folder).read(["1"])
    table.unlink()
    with pytest.raises(AnnotationFileError, match=r"is missing; it has the pupils of 1\.avi"):
        open_gaze(folder).read(["1"])


def test_errors_are_in_the_unit_of_the_target() -> None:
    answers, true = np.array([[0.3, 0.0]]), np.array([[0.0, 0.4]])
    screen, pupil = (VIEWS[name].target for name in ("face-eyes-grid", "near-eye-pupil"))
    assert records.target_errors(screen, answers, true)[0] == pytest.approx(5.0)
    assert records.target_errors(pupil, answers, true)[0] == pytest.approx(320.0)
    assert screen.named("mean_error_deg") == "mean_error_cm"


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
