"""Scores of landmark models against dlib's, normalisers, and runs of several models."""

import csv
import dataclasses
import json
from pathlib import Path

import dlib
import numpy as np
import pytest

from aggregators.formats import file_digest, read_model, write_model
from aggregators.predictors import LandmarkPredictor, to_grey
from site_agent.datasets.landmark_schemes import ibug_mean_face
from site_agent.datasets.records import (
    FaceBox,
    FaceDataset,
    dataset_digest,
    part_names,
    parts_array,
)
from site_agent.datasets.synthetic.portraits import eye_aspect_ratios
from site_agent.errors import EvaluationError
from site_agent.evaluation.detection import DetectionScores
from site_agent.evaluation.landmark_scores import (
    FaceErrors,
    LandmarkScores,
    normaliser_for,
    summarise_landmarks,
)
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.evaluation.model_runs import EvaluationSettings, evaluate_model, evaluate_models
from site_agent.evaluation.report import ScoredModel, short_names, write_report
from site_agent.pictures.images import read_image
from site_agent.training.ert import ErtSettings, train_ert
from site_agent.training_record import SCHEMA, metadata_path
from tests.aggregators.small_models import make_predictor


class RoundingPredictor(LandmarkPredictor):
    """Rounds to whole pixels as dlib does."""

    def predict(self, grey: object, boxes: object) -> object:  # type: ignore[override]
        return np.floor(super().predict(grey, boxes) + 0.5)  # type: ignore[arg-type]


def test_errors_equal_those_of_dlib(trained_landmarks: Path, test_faces: FaceDataset) -> None:
    whole = whole_pixels(test_faces)
    names = part_names(whole)
    eyes = normaliser_for(names)
    images, detections, scales = [], [], []
    for image in whole.images:
        images.append(to_grey(read_image(image.path)))
        box = image.boxes[0]
        points = np.array([box.parts[name] for name in names])
        parts = [dlib.point(int(x), int(y)) for x, y in points]
        detections.append([dlib.full_object_detection(dlib.rectangle(*box.corners), parts)])
        scales.append([eyes.scale(points, box.corners)])
    plain = dlib.shape_predictor(str(trained_landmarks))
    expected = dlib.test_shape_predictor(images, detections, scales, plain)
    model = read_model(trained_landmarks)
    rounded = evaluate_landmarks(RoundingPredictor(model), whole)  # type: ignore[arg-type]
    assert rounded.mean_error == pytest.approx(expected, abs=1e-12)
    exact = evaluate_landmarks(trained_landmarks, whole)
    assert exact.mean_error == pytest.approx(expected, rel=0.03)
    assert exact.normaliser == "inter-ocular"


def whole_pixels(dataset: FaceDataset) -> FaceDataset:
    def rounded(box: FaceBox) -> FaceBox:
        parts = {name: (round(x), round(y)) for name, (x, y) in box.parts.items()}
        return dataclasses.replace(box, parts=parts)

    return dataset.with_boxes(rounded)


def test_results_are_plain_data_without_names(
    trained_landmarks: Path, test_faces: FaceDataset
) -> None:
    seen: list[tuple[float | None, str]] = []
    scores = evaluate_landmarks(
        trained_landmarks, test_faces, progress=lambda *step: seen.append(step)
    )
    plain = scores.to_dict()
    assert "person" not in json.dumps(plain, allow_nan=False)
    assert len(plain["per_landmark"]) == 68
    assert plain["intervals"]["mean_error"][0] < plain["mean_error"]
    assert len(scores.to_dict(per_image=True)["per_face"]) == 12
    assert seen[-1] == (1.0, "image 12 of 12")
    assert scores.eye_error is not None
    again = evaluate_landmarks(trained_landmarks, test_faces, workers=1)
    assert again.to_dict(per_image=True) == scores.to_dict(per_image=True)


def face(image: int, *errors: float) -> FaceErrors:
    return FaceErrors(f"{image}.png", image, 0, 50.0, np.array(errors))


