"""Faults of data stop every training, test and contribution, unless the user goes on."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from cli.frame.app import main
from site_agent.datasets.conversion import copy_images
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.imglab_xml import read_imglab_xml, write_imglab_xml
from site_agent.datasets.records import FaceBox, FaceDataset
from site_agent.datasets.soundness import require_sound
from site_agent.errors import UnsoundDataError
from site_agent.evaluation.model_runs import evaluate_model
from site_agent.training.ert import ErtSettings, train_ert
from site_agent.training.hog_svm import train_hog_svm
from tests.site_agent.datasets.gaze.made import folder_of, samples_of

QUICK = ErtSettings(num_trees_per_cascade_level=4, cascade_depth=2, tree_depth=2)
ORIENTATION = 0x0112


def flipped(faces: FaceDataset, folder: Path) -> FaceDataset:
    """Return mirrored pictures with landmarks named as on the other side."""
    folder.mkdir()
    images = []
    for image in faces.images:
        path = folder / image.path.name
        with Image.open(image.path) as picture:
            width = picture.width
            ImageOps.mirror(picture).save(path)

        def turned(box: FaceBox, width: int = width) -> FaceBox:
            parts = {name: (width - 1 - x, y) for name, (x, y) in box.parts.items()}
            return replace(box, left=width - 1 - box.right, parts=parts)

        images.append(replace(image, path=path, boxes=tuple(map(turned, image.boxes))))
    write_imglab_xml(replace(faces, images=tuple(images)), folder / "faces.xml")
    return read_imglab_xml(folder / "faces.xml")


def turned_by_exif(faces: FaceDataset, folder: Path, *, declare: bool) -> FaceDataset:
    """Return pictures that are stored lying, with the annotations of the upright ones."""
    folder.mkdir()
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    images = []
    for image in faces.images:
        path = folder / f"{image.path.stem}.jpg"
        with Image.open(image.path) as picture:
            # Not square, so that the declared size says which one was annotated.
            upright = ImageOps.expand(picture.convert("RGB"), (0, 0, 40, 0))
            upright.transpose(Image.Transpose.ROTATE_90).save(path, exif=exif, quality=95)
        size = upright.size if declare else (None, None)
        images.append(replace(image, path=path, width_px=size[0], height_px=size[1]))
    write_imglab_xml(replace(faces, images=tuple(images)), folder / "faces.xml")
    return read_imglab_xml(folder / "faces.xml")


def some(faces: FaceDataset, count: int = 8) -> FaceDataset:
    return replace(faces, images=faces.images[:count])


def test_flipped_faces_with_sides_not_exchanged_stop_training_and_test(
    training_faces: FaceDataset, tmp_path: Path
) -> None:
    wrong = flipped(some(training_faces), tmp_path / "flipped")
    with pytest.raises(UnsoundDataError, match=r"left and right exchanged.*and 7 more"):
        train_ert(wrong, tmp_path / "a.dat", QUICK)
    assert not (tmp_path / "a.dat").exists()
    result = train_ert(wrong, tmp_path / "a.dat", QUICK, despite_findings=True)
    written = json.loads(result.metadata_path.read_text())
    assert written["suggested_labels"]["despite_findings"] == "part-order (8)"
    with pytest.raises(UnsoundDataError, match="left and right exchanged"):
        evaluate_model(tmp_path / "a.dat", wrong)
    # A detector takes the boxes alone, and they are right.
    assert require_sound(wrong, use="boxes").despite == ()


@pytest.mark.parametrize(("declare", "reason"), [(True, "declared as"), (False, "stand upright")])
def test_annotations_of_pictures_as_exif_turns_them_stop_training(
    training_faces: FaceDataset, tmp_path: Path, declare: bool, reason: str
) -> None:
    wrong = turned_by_exif(some(training_faces), tmp_path / "turned", declare=declare)
    for train, name in ((train_ert, "a.dat"), (train_hog_svm, "a.svm")):
        with pytest.raises(UnsoundDataError, match=rf"EXIF orientation \(6\).*{reason}"):
            train(wrong, tmp_path / name)
    mended = copy_images(wrong, tmp_path / "upright", upright=True)
    require_sound(mended)
    for image, before in zip(mended.images, training_faces.images, strict=False):
        with Image.open(image.path) as ours, Image.open(before.path) as right:
            sides = np.asarray(right.convert("L"), float)
            assert ours.getexif().get(ORIENTATION, 1) == 1
            seen = np.asarray(ours.convert("L"), float)[:, : sides.shape[1]]
            assert np.abs(seen - sides).mean() < 4


def test_infants_filmed_lying_pass_where_the_annotations_are_of_the_stored_picture(
    training_faces: FaceDataset, tmp_path: Path
) -> None:
    """Their faces stand upright in the picture as it is stored, and lie in the upright one."""
    lying = turned_by_exif(some(training_faces, 2), tmp_path / "turned", declare=False)
    with pytest.raises(UnsoundDataError, match="stand upright"):
        require_sound(lying)
    with Image.open(lying.images[0].path) as picture:
        width, height = picture.size
    stored = [replace(image, width_px=width, height_px=height) for image in lying.images]
    require_sound(replace(lying, images=tuple(stored)))


def test_boxes_that_fit_into_the_turned_picture_alone_tell_exif(
    training_faces: FaceDataset, tmp_path: Path
) -> None:
    right = some(training_faces.with_boxes(lambda box: replace(box, parts={})), 3)
    far = right.with_boxes(lambda box: replace(box, left=239 - box.width))
    wrong = turned_by_exif(far, tmp_path / "turned", declare=False)
    with pytest.raises(UnsoundDataError, match="a box fits only into the turned one"):
        train_hog_svm(wrong, tmp_path / "a.svm")


def test_warnings_are_logged_once(
    training_faces: FaceDataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    again = replace(training_faces.images[0], line=0)
    twice = replace(training_faces, images=(*training_faces.images[:2], again))
    with caplog.at_level(logging.WARNING):
        assert require_sound(twice).details == {}
        require_sound(twice)
    (line,) = [text for text in caplog.messages if "same picture" in text]
    assert "counted twice" in line


def test_samples_named_twice_stop_the_training_of_a_network(tmp_path: Path) -> None:
    table = folder_of(tmp_path / "eyes", samples_of())
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines, lines[1]]) + "\n")
    with pytest.raises(UnsoundDataError, match="named twice"):
        require_sound(open_gaze(table))
    assert require_sound(open_gaze(table), despite_findings=True).despite == (
        "duplicate-sample (1)",
    )


def test_commands_stop_and_say_how_to_go_on(
    training_faces: FaceDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faces = flipped(some(training_faces, 4), tmp_path / "flipped").path
    quick = ["--set", "num_trees_per_cascade_level=2", "--set", "cascade_depth=2"]
    train = ["train", "ert", str(faces), "-o", str(tmp_path / "a.dat"), *quick]
    assert main(train) == 5
    assert "--despite-findings" in capsys.readouterr().err
    assert main([*train, "--despite-findings"]) == 0
    assert "have left and right exchanged" in capsys.readouterr().err
    test = ["evaluate", str(tmp_path / "a.dat"), str(faces), "--json"]
    assert main(test) == 5
    capsys.readouterr()
    assert main([*test, "--despite-findings", "--save"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["data"]["items"]
    assert item["despite_findings"] == ["part-order (4)"]
    saved = json.loads((tmp_path / "a.dat.evaluation.json").read_text())
    assert saved["despite_findings"] == ["part-order (4)"]
