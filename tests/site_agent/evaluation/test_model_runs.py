"""Several models in one run, here and in processes; reports; errors of the eyes."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from site_agent.datasets import FaceDataset, dataset_digest
from site_agent.errors import EvaluationError
from site_agent.evaluation import EvaluationSettings, ScoredModel, evaluate_models, write_report

FEW = EvaluationSettings(resamples=20)


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
