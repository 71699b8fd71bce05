"""Training of face detectors (HOG features, linear SVM) through dlib.

For faces seen from several sides one file has a detector for each label of the boxes. dlib's own
face detector is of this kind: five detectors, for faces that look ahead, to either side, or are
tilted. Each learns the faces of its label; the faces of the others are neither faces nor background
to it. A face counts as found if any detector finds it.
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from aggregators.formats import read_model, write_model
from aggregators.models import FhogDetector
from site_agent.datasets.records import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    dataset_digest,
    image_marks,
)
from site_agent.datasets.soundness import require_sound
from site_agent.errors import TrainingDataError
from site_agent.evaluation.detection import evaluate_detector
from site_agent.faces.models import DETECTOR_FORMAT
from site_agent.training.detector_plan import DetectorPlan, HogSvmSettings, plan_detector
from site_agent.training.worker_process import HogSvmProgressReader, require_memory, run_worker
from site_agent.training_record import DataSummary, TrainingResult, begin_training
from site_agent.wording import count_words
from site_agent.work import Progress, no_progress


@dataclass(frozen=True)
class OrientationView:
    """The data and the plan of one detector."""

    label: str
    dataset: FaceDataset
    """The boxes of other labels are marked `ignore`."""
    plan: DetectorPlan


def plan_views(dataset: FaceDataset, settings: HogSvmSettings) -> list[OrientationView]:
    """Plan the training: one detector, or with `by_label` one for each label.

    All get the same window, so that they can be put into one file.
    """
    if not settings.by_label:
        return [OrientationView("", dataset, plan_detector(dataset, settings))]
    boxes = list(dataset.boxes())
    bare = [
        (box.line, f"a box of {image.path.name} has no <label>")
        for image, box in boxes
        if not box.label
    ]
    if bare or not boxes:
        raise TrainingDataError(
            dataset.path,
            bare or [(0, "has no face boxes to train on")],
            hint="by label, each box needs one (such as front, left, right) or ignore='1'",
        )
    views = []
    for label in sorted({box.label or "" for _, box in boxes}):
        labelled = dataset.with_boxes(partial(_ignore_other_labels, label))
        views.append(OrientationView(label, labelled, plan_detector(labelled, settings)))
    return views


def _ignore_other_labels(label: str, box: FaceBox) -> FaceBox:
    return box if box.label == label else replace(box, ignore=True)


def combine_detectors(detectors: Sequence[FhogDetector]) -> FhogDetector:
    """Put detectors of the same window into one file, in this order.

    Boxes are the same face only where every detector would say so; the largest number of doublings
    that a detector needs holds for all, which only lets the others find smaller faces.
    """
    known = [d.upsampling for d in detectors if d.upsampling is not None]
    return replace(
        detectors[0],
        weights=np.concatenate([detector.weights for detector in detectors]),
        thresholds=np.concatenate([detector.thresholds for detector in detectors]),
        overlap_iou=max(detector.overlap_iou for detector in detectors),
        overlap_covered=max(detector.overlap_covered for detector in detectors),
        upsampling=max(known) if known else None,
    )


# dlib's own stand-in for no limit.
_NO_TIME_LIMIT_S = 3153600000.0
# dlib keeps each image (3 bytes a pixel) and the HOG features of its pyramid; measured: 11.
_BYTES_PER_PIXEL = 12
_PROGRAM_BYTES = 150_000_000


def train_hog_svm(
    dataset: FaceDataset,
    output: Path | str,
    settings: HogSvmSettings = HogSvmSettings(),
    progress: Progress = no_progress,
    *,
    training_scores: bool = True,
    despite_findings: bool = False,
) -> TrainingResult:
    """Train a face detector and write it as a dlib file; parameters are those of `train_ert`.

    Images without boxes are used too: as background. The same data and settings give the same
    bytes with any number of threads.

    Raises `TrainingDataError`: no faces, unreadable images, or boxes that cannot be learned; names
    file and lines. `TrainingFailedError`: dlib failed, or memory would not or did not suffice.
    """
    output = Path(output)
    sound = require_sound(
        dataset, use="boxes", despite_findings=despite_findings, progress=progress
    )
    begun = begin_training(output, sound.details)
    views = plan_views(dataset, settings)
    needed = needed_memory_bytes(dataset, views, settings)
    require_memory(needed, "use fewer or smaller images, or less upsampling")
    progress(None, f"about {needed / 1e9:.1f} GB of memory")
    digest, marks = dataset_digest(dataset), image_marks(dataset)
    with begun.writing() as temporary:
        facts = _train(views, settings, temporary, progress, needed, score=training_scores)
        if settings.by_label and training_scores:
            scores = evaluate_detector(temporary, dataset, resamples=0).metrics
            facts["training_scores"] = {
                name: scores[name] for name in ("recall", "precision", "average_precision")
            }
        boxes = sum(view.plan.box_count for view in views)
        ignored = sum(len(image.boxes) for image in dataset.images) - boxes
        data = DataSummary(digest, len(dataset.images), boxes, ignored, image_marks=marks)
        details = _details(views, needed)
        left_out = tuple(problem for view in views for problem in view.plan.left_out)
        result = begun.publish(
            "hog-svm", data, asdict(settings), details, facts, warnings=_warnings(views, settings)
        )
        return replace(result, left_out=left_out)


def needed_memory_bytes(
    dataset: FaceDataset, views: Sequence[OrientationView], settings: HogSvmSettings
) -> int:
    """Memory that the training process will take, of several in turn the largest."""
    return max(estimated_memory_bytes(dataset, view.plan, flips=settings.flips) for view in views)


def estimated_memory_bytes(dataset: FaceDataset, plan: DetectorPlan, *, flips: bool) -> int:
    """Memory that the training process will take, from the sizes of the images."""
    pixels = sum(_pixel_count(image) for image in dataset.images)
    return _PROGRAM_BYTES + (pixels * _BYTES_PER_PIXEL << 2 * plan.upsample) * (1 + flips)


def _train(
    views: Sequence[OrientationView],
    settings: HogSvmSettings,
    temporary: Path,
    progress: Progress,
    needed: int,
    *,
    score: bool,
) -> dict[str, Any]:
    """Train one detector after the other, write all into one file, return the worker's facts."""
    all_facts: list[dict[str, Any]] = []
    detectors: list[FhogDetector] = []
    for number, view in enumerate(views):

        def report(
            fraction: float | None, text: str, number: int = number, label: str = view.label
        ) -> None:
            whole = None if fraction is None else (number + fraction) / len(views)
            progress(whole, f"{label}: {text}" if label else text)

        facts = run_worker(
            _job(view.dataset, view.plan, settings, temporary, score=score and len(views) == 1),
            HogSvmProgressReader(settings.epsilon).read,
            progress=report,
            needed_memory_bytes=needed,
            data_path=view.dataset.path,
        )
        all_facts.append(facts)
        if len(views) > 1:
            trained = read_model(temporary)
            assert isinstance(trained, FhogDetector)
            detectors.append(trained)
    if detectors:
        write_model(combine_detectors(detectors), temporary, format_name=DETECTOR_FORMAT)
    peak = max(facts["peak_memory_bytes"] for facts in all_facts)
    return {**all_facts[-1], "peak_memory_bytes": peak}


