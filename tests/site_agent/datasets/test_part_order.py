"""Landmarks: their order, groups and names; faces flipped, turned, or named twice."""

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from cli.frame.app import main
from site_agent.datasets.check import check_datasets
from site_agent.datasets.conversion import copy_images, renumber_parts
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.imglab_xml import read_imglab_xml, write_imglab_xml
from site_agent.datasets.landmark_schemes import (
    IBUG_MIRROR,
    PART_GROUPS,
    expand_parts,
    ibug_mean_face,
)
from site_agent.datasets.part_order import (
    find_model_parts,
    group_of_shape,
    misordered_faces,
    order_problem,
    unsorted_names,
)
from site_agent.datasets.records import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    numbered_parts,
    part_names,
    parts_array,
)
from site_agent.datasets.soundness import require_sound
from site_agent.errors import UnsoundDataError
from site_agent.training.ert import train_ert
from site_agent.training.hog_svm import train_hog_svm
from site_agent.training_record import metadata_path
from tests.site_agent.datasets.drawn import face_box, face_points, faces_in
from tests.site_agent.datasets.gaze.made import folder_of, samples_of

BY_TEXT = sorted(range(68), key=str)

BY_TEXT_FROM_1 = [number - 1 for number in sorted(range(1, 69), key=str)]

NAMES = tuple(f"{number:02}" for number in range(68))


def with_points(points: np.ndarray) -> FaceDataset:
    return FaceDataset(None, images=(AnnotatedImage(Path("a.png"), (face_box(points),)),))


def told(dataset: FaceDataset) -> list[tuple[str, bool]]:
    faces = misordered_faces(dataset, part_names(dataset))
    return [(text, certain) for _, _, text, certain in faces]


@pytest.mark.parametrize("degrees", [0, 90])
def test_faces_in_order_are_left_alone(degrees: float) -> None:
    for seed in range(5):
        assert told(with_points(face_points(seed, degrees=degrees))) == []


@pytest.mark.parametrize("degrees", [0, 90])
@pytest.mark.parametrize(
    ("order", "message"),
    [
        (list(IBUG_MIRROR), "left and right"),
        ([*range(36), *range(42, 48), *range(36, 42), *range(48, 68)], "right eye exchanged"),
        (BY_TEXT, "numbers as text"),
        (BY_TEXT_FROM_1, "numbers as text"),
        ([*range(1, 68), 0], "too early"),
        ([67, *range(67)], "too late"),
    ],
)
def test_each_wrong_order_is_named(order: list[int], message: str, degrees: float) -> None:
    [(text, certain)] = told(with_points(face_points(3, degrees=degrees)[order]))
    assert certain
    assert message in text


@pytest.mark.parametrize(
    ("order", "mirrored", "message"),
    [
        (range(36, 48), 1, ""),
        (range(36, 48), -1, "upside down, or have left and right exchanged"),
        ((*range(42, 48), *range(36, 42)), 1, "right eye exchanged"),
    ],
)
def test_eyes_alone_with_sides_exchanged_are_told(
    order: Sequence[int], mirrored: int, message: str
) -> None:
    points = face_points(3) * (mirrored, 1)
    parts = {f"{36 + i}": tuple(points[number]) for i, number in enumerate(order)}
    image = AnnotatedImage(Path("a.png"), (FaceBox(0, 0, 50, 50, parts),))
    texts = [text for text, _ in told(FaceDataset(None, images=(image,)))]
    assert [message in text for text in texts] == [True] * bool(message)


def test_an_excerpt_and_missing_landmarks() -> None:
    points = face_points(2)
    eyes = {f"{i}": tuple(points[i]) for i in range(36, 68)}
    swapped = {f"{i}": tuple(points[IBUG_MIRROR[i]]) for i in range(36, 68)}
    for parts, count in ((eyes, 0), (swapped, 1)):
        image = AnnotatedImage(Path("a.png"), (FaceBox(0, 0, 50, 50, parts),))
        assert len(told(FaceDataset(None, images=(image,)))) == count
    holes = points.copy()
    holes[5:20] = np.nan
    box = face_box(holes)
    box = replace(box, parts={k: at for k, at in box.parts.items() if np.isfinite(at).all()})
    whole = AnnotatedImage(Path("b.png"), (face_box(points),))
    assert told(FaceDataset(None, images=(AnnotatedImage(Path("a.png"), (box,)), whole))) == []


def test_other_schemes_are_held_against_each_other() -> None:
    shape = ibug_mean_face()[[0, 8, 16, 30, 36, 39, 42, 45, 48, 54]]
    images = []
    rng = np.random.default_rng(5)
    for i in range(8):
        points = shape + rng.normal(0, 3, shape.shape)
        if i == 6:
            points = points * (-1, 1)
        images.append(
            AnnotatedImage(Path(f"{i}.png"), (FaceBox(0, 0, 50, 50, numbered_parts(points)),))
        )
    dataset = FaceDataset(None, images=tuple(images))
    faces = list(misordered_faces(dataset, part_names(dataset)))
    assert [image.path.name for image, *_ in faces] == ["6.png"]
    few = FaceDataset(None, images=tuple(images[5:8]))
    assert list(misordered_faces(few, part_names(few))) == []


