"""Jobs on models: download, test, merge, share and train one (with quick trials), contribute."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from aggregators.formats import file_digest
from site_agent.datasets.check import check_datasets, count_more, kinds_of
from site_agent.datasets.conversion import read_faces
from site_agent.datasets.landmark_schemes import mean_eye_aspect_ratio
from site_agent.datasets.records import FaceDataset, part_names, parts_array
from site_agent.errors import TrainingDataError
from site_agent.evaluation.landmark_scores import CLOSED_EAR
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.jobs.folder import JobFolder
from site_agent.pool.sent import sent_by
from site_agent.rounds.contract import site_rules
from site_agent.rounds.contributing import prepare_contribution
from site_agent.tasks.caller import NotedCaller
from site_agent.tasks.merging import plan_merge
from site_agent.tasks.model_files import ModelFile, model_files
from site_agent.tasks.testing import score_on_faces, verdicts
from site_agent.tasks.uploading import describe_upload
from site_agent.training.ert import ErtSettings, settings_for_blinks, train_ert
from site_agent.work import Progress, no_progress, part_of

_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
_LEFT_OUT = 0.1
_FEWEST_IMAGES = 20
_TREES_PER_LEVEL = 10


@dataclass(frozen=True)
class Trial:
    """A small model: its number of faces, and its error on the faces left out of all trials."""

    faces: int
    error: float
    """Relative to the distance between the eyes."""


def quick_trials(
    faces: FaceDataset, settings: ErtSettings, progress: Progress = no_progress, *, skipped: int = 0
) -> Iterator[Trial]:
    """Yield the trials, each as soon as it is measured; none if there are too few images.

    `skipped`: The number of those measured before.
    """
    images = [image for image in faces.images if image.boxes]
    if len(images) < _FEWEST_IMAGES:
        return
    random.Random(0).shuffle(images)
    count = max(2, round(_LEFT_OUT * len(images)))
    left_out, images = replace(faces, images=tuple(images[:count])), images[count:]
    small = replace(settings, num_trees_per_cascade_level=_TREES_PER_LEVEL)
    with TemporaryDirectory() as folder:
        for number, share in list(enumerate(_SHARES))[skipped:]:
            part = replace(faces, images=tuple(images[: max(2, round(share * len(images)))]))
            report = part_of(progress, number / len(_SHARES), (number + 1) / len(_SHARES))
            try:
                model = train_ert(
                    part, Path(folder) / f"{number}.dat", small, report,
                    training_scores=False, despite_findings=True,
                )  # fmt: skip
            except TrainingDataError:
                continue  # a small part may hold no face with all landmarks
            scores = evaluate_landmarks(model.model_path, left_out, resamples=0)
            yield Trial(model.record.data.boxes, scores.mean_error)


_TRIALS = 0.3
"""Share of a training's time for its quick trials."""


def download(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Fetch a model from the pool into the cache."""
    caller = NotedCaller(report=progress)
    [file] = model_files(caller, [request["address"]])
    return {"digest": file_digest(file.path), "remarks": caller.warnings + caller.notes}


def evaluate(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Score models on annotated faces of the lab; scores of own files are kept next to them."""
    caller = NotedCaller(report=progress)
    faces = read_faces(Path(request["faces"]))
    files = [ModelFile(name, Path(path)) for name, path in request["models"].items()]
    scored = score_on_faces(caller, files, faces, despite_findings=True)
    if request.get("keep"):
        scored.keep(caller)
    return {
        "verdict": " ".join(verdicts(scored.models)),
        "faces": sum(1 for _ in faces.boxes()),
        "scores": {
            model.digest: {**model.scores.metrics, "training_images": count}
            for model, count in zip(scored.models, scored.trained_on, strict=True)
        },
        "remarks": caller.warnings,
    }


def merge_models(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Merge models of this machine into one, with its recipe next to it."""
    caller = NotedCaller(report=progress)
    output = Path(request["output"])
    plan = plan_merge(
        caller, request["method"], request["inputs"], output, weights=request["weights"]
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    merged = plan.carry_out(caller, output)
    return {"digest": merged.digest, "remarks": [*caller.warnings, *merged.warnings]}


def upload(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Send a model to the pool: the bytes that the preview showed, and no others."""
    caller = NotedCaller(report=progress)
    with sent_by("app"), caller.pool() as pool:
        prepared = describe_upload(caller, pool, Path(request["file"]), request["form"])
        prepared.require(request["preview"])
        uploaded = prepared.send(caller, pool)
    return {"address": uploaded.version.address, "remarks": caller.warnings}


def check(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Look for mistakes in annotated faces, as every training does."""
    faces = read_faces(Path(request["faces"]))
    findings = check_datasets([faces], progress)
    texts: dict[str, list[str]] = {"error": [], "warning": []}
    for kind in kinds_of(findings):
        texts.setdefault(kind[0].severity, []).append(f"{kind[0]}{count_more(kind)}")
    return {
        "faces": sum(1 for _ in faces.boxes()),
        "images": len(faces.images),
        "closed": _closed_eyes(faces),
        "errors": texts["error"],
        "warnings": texts["warning"],
    }


def _closed_eyes(faces: FaceDataset) -> int | None:
    """Count the faces with closed eyes; None if the eyes are not among the landmarks."""
    names = part_names(faces)
    shapes = [parts_array(box, names) for _, box in faces.boxes() if len(box.parts) == len(names)]
    ratios = mean_eye_aspect_ratio(np.stack(shapes), names) if names and shapes else None
    return None if ratios is None else int((ratios < CLOSED_EAR).sum())


def train(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Train landmarks of the eyes; first a few quick trials, each noted once it is measured."""
    faces, output = read_faces(Path(request["faces"])), Path(request["output"])
    settings = settings_for_blinks(sum(1 for _ in faces.boxes()))
    output.parent.mkdir(parents=True, exist_ok=True)
    jobs = JobFolder(Path(request["jobs"]))
    known = [event for event in jobs.events(request["id"]) if event["what"].startswith("trial")]
    quick = part_of(progress, 0.0, _TRIALS)
    for trial in quick_trials(faces, settings, quick, skipped=len(known)):
        jobs.note(request["id"], f"trial: {trial.faces} faces, error {trial.error:.5f}")
    result = train_ert(
        faces, output, settings, part_of(progress, _TRIALS, 1.0), training_scores=False,
        despite_findings=bool(request.get("despite_findings")),
    )  # fmt: skip
    return {
        "digest": result.record.model_digest,
        "faces": result.record.data.boxes,
        "left_out": len(result.left_out),
        "remarks": list(result.record.warnings),
    }


def contribute(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Compute a contribution to a round; send it where its preview has been seen."""
    preview = request.get("preview", "")
    with sent_by("app"), NotedCaller().pool() as pool:
        prepared = prepare_contribution(
            pool, request["round"], Path(request["data"]), rules=site_rules(pool.endpoint),
            progress=part_of(progress, 0.0, 0.8),
        )  # fmt: skip
        contributed = prepared.contributed
        if preview:
            prepared.require(preview)
            contributed = prepared.send(progress=part_of(progress, 0.8, 1.0))
    facts = asdict(contributed)
    facts.pop("round")
    return {**facts, "preview": contributed.preview, "is_sent": bool(preview)}
