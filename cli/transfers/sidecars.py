"""Files beside a model that say where it comes from and how good it is.

``<model>.recipe.json`` (a merge), ``<model>.training.json`` (a training) and
``<model>.evaluation.json`` (``poolctl evaluate --save``) are written by this program; `upload`
takes recipe, labels and metrics from them. Each names the digest of the model that it is about,
so that a file which was replaced meanwhile does not inherit what was said of another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aggregators.whole_file import write_whole

EVALUATION_SCHEMA = "poolctl-evaluation/1"


def recipe_beside(model: Path, digest: str) -> tuple[Path, dict[str, Any]] | None:
    """Return the recipe file of a merged model and its content; None where there is none."""
    path = beside(model, "recipe")
    content = _read(path)
    output = content.get("output")
    if not isinstance(output, dict) or output.get("digest") != digest:
        return None
    return path, content


def labels_beside(model: Path, digest: str) -> dict[str, str]:
    """Return the labels that a training suggests for its model."""
    record = _read(beside(model, "training"))
    labels = record.get("suggested_labels")
    if record.get("model_digest") != digest or not isinstance(labels, dict):
        return {}
    return {str(key): str(value) for key, value in labels.items()}


def metrics_beside(model: Path, digest: str) -> dict[str, float]:
    """Return what the last saved evaluation measured."""
    record = _read(beside(model, "evaluation"))
    metrics = record.get("metrics")
    if record.get("model_digest") != digest or not isinstance(metrics, dict):
        return {}
    return {
        str(key): float(value) for key, value in metrics.items() if isinstance(value, int | float)
    }


def flattered_beside(model: Path, digest: str) -> int:
    """Return how many images of the last saved evaluation the model had been trained on."""
    record = _read(beside(model, "evaluation"))
    count = record.get("training_images", 0)
    return count if record.get("model_digest") == digest and isinstance(count, int) else 0


def save_evaluation(
    model: Path, digest: str, metrics: Mapping[str, float], dataset: str, training_images: int = 0
) -> Path:
    """Write what an evaluation measured beside the model and return the file's path.

    `training_images` says how many of its images the model was trained on.
    """
    record = {
        "schema": EVALUATION_SCHEMA,
        "model_file": model.name,
        "model_digest": digest,
        "dataset_digest": dataset,
        "training_images": training_images,
        "metrics": dict(metrics),
    }
    path = beside(model, "evaluation")
    write_whole(path, json.dumps(record, indent=2, sort_keys=True) + "\n")
    return path


def beside(model: Path, what: str) -> Path:
    """Return the path of a model's ``recipe``, ``training`` or ``evaluation`` file."""
    return model.with_name(f"{model.name}.{what}.json")


def _read(path: Path) -> dict[str, Any]:
    """Return a JSON object; ``{}`` for what is absent or something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