def test_means_medians_and_failures_are_over_faces() -> None:
    faces = [face(0, 0.02, 0.04), face(0, 0.09, 0.09), face(4, 0.2, 0.4), face(7, 0.01, np.nan)]
    scores = summarise_landmarks(faces, ("a", "b"), normaliser_for(("a", "b")), resamples=50)
    assert scores.mean_error == pytest.approx((0.02 + 0.04 + 0.18 + 0.6 + 0.01) / 7)
    assert scores.median_error == pytest.approx((0.03 + 0.09) / 2)
    assert (scores.failure_rate, scores.failure_rate_at_10) == (0.5, 0.25)
    assert scores.auc == pytest.approx((5 / 8 + 7 / 8) / 4)
    assert scores.mean_error_px == pytest.approx(scores.mean_error * 50)
    assert scores.per_landmark.tolist() == pytest.approx([0.08, 0.53 / 3])
    assert scores.images == 3
    assert scores.eye_error is None
    assert json.dumps(scores.to_dict(), allow_nan=False)


def test_how_far_landmarks_follow_the_lids() -> None:
    marked = np.array([0.05, 0.10, 0.25, 0.30, 0.35])
    faces = [
        FaceErrors("", index, 0, 50.0, np.array([0.02]), ear=0.15 + 0.5 * ear, marked_ear=ear)
        for index, ear in enumerate(marked)
    ]
    scores = summarise_landmarks(faces, ("a",), normaliser_for(("a",)), resamples=20)
    assert scores.ear_range == pytest.approx(0.5)
    assert scores.closed_ear_error == pytest.approx((0.125 + 0.10) / 2)
    assert scores.ear_error == pytest.approx(np.abs(0.15 - 0.5 * marked).mean())
    awake = summarise_landmarks([faces[2]] * 3, ("a",), normaliser_for(("a",)), resamples=0)
    assert (awake.ear_range, awake.closed_ear_error) == (None, None)


def test_faces_that_cannot_be_tested_are_counted(
    trained_landmarks: Path, test_faces: FaceDataset
) -> None:
    boxes = [image.boxes[0] for image in test_faces.images]
    boxes[0] = dataclasses.replace(boxes[0], parts={})
    boxes[1] = dataclasses.replace(boxes[1], ignore=True)
    no_mouth = {name: point for name, point in boxes[2].parts.items() if int(name) < 48}
    boxes[2] = dataclasses.replace(boxes[2], parts=no_mouth)
    images = [
        dataclasses.replace(image, boxes=(box,))
        for image, box in zip(test_faces.images, boxes, strict=True)
    ]
    scores = evaluate_landmarks(
        trained_landmarks, dataclasses.replace(test_faces, images=tuple(images))
    )
    assert (scores.faces, scores.skipped_faces) == (10, 1)
    assert np.isnan(scores.per_face[0].errors[48:]).all()


@pytest.mark.slow
def test_a_model_of_some_landmarks_is_tested_on_them(
    training_faces: FaceDataset, test_faces: FaceDataset, trained_landmarks: Path, tmp_path: Path
) -> None:
    eyes = tuple(name for name in part_names(training_faces) if 36 <= int(name) < 48)
    settings = ErtSettings(num_trees_per_cascade_level=10, cascade_depth=3, parts=eyes[::-1])
    result = train_ert(training_faces, tmp_path / "eyes.dat", settings)
    scores = evaluate_landmarks(result.model_path, test_faces)
    assert scores.names == eyes
    assert scores.normaliser == "inter-ocular"
    # A merged or downloaded model has no record next to it: its mean shape shows two eyes.
    result.metadata_path.unlink()
    assert evaluate_landmarks(result.model_path, test_faces).mean_error == scores.mean_error
    for terms in (eyes, ["eyes"], ["36-47"]):
        named = evaluate_landmarks(result.model_path, test_faces, parts=terms)
        assert named.mean_error == scores.mean_error
    # A model of all landmarks is compared in the same ones.
    whole = evaluate_landmarks(trained_landmarks, test_faces, parts=["eyes"])
    assert whole.names == eyes
    eye_error = evaluate_landmarks(trained_landmarks, test_faces).eye_error
    assert whole.mean_error == pytest.approx(eye_error)
    with pytest.raises(EvaluationError, match=r"no landmarks that are called chin"):
        evaluate_landmarks(result.model_path, test_faces, parts=["eyes", "chin"])
    with pytest.raises(EvaluationError, match=r"places 12 landmarks, and .* has 20"):
        evaluate_landmarks(result.model_path, test_faces, parts=["mouth"])


