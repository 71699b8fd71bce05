"""Several models in one run, here and in processes; reports; errors of the eyes."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregators.predictors import LandmarkPredictor
from site_agent.datasets import FaceDataset, dataset_digest, part_names, parts_array
from site_agent.errors import EvaluationError
from site_agent.evaluation import (
    DetectionScores,
    EvaluationSettings,
    LandmarkScores,
    ScoredModel,
    evaluate_detector,
    evaluate_landmarks,
    evaluate_model,
    evaluate_models,
    model_runs,
    write_report,
)
from site_agent.eyeblink.openness.signal import both_eye_aspect_ratios

FEW = EvaluationSettings(resamples=20)


def test_processes_give_the_same_scores_in_the_order_of_the_models(
    trained_detector: Path,
    trained_landmarks: Path,
    test_faces: FaceDataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = tmp_path / "copy.dat"
    shutil.copyfile(trained_landmarks, copy)
    models = [trained_landmarks, trained_detector, copy]
    here = evaluate_models(models, test_faces, FEW, workers=1)
    assert [type(scores) for scores in here] == [LandmarkScores, DetectionScores, LandmarkScores]
    # As if starting a process took no time: then they always pay.
    monkeypatch.setattr(model_runs, "_PROCESS_START_S", -1.0)
    seen: list[tuple[float | None, str]] = []
    there = evaluate_models(
        models, test_faces, FEW, workers=2, progress=lambda part, text: seen.append((part, text))
    )
    assert [scores.to_dict() for scores in there] == [scores.to_dict() for scores in here]
    assert seen[-1] == (1.0, "3 of 3 models")
    absent = tmp_path / "part.dat"
    absent.write_bytes(trained_landmarks.read_bytes()[:5000])
    with pytest.raises(Exception, match=r"part\.dat"):
        evaluate_models([trained_landmarks, copy, absent], test_faces, FEW, workers=2)
    assert evaluate_models([], test_faces) == []


def test_networks_are_refused(test_faces: FaceDataset, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    network = tmp_path / "net.safetensors"
    save_file({"w": np.zeros(3, np.float32)}, network)
    with pytest.raises(EvaluationError, match=r"net\.safetensors: networks"):
        evaluate_model(network, test_faces)


def test_the_curve_below_the_threshold_changes_no_score(
    trained_detector: Path, test_faces: FaceDataset
) -> None:
    plain = evaluate_detector(trained_detector, test_faces, resamples=0)
    wider = evaluate_detector(trained_detector, test_faces, resamples=0, curve_below=1.0)
    assert wider.to_dict() == plain.to_dict()
    scores, precision, recall = wider.precision_recall()
    kept = scores >= 0
    for both in zip(wider.precision_recall(), plain.precision_recall(), strict=True):
        np.testing.assert_array_equal(both[0][kept], both[1])
    assert len(scores) > kept.sum()
    assert recall[-1] >= plain.recall
    assert precision[-1] <= plain.precision


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
        found = np.mean(both_eye_aspect_ratios(placed))
        expected.append(abs(found - np.mean(both_eye_aspect_ratios(parts_array(box, names)))))
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


def test_eyes_that_are_not_known_have_no_error(
    trained_landmarks: Path, test_faces: FaceDataset
) -> None:
    images = [
        replace(
            image,
            boxes=tuple(
                replace(box, parts={k: at for k, at in box.parts.items() if k != "37"})
                for box in image.boxes
            ),
        )
        for image in test_faces.images[:3]
    ]
    partly = replace(test_faces, images=(*images, *test_faces.images[3:]))
    scores = evaluate_landmarks(trained_landmarks, partly, normaliser="box", resamples=0)
    assert sum(np.isnan(face.ear_error) for face in scores.per_face) == 3
    assert scores.ear_error is not None
    assert scores.ear_error > 0
    plain = scores.to_dict(per_face=True)
    assert plain["per_face"][0]["ear_error"] is None
    json.dumps(plain, allow_nan=False)


def test_a_report_says_it_all(
    trained_detector: Path, trained_landmarks: Path, test_faces: FaceDataset, tmp_path: Path
) -> None:
    found = evaluate_models([trained_detector, trained_landmarks], test_faces, FEW, workers=1)
    names = ("a|b", "face <68>, \u00e4")
    models = [
        ScoredModel(name, "0" * 64, scores) for name, scores in zip(names, found, strict=True)
    ]
    digest = dataset_digest(test_faces)
    folder = tmp_path / "deep" / "report"
    words = {"dataset_name": "test.xml", "dataset_digest": digest}
    files = write_report(folder, models, per_image=True, **words)
    assert sorted(file.name for file in files) == sorted(path.name for path in folder.iterdir())
    content = json.loads((folder / "scores.json").read_text())
    assert content["dataset_digest"] == digest
    assert [item["model"] for item in content["items"]] == list(names)
    assert len(content["items"][1]["per_face"]) == 12
    with (folder / "scores.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert float(rows[0]["recall"]) == found[0].metrics["recall"]
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
    only = write_report(tmp_path / "one", models[1:], **words)
    assert "per_face" not in (tmp_path / "one" / "scores.json").read_text()
    assert not any("precision" in file.name for file in only)
    (tmp_path / "file").write_text("")
    with pytest.raises(EvaluationError, match="cannot be written"):
        write_report(tmp_path / "file", models, **words)
