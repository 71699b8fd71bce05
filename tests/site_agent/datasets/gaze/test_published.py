"""Layouts of published data sets: drawn data in each, and refusals."""

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from site_agent.datasets.gaze import records
from site_agent.datasets.gaze.check import check_gaze, open_gaze
from site_agent.datasets.gaze.published import MOST_OF_A_PERSON
from site_agent.datasets.synthetic.drawing import write_layout
from site_agent.datasets.synthetic.eye_patches.dataset import EyeDrawing
from site_agent.errors import AnnotationFileError, InvalidInputError
from site_agent.networks.views import GRID_CHANNEL, VIEWS
from site_agent.work import no_progress

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