@pytest.mark.parametrize(("prefix", "first"), [("", 0), ("", 1), ("p", 1)])
def test_a_record_with_the_numbers_of_another_lab_names_the_same_landmarks(
    prefix: str, first: int, test_faces: FaceDataset, tmp_path: Path
) -> None:
    eyes, model = np.arange(36, 48), tmp_path / "eyes.dat"
    shape = (0.5 + ibug_mean_face()[eyes] / 300).astype(np.float32)
    write_model(make_predictor(1, parts=12, initial_shape=shape), model)
    parts = [str(number) for number in eyes]
    record = {"schema": SCHEMA, "model_digest": file_digest(model), "settings": {"parts": parts}}
    metadata_path(model).write_text(json.dumps(record))

    def renamed(box: FaceBox) -> FaceBox:
        named = {f"{prefix}{int(name) + first:02}": place for name, place in box.parts.items()}
        return dataclasses.replace(box, parts=named)

    scores = evaluate_landmarks(model, test_faces.with_boxes(renamed))
    assert scores.names == tuple(f"{prefix}{number + first}" for number in eyes)


def test_data_without_landmarks_are_refused(
    trained_landmarks: Path, test_faces: FaceDataset
) -> None:
    bare = test_faces.with_boxes(lambda box: dataclasses.replace(box, parts={}))
    with pytest.raises(EvaluationError, match="has no landmarks"):
        evaluate_landmarks(trained_landmarks, bare)


PADDED = tuple(f"{i:02d}" for i in range(68))

BARE = tuple(sorted(str(i) for i in range(68)))

FROM_ONE = tuple(sorted(str(i) for i in range(1, 69)))

BOX = (10, 20, 109, 219)


def points_of(names: tuple[str, ...], first: int = 0) -> np.ndarray:
    """Landmark number n at (n, 2 n)."""
    numbers = np.array([int(name) - first for name in names], dtype=np.float64)
    return np.stack([numbers, 2 * numbers], axis=1)


@pytest.mark.parametrize(
    ("names", "first"), [(PADDED, 0), (BARE, 0), (FROM_ONE, 1), (PADDED[36:48], 0)]
)
def test_eye_centres_are_found_by_the_names_of_the_landmarks(
    names: tuple[str, ...], first: int
) -> None:
    chosen = normaliser_for(names)
    assert chosen.name == "inter-ocular"
    assert chosen.scale(points_of(names, first), BOX) == pytest.approx(6 * 5**0.5)
    outer = normaliser_for(names, "outer-corners")
    assert outer.scale(points_of(names, first), BOX) == pytest.approx(9 * 5**0.5)


@pytest.mark.parametrize(
    "names",
    [PADDED[:5], tuple(map(str, range(51))), tuple(map(str, range(194))), ("left", "right")],
)
def test_other_schemes_are_divided_by_the_box(names: tuple[str, ...]) -> None:
    chosen = normaliser_for(names)
    assert chosen.scale(np.zeros((len(names), 2)), BOX) == pytest.approx(20000**0.5)
    with pytest.raises(EvaluationError, match="68-landmark scheme"):
        normaliser_for(names, "inter-ocular")


def test_unknown_names_are_refused_and_pixels_can_be_asked_for() -> None:
    assert normaliser_for(PADDED, "none").scale(points_of(PADDED), BOX) == 1
    with pytest.raises(EvaluationError, match="expected inter-ocular, outer-corners, box, none"):
        normaliser_for(PADDED, "pupils")


FEW = EvaluationSettings(resamples=20)


