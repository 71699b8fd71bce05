"""One detector file for faces seen from several sides: one detector for each label of the boxes.

dlib's own face detector is of this kind: five detectors, for faces that look ahead, to either
side, or are tilted. Each learns the faces of its label; the faces of the others are neither faces
nor background to it. A face counts as found whichever detector finds it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aggregators.models import FhogDetector
from site_agent.datasets import FaceDataset
from site_agent.errors import TrainingDataError
from site_agent.training.detector_plan import DetectorPlan, HogSvmSettings, plan_detector
from site_agent.training.windows import picked_window


@dataclass(frozen=True)
class OrientationView:
    """What one detector is trained on.

    `dataset`: the boxes of other labels are marked `ignore`.
    """

    label: str
    dataset: FaceDataset
    plan: DetectorPlan


def plan_views(dataset: FaceDataset, settings: HogSvmSettings) -> list[OrientationView]:
    """Work out what is trained: one detector, or with `by_label` one for each label.

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
    if isinstance(settings.target_size_px, int):
        window = picked_window([box.corners for _, box in boxes], settings.target_size_px)
        settings = replace(settings, target_size_px=window)
    views = []
    for label in sorted({box.label or "" for _, box in boxes}):
        own = _with_label(dataset, label)
        views.append(OrientationView(label, own, plan_detector(own, settings)))
    return views


def combine_detectors(detectors: Sequence[FhogDetector]) -> FhogDetector:
    """Put detectors of the same window into one file, in this order.

    Boxes are the same face only where every detector would say so; images are doubled as often
    as the detector wants it that wants it most, which only lets the others find smaller faces.
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


def _with_label(dataset: FaceDataset, label: str) -> FaceDataset:
    images = [
        replace(
            image,
            boxes=tuple(
                box if box.label == label else replace(box, ignore=True) for box in image.boxes
            ),
        )
        for image in dataset.images
    ]
    return replace(dataset, images=tuple(images))
