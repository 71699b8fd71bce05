"""Which boxes of a data set detector training could not use, as findings of a check."""

from dataclasses import replace

from site_agent.datasets import FaceDataset, Finding
from site_agent.errors import TrainingDataError
from site_agent.training import windows
from site_agent.training.detector_plan import HogSvmSettings, plan_detector

_MOST_DOUBLINGS = 4


def unlearnable_boxes(
    dataset: FaceDataset, settings: HogSvmSettings | None = None
) -> list[Finding]:
    """Find the boxes that no position of a detector's window covers well enough.

    `settings`: window size and doublings of the images count.

    Returns
    -------
    list of Finding
        Warnings: landmark training can use such boxes, and detector training can ignore them.
        Each says why, and how often the images would have to be doubled.
    """
    settings = replace(settings or HogSvmSettings(), ignore_unreachable=True)
    if not any(True for _ in dataset.boxes()):
        return []
    window, reshaped = _window(dataset, settings)
    findings = []
    for image in dataset.images:
        kept = [box for box in image.boxes if not box.ignore]
        corners = [box.corners for box in kept]
        if reshaped:
            size = (window.width_px, window.height_px)
            corners = [windows.with_window_shape(box, size) for box in corners]
        for found in windows.unreachable_boxes(corners, window, settings.upsample):
            text = f"{image.path}: the box {found.reason}{_way_out(corners, found.index, window)}"
            line = kept[found.index].line
            place = dataset.path or image.path
            findings.append(Finding("warning", "unreachable-box", place, line, text))
    return findings


def _window(dataset: FaceDataset, settings: HogSvmSettings) -> tuple[windows.DetectionWindow, bool]:
    try:
        plan = plan_detector(dataset, settings)
    except TrainingDataError:  # no box at all can be learned
        corners = [box.corners for _, box in dataset.boxes()]
        size = settings.target_size_px
        if isinstance(size, int):
            return windows.DetectionWindow(*windows.picked_window(corners, size)), False
        return windows.DetectionWindow(*size), windows.area_for_window(corners, size) is None
    return plan.window, plan.reshaped


def _way_out(corners: list[windows.Corners], index: int, window: windows.DetectionWindow) -> str:
    for times in range(1, _MOST_DOUBLINGS + 1):
        if all(found.index != index for found in windows.unreachable_boxes(corners, window, times)):
            return f"; with --upsample {times} it is reached"
    return ""
