"""Settings of detector training, and the input of dlib for a data set under them.

Window, doublings of the images and usable boxes are worked out here, before dlib is asked, so that
a person learns which box is in the way and how to solve it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from site_agent.datasets.records import FaceBox, FaceDataset
from site_agent.errors import InvalidInputError, TrainingDataError
from site_agent.settings import Settings
from site_agent.training import windows

MOST_UPSAMPLING = 4
_Side = Annotated[int, Field(ge=16, le=1000)]


class HogSvmSettings(Settings, error=InvalidInputError):
    """Settings of training a detector; the defaults are those of table I of the paper."""

    c: float = Field(default=5.0, gt=0)
    """Weight of the training errors against the size of the weights."""
    epsilon: float = Field(default=0.01, gt=0)
    """Training ends when the risk is within this of the best possible."""
    target_size_px: tuple[_Side, _Side] = (80, 80)
    """Width and height of the sliding window; detectors can be merged (MWMA) only when theirs are
    equal, so this fixes it for boxes of any shape: where the mean box has another shape,
    all boxes are first given the window's, about their centres."""
    upsample: int = Field(default=0, ge=0, le=MOST_UPSAMPLING)
    """How many times at most images are doubled so that small faces fill the window; they are
    doubled only while a box cannot be reached, and the detector file says how often."""
    flips: bool = False
    """Add each image's mirror image."""
    ignore_unreachable: bool = False
    """Leave boxes that no window can cover out, neither faces nor background, instead of refusing
    the data."""
    by_label: bool = False
    """Train one detector for each label of the boxes (front, left, right ...) and put them into one
    file; a face is found when one of them finds it."""
    threads: int = Field(default=0, ge=0, le=256)
    """0: as many as the machine has. The result does not depend on it."""
    max_runtime_s: float | None = Field(default=None, gt=0)
    """Stop after this time with the weights so far, for each detector."""


# Photographs of groups have faces smaller than the window; they are doubled only where needed.
HOG_SVM_DEFAULTS = HogSvmSettings(upsample=1)
"""Where nothing is chosen."""


@dataclass(frozen=True)
class DetectorPlan:
    """The input of dlib, worked out beforehand."""

    boxes: tuple[tuple[windows.Corners, ...], ...]
    """Trained on."""
    ignored: tuple[tuple[windows.Corners, ...], ...]
    """Neither faces nor background."""
    window: windows.DetectionWindow
    area_px: int
    """Dlib's ``detection_window_size`` that makes it do so."""
    upsample: int
    reshaped: bool
    """True if boxes were given the window's shape."""
    left_out: tuple[tuple[int, str], ...]
    """Boxes that cannot be reached and became ignored."""

    @property
    def box_count(self) -> int:
        return sum(len(boxes) for boxes in self.boxes)


def plan_detector(dataset: FaceDataset, settings: HogSvmSettings) -> DetectorPlan:
    """Work out window, doublings and usable boxes before dlib is asked."""
    faces = [[box for box in image.boxes if not box.ignore] for image in dataset.images]
    if not any(faces):
        raise TrainingDataError(
            dataset.path, "has no face boxes to train on", hint="mark faces with <box>"
        )
    kept = [list(boxes) for boxes in faces]
    left_out: list[tuple[int, str]] = []
    while True:
        plan = _plan(dataset, kept, settings, left_out)
        unreachable, plan = _with_upsampling(plan, settings.upsample)
        problems = [
            (
                kept[image][box.index].line,
                f"box {box.index + 1} of {dataset.images[image].path.name} {box.reason}",
            )
            for image, image_boxes in unreachable
            for box in image_boxes
        ]
        if not problems:
            return plan
        if not settings.ignore_unreachable:
            raise TrainingDataError(
                dataset.path, problems, hint=_way_out(plan, settings, len(problems))
            )
        left_out.extend(problems)
        for image, image_boxes in unreachable:
            gone = {box.index for box in image_boxes}
            kept[image] = [box for i, box in enumerate(kept[image]) if i not in gone]
        if not any(kept):
            raise TrainingDataError(
                dataset.path, left_out, hint="no box is left to train on; use larger images"
            )


def _plan(
    dataset: FaceDataset,
    kept: Sequence[Sequence[FaceBox]],
    settings: HogSvmSettings,
    left_out: Sequence[tuple[int, str]],
) -> DetectorPlan:
    boxes = tuple(tuple(box.corners for box in boxes) for boxes in kept)
    everything = [box for image in boxes for box in image]
    size, reshaped = settings.target_size_px, False
    area_px = windows.area_for_window(everything, size)
    if area_px is None:
        reshaped = True
        boxes = tuple(tuple(windows.with_window_shape(b, size) for b in image) for image in boxes)
        area_px = windows.area_for_window([b for image in boxes for b in image], size)
    if area_px is None:
        raise settings.refused(
            "target_size_px", size, "a size that boxes of this data set can be brought to"
        )
    ignored = tuple(
        tuple(box.corners for box in image.boxes if box not in set_of)
        for image, set_of in zip(dataset.images, kept, strict=True)
    )
    return DetectorPlan(
        boxes, ignored, windows.DetectionWindow(*size), area_px, 0, reshaped, tuple(left_out)
    )


def _with_upsampling(
    plan: DetectorPlan, most: int
) -> tuple[list[tuple[int, list[windows.UnreachableBox]]], DetectorPlan]:
    """Double the images until every box is reached, as dlib will, at most `most` times."""
    unreachable: list[tuple[int, list[windows.UnreachableBox]]] = []
    for times in range(most + 1):
        by_image = [windows.unreachable_boxes(boxes, plan.window, times) for boxes in plan.boxes]
        unreachable = [(image, boxes) for image, boxes in enumerate(by_image) if boxes]
        plan = replace(plan, upsample=times)
        if not unreachable:
            break
    return unreachable, plan


def _way_out(plan: DetectorPlan, settings: HogSvmSettings, count: int) -> str:
    ways = []
    for times in range(settings.upsample + 1, MOST_UPSAMPLING + 1):
        if not any(windows.unreachable_boxes(boxes, plan.window, times) for boxes in plan.boxes):
            ways.append(
                f"double the images first (--set upsample={times}), which reaches all boxes"
            )
            break
    ways.append("mark these boxes ignore='1', or have them ignored (--set ignore_unreachable=true)")
    if count == plan.box_count:
        ways.append("choose a smaller window (--set target_size_px=WIDTHxHEIGHT)")
    return (
        f"{count} of {plan.box_count} boxes cannot be learned; all others are fine. Either "
        + "; or ".join(ways)
    )