def test_scores_come_in_the_order_of_the_models(
    trained_detector: Path, trained_landmarks: Path, test_faces: FaceDataset
) -> None:
    models = [trained_landmarks, trained_detector, trained_landmarks]
    seen: list[tuple[float | None, str]] = []
    results = evaluate_models(
        models, test_faces, FEW, workers=2, progress=lambda part, text: seen.append((part, text))
    )
    assert [type(scores) for scores in results] == [LandmarkScores, DetectionScores, LandmarkScores]
    assert results[0].to_dict() == results[2].to_dict()
    assert seen[-1][0] == 1.0
    assert evaluate_models([], test_faces) == []


def test_networks_are_refused(test_faces: FaceDataset, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    network = tmp_path / "net.safetensors"
    save_file({"w": np.zeros(3, np.float32)}, network)
    with pytest.raises(EvaluationError, match=r"net\.safetensors: networks"):
        evaluate_model(network, test_faces)


def test_the_error_of_the_openness_of_the_eyes(
    trained_landmarks: Path, test_faces: FaceDataset
) -> None:
    scores = evaluate_landmarks(trained_landmarks, test_faces, resamples=50)
    predictor = LandmarkPredictor(read_model(trained_landmarks))  # type: ignore[arg-type]
    names = part_names(test_faces)
    expected = []
    for image, box in test_faces.boxes():
        grey = to_grey(read_image(image.path, apply_orientation=False))
        placed = predictor.predict(grey, [box.corners])[0]
        openness = np.mean(eye_aspect_ratios(placed))
        expected.append(abs(openness - np.mean(eye_aspect_ratios(parts_array(box, names)))))
    assert scores.ear_error == pytest.approx(np.mean(expected))
    assert [face.ear_error for face in scores.per_face] == pytest.approx(expected)
    assert {"mean_error", "ear_error"} <= set(scores.intervals) <= set(scores.metrics)
    for name, (low, high) in scores.intervals.items():
        assert low <= scores.metrics[name] <= high, name
    errors, part = scores.cumulative_errors()
    assert (np.diff(errors) >= 0).all()
    assert part[-1] == 1.0
    below = np.clip(1 - errors / 0.08, 0, None)
    assert scores.auc == pytest.approx(below.mean())


def test_a_report_says_it_all(
    trained_detector: Path, trained_landmarks: Path, test_faces: FaceDataset, tmp_path: Path
) -> None:
    results = evaluate_models([trained_detector, trained_landmarks], test_faces, FEW, workers=1)
    names = ("a|b", "face <68>, \u00e4")
    models = [
        ScoredModel(name, "0" * 64, scores) for name, scores in zip(names, results, strict=True)
    ]
    digest = dataset_digest(test_faces)
    folder = tmp_path / "deep" / "report"
    facts = {"dataset_name": "test.xml", "dataset_digest": digest}
    files = write_report(folder, models, per_image=True, **facts)
    assert sorted(file.name for file in files) == sorted(path.name for path in folder.iterdir())
    content = json.loads((folder / "scores.json").read_text())
    assert content["dataset_digest"] == digest
    assert [item["model"] for item in content["items"]] == list(names)
    assert len(content["items"][1]["per_face"]) == 12
    with (folder / "scores.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert float(rows[0]["recall"]) == results[0].metrics["recall"]
    assert rows[0]["mean_error"] == ""
    assert float(rows[1]["mean_error_low"]) <= float(rows[1]["mean_error"])
    for file in files:
        if file.suffix == ".png":
            assert file.read_bytes().startswith(b"\x89PNG")
    assert len(content["items"][1]["per_landmark"]) == 68
    only = write_report(tmp_path / "one", models[1:], **facts)
    assert "per_face" not in (tmp_path / "one" / "scores.json").read_text()
    assert not any("precision" in file.name for file in only)
    (tmp_path / "file").write_text("")
    with pytest.raises(EvaluationError, match="cannot be written"):
        write_report(tmp_path / "file", models, **facts)


def test_legends_leave_out_folders_where_files_are_told_apart() -> None:
    assert short_names(["../big.dat", "/data/a.dat", "site-a/face", "b.dat"]) == {
        "../big.dat": "big.dat",
        "/data/a.dat": "a.dat",
        "site-a/face": "site-a/face",
        "b.dat": "b.dat",
    }
    same = ["../a/x.dat", "../b/x.dat"]
    assert short_names(same) == {name: name for name in same}
