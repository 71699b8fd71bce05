"""Several models in one run, here and in processes; reports; errors of the eyes."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from aggregators.predictors import LandmarkPredictor
from site_agent.datasets.records import FaceDataset, dataset_digest, part_names, parts_array
from site_agent.datasets.synthetic.portraits import eye_aspect_ratios
from site_agent.errors import EvaluationError
from site_agent.evaluation.detection import DetectionScores
from site_agent.evaluation.landmark_scores import LandmarkScores
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.evaluation.model_runs import EvaluationSettings, evaluate_model, evaluate_models
from site_agent.evaluation.report import ScoredModel, write_report

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
    from aggregators.formats import read_model
    from aggregators.predictors import to_grey
    from site_agent.pictures.images import read_image

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
    assert set(scores.intervals) == set(scores.metrics)
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
    text = (folder / "scores.md").read_text()
    assert r"| a\|b |" in text
    assert "Errors are divided by: inter-ocular." in text
    for file in files:
        if file.suffix == ".png":
            assert file.read_bytes().startswith(b"\x89PNG")
    with (folder / "landmark_error.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 68
    only = write_report(tmp_path / "one", models[1:], **facts)
    assert "per_face" not in (tmp_path / "one" / "scores.json").read_text()
    assert not any("precision" in file.name for file in only)
    (tmp_path / "file").write_text("")
    with pytest.raises(EvaluationError, match="cannot be written"):
        write_report(tmp_path / "file", models, **facts)