def test_names_without_leading_zeros(tmp_path: Path) -> None:
    assert unsorted_names(["1", "2", "10"]) == "'10' comes before '2'"
    assert unsorted_names(["01", "02", "10"]) == ""
    assert unsorted_names(["nose", "1"]) == ""
    assert unsorted_names(["p1", "p2", "p10"]) == "'p10' comes before 'p2'"
    dataset = faces_in(tmp_path, 2)

    def renamed(box: FaceBox) -> FaceBox:
        return replace(box, parts={str(int(name)): at for name, at in box.parts.items()})

    images = [
        replace(image, boxes=tuple(renamed(box) for box in image.boxes)) for image in dataset.images
    ]
    bad = replace(dataset, images=tuple(images))
    [finding] = check_datasets([bad])
    assert (finding.code, finding.severity) == ("names-unsorted", "error")
    mended = renumber_parts(bad)
    assert mended == dataset
    assert check_datasets([mended]) == []


def test_words_for_landmarks() -> None:
    assert expand_parts(["eyes"], NAMES) == (NAMES[36:48], [])
    assert expand_parts(["right_eye", "36-38", "00"], NAMES) == (("00", *NAMES[36:42]), [])
    assert expand_parts(["Mouth"], [f"{i}" for i in range(1, 69)])[0][0] == "49"
    assert expand_parts(["eyes", "a"], ["a", "b"]) == (("a",), ["eyes"])
    assert expand_parts(["mouth", "70-80"], NAMES[36:48]) == ((), ["mouth", "70-80"])


def test_every_group_is_known_by_its_mean_on_photographs(shared_data: Path) -> None:
    faces = read_imglab_xml(shared_data / "dlib_faces" / "training_with_face_landmarks.xml")
    names = part_names(faces)
    shapes = []
    for _, box in faces.boxes():
        left, top, right, bottom = box.corners
        shapes.append((parts_array(box, names) - [left, top]) / [right - left, bottom - top])
    mean = np.mean(shapes, axis=0)
    for group, numbers in PART_GROUPS.items():
        parts, unknown = find_model_parts(names, mean[list(numbers)])
        assert (parts, unknown) == (tuple(names[number] for number in numbers), []), group


@pytest.mark.parametrize("change", ["mirrored", "shuffled", "a point"])
def test_other_shapes_are_no_eyes(change: str) -> None:
    shape = ibug_mean_face()[36:48] / 300 + 0.5
    assert group_of_shape(shape) == "eyes"
    shape = {
        "mirrored": shape * [-1, 1] + [1, 0],
        "shuffled": np.random.default_rng(1).permutation(shape),
        "a point": np.full((12, 2), 0.5),
    }[change]
    assert group_of_shape(shape) is None
    assert find_model_parts(NAMES, shape) == ((), [])
    assert find_model_parts(NAMES, shape, ["eyes"]) == (NAMES[36:48], []), "words count more"


@pytest.mark.parametrize("yaw_deg", [-60, 0, 75])
@pytest.mark.parametrize("turn_deg", [0, 90])
def test_faces_turned_away_or_lying_are_in_order(yaw_deg: float, turn_deg: float) -> None:
    face, yaw, turn = ibug_mean_face(), np.radians(yaw_deg), np.radians(turn_deg)
    depth = -90 * (np.abs(face[:, 0]) / 107) ** 1.7
    depth[27:36] = (5, 15, 28, 40, 10, 16, 20, 16, 10)
    seen = np.stack([np.cos(yaw) * face[:, 0] + np.sin(yaw) * depth, face[:, 1]], axis=1)
    seen = seen @ [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
    assert order_problem(seen) == ""
    assert order_problem(seen[BY_TEXT_FROM_1]) != ""
    assert order_problem(seen[:67]) == "", "another scheme"


def test_all_landmarks_are_taken_where_their_numbers_are_equal() -> None:
    names = ("nose", "left", "right")
    assert find_model_parts(names, np.zeros((3, 2))) == (names, [])
    assert find_model_parts(names, np.zeros((2, 2)), ["left", "chin"]) == (("left",), ["chin"])


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


def test_flipped_faces_with_sides_not_exchanged_stop_training_and_test(
    training_faces: FaceDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = flipped(some(training_faces, 4), tmp_path / "flipped")
    # A detector takes the boxes alone, and they are right.
    assert require_sound(wrong, use="boxes").despite == ()
    faces = wrong.path
    quick = ["--set", "num_trees_per_cascade_level=2", "--set", "cascade_depth=2"]
    train = ["train", "ert", str(faces), "-o", str(tmp_path / "a.dat"), *quick]
    assert main(train) == 5
    told = capsys.readouterr().err
    assert re.search(r"left and right exchanged.*and 3 more", told, re.DOTALL)
    assert "--despite-findings" in told
    assert not (tmp_path / "a.dat").exists()
    assert main([*train, "--despite-findings"]) == 0
    assert "have left and right exchanged" in capsys.readouterr().err
    labels = json.loads(metadata_path(tmp_path / "a.dat").read_text())["suggested_labels"]
    assert labels["despite_findings"] == "part-order (4)"
    test = ["evaluate", str(tmp_path / "a.dat"), str(faces), "--json"]
    assert main(test) == 5
    capsys.readouterr()
    assert main([*test, "--despite-findings", "--save"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["data"]["items"]
    assert item["despite_findings"] == ["part-order (4)"]
    saved = json.loads((tmp_path / "a.dat.evaluation.json").read_text())
    assert saved["despite_findings"] == ["part-order (4)"]
