"""Searching pictures for faces, and choosing one of several."""

from __future__ import annotations

import numpy as np

from site_agent.eyeblink.face.boxes import box_of, distance_in_widths, overlap, scaled_detection
from site_agent.eyeblink.face.settings import FaceSettings
from site_agent.eyeblink.records import FaceBox, UInt8
from site_agent.faces.detector import Detection, FaceDetector
from site_agent.pictures.images import resized

CHECK_THRESHOLD = -0.3
"""Added to the score that a face needs in a check of the region of a followed one."""


class FaceSearch:
    """Runs the detector on pictures at the size that it needs, not larger."""

    def __init__(self, detector: FaceDetector, settings: FaceSettings) -> None:
        self._detector = detector
        self._settings = settings
        self._searched_whole_s = -np.inf

    def near(self, image: UInt8, box: FaceBox) -> Detection | None:
        """Search a region twice as wide as the face, and return what is most alike."""
        height, width = image.shape[:2]
        margin_x, margin_y = 0.6 * box.width, 0.6 * box.height
        left, top = max(0, int(box.left - margin_x)), max(0, int(box.top - margin_y))
        right = min(width, int(box.right + margin_x) + 1)
        bottom = min(height, int(box.bottom + margin_y) + 1)
        if right - left < 8 or bottom - top < 8:
            return None
        # A little above the smallest face, for the pyramid to have a choice of sizes.
        factor = 1.35 * self._detector.smallest_face_px / box.width
        factor = min(factor, 2.0) if factor > 1 else factor
        region = resized(np.ascontiguousarray(image[top:bottom, left:right]), factor)
        found = self._detector.detect(region, 0, CHECK_THRESHOLD)
        scale = region.shape[1] / (right - left)
        inside = [scaled_detection(each, 1.0 / scale, left, top) for each in found]
        alike = [each for each in inside if 0.5 < each.width / box.width < 2.0]
        return max(alike, key=lambda each: overlap(box_of(each), box), default=None)

    def reduced(self, image: UInt8) -> list[Detection]:
        """Search the whole picture scaled down."""
        side_px = self._settings.search_side_px
        factor = min(1.0, side_px / max(image.shape[:2])) if side_px else 1.0
        small = resized(image, factor) if factor < 1.0 else image
        found = self._detector.detect(small, None, self._settings.threshold)
        scale = image.shape[1] / small.shape[1]
        return [scaled_detection(each, scale, 0, 0) for each in found]

    def whole(self, image: UInt8, timestamp_s: float) -> list[Detection]:
        """Search scaled down, and where nothing is found as it is, but that not every time."""
        found = self.reduced(image)
        side_px = self._settings.search_side_px
        if found or not side_px or max(image.shape[:2]) <= side_px:
            return found
        waited_ms = (timestamp_s - self._searched_whole_s) * 1000.0
        if waited_ms < self._settings.detect_interval_ms:
            return []
        self._searched_whole_s = timestamp_s
        return self._detector.detect(image, None, self._settings.threshold)


def choose_face(
    found: list[Detection], rule: str, picture_size: tuple[int, int]
) -> Detection | None:
    """Return the face that a rule (see `FaceSettings.face`) means.

    Parameters
    ----------
    picture_size : (width, height)
    """
    if not found:
        return None
    if rule == "largest":
        return max(found, key=lambda each: each.area)
    if rule == "central":
        width, height = picture_size
        middle = FaceBox(0.0, 0.0, width - 1.0, height - 1.0)
        return min(found, key=lambda each: distance_in_widths(middle, box_of(each)))
    number = int(rule)
    ordered = sorted(found, key=lambda each: each.left + each.right)
    return ordered[number - 1] if number <= len(ordered) else None


def nearest_face(found: list[Detection], box: FaceBox, widths: float) -> Detection | None:
    """Return the face nearest to where one was, if within so many widths and of alike size."""
    alike = [each for each in found if 0.5 < each.width / box.width < 2.0]
    nearest = min(alike, key=lambda each: distance_in_widths(box, box_of(each)), default=None)
    if nearest is None or distance_in_widths(box, box_of(nearest)) > widths:
        return None
    return nearest