def _details(views: Sequence[OrientationView], needed: int) -> dict[str, Any]:
    window = views[0].plan.window
    details: dict[str, Any] = {
        "window_px": [window.width_px, window.height_px],
        "upsampling": max(view.plan.upsample for view in views),
        "boxes_reshaped": any(view.plan.reshaped for view in views),
        "unreachable_boxes": sum(len(view.plan.left_out) for view in views),
        "estimated_memory_bytes": needed,
    }
    if views[0].label:
        details["orientations"] = [
            {"label": view.label, "boxes": view.plan.box_count, "upsampling": view.plan.upsample}
            for view in views
        ]
    return details


def _job(
    dataset: FaceDataset, plan: DetectorPlan, settings: HogSvmSettings, output: Path, *, score: bool
) -> dict[str, Any]:
    images = [
        {"path": str(image.path.resolve()), "boxes": boxes, "ignore": ignored}
        for image, boxes, ignored in zip(dataset.images, plan.boxes, plan.ignored, strict=True)
    ]
    options = {
        "C": settings.c,
        "epsilon": settings.epsilon,
        "detection_window_size": plan.area_px,
        "upsample_limit": settings.upsample,
        "add_left_right_image_flips": settings.flips,
        "num_threads": settings.threads or os.cpu_count() or 1,
        "max_runtime_seconds": settings.max_runtime_s or _NO_TIME_LIMIT_S,
    }
    return {
        "kind": "hog-svm",
        "images": images,
        "options": options,
        "output": str(output.resolve()),
        "score": score,
    }


def _warnings(views: Sequence[OrientationView], settings: HogSvmSettings) -> tuple[str, ...]:
    notes = []
    if settings.flips and len(views) > 1:
        notes.append(
            "images were mirrored as well (flips): a face that looks left then looks right, so "
            "each detector has learned both sides"
        )
    if any(view.plan.reshaped for view in views):
        window = views[0].plan.window
        size = f"{window.width_px} x {window.height_px}"
        notes.append(f"boxes were given the shape of the {size} px window, about their centres")
    left_out = sum(len(view.plan.left_out) for view in views)
    if left_out:
        notes.append(f"{count_words(left_out, 'box', 'boxes')} that no window reaches ignored")
    return tuple(notes)


def _pixel_count(image: AnnotatedImage) -> int:
    """Return the size of an image from its header; a damaged one is reported when it is decoded."""
    try:
        # Large pictures are no attack here: their size is what is asked for.
        with warnings.catch_warnings(action="ignore"), Image.open(image.path) as header:
            width, height = header.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        width, height = image.width_px or 0, image.height_px or 0
    return width * height
