"""One face in each frame: found by the detector now and then, followed by its landmarks between.

Detecting costs ten to a hundred times as much as placing landmarks. A face that was found is
therefore followed: its next box comes from its last landmarks, the detector checks it at intervals
in a small region, and at once when the landmarks jump. A face in a fixed place, as before a
high-speed camera, needs no detector.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from site_agent.errors import InvalidInputError
from site_agent.eyeblink.face import boxes
from site_agent.eyeblink.records import FaceBox, FaceSource, Float64, UInt8
from site_agent.eyeblink.video.recording import Recording
from site_agent.eyeblink.video.seeking import read_ahead
from site_agent.faces.models import Detection, FaceDetector
from site_agent.pictures.images import resized
from site_agent.pictures.video_reading import Frame

CHECK_THRESHOLD = -0.3
"""Added to the score that a face needs in a check of the region of a followed one."""


class FaceSearch:
    """Runs the detector on pictures at the size that it needs, not larger."""

    def __init__(self, detector: FaceDetector, settings: boxes.FaceSettings) -> None:
        self._detector = detector
        self._settings = settings
        self._searched_whole_s = -np.inf

    def near(self, image: UInt8, box: FaceBox) -> Detection | None:
        """Search a region twice as wide as the face, and return the face most alike."""
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
        faces = self._detector.detect(region, 0, CHECK_THRESHOLD)
        scale = region.shape[1] / (right - left)
        inside = [boxes.scaled_detection(face, 1.0 / scale, left, top) for face in faces]
        alike = [face for face in inside if 0.5 < face.width / box.width < 2.0]
        return max(alike, key=lambda face: boxes.overlap(boxes.box_of(face), box), default=None)

    def reduced(self, image: UInt8) -> list[Detection]:
        """Search the whole picture scaled down."""
        side_px = self._settings.search_side_px
        factor = min(1.0, side_px / max(image.shape[:2])) if side_px else 1.0
        small = resized(image, factor) if factor < 1.0 else image
        faces = self._detector.detect(small, None, self._settings.threshold)
        scale = image.shape[1] / small.shape[1]
        return [boxes.scaled_detection(face, scale, 0, 0) for face in faces]

    def whole(self, image: UInt8, timestamp_s: float) -> list[Detection]:
        """Search scaled down, and where nothing is found as it is, but that not every time."""
        faces = self.reduced(image)
        side_px = self._settings.search_side_px
        if faces or not side_px or max(image.shape[:2]) <= side_px:
            return faces
        waited_ms = (timestamp_s - self._searched_whole_s) * 1000.0
        if waited_ms < self._settings.detect_interval_ms:
            return []
        self._searched_whole_s = timestamp_s
        return self._detector.detect(image, None, self._settings.threshold)


def choose_face(
    faces: list[Detection], rule: str, picture_size: tuple[int, int]
) -> Detection | None:
    """Return the face that a rule (see `FaceSettings.face`) means.

    `picture_size` ((width, height)).
    """
    if not faces:
        return None
    if rule == "largest":
        return max(faces, key=lambda face: face.area)
    if rule == "central":
        width, height = picture_size
        middle = FaceBox(0.0, 0.0, width - 1.0, height - 1.0)
        return min(faces, key=lambda face: boxes.distance_in_widths(middle, boxes.box_of(face)))
    number = int(rule)
    ordered = sorted(faces, key=lambda face: face.left + face.right)
    return ordered[number - 1] if number <= len(ordered) else None


def nearest_face(faces: list[Detection], box: FaceBox, widths: float) -> Detection | None:
    """Return the face nearest to `box` if it is within `widths` face widths and of similar size."""
    alike = [face for face in faces if 0.5 < face.width / box.width < 2.0]
    nearest = min(
        alike, key=lambda face: boxes.distance_in_widths(box, boxes.box_of(face)), default=None
    )
    if nearest is None or boxes.distance_in_widths(box, boxes.box_of(nearest)) > widths:
        return None
    return nearest


ANOTHER_PLACE_WIDTHS = 1.5
"""A face that comes back farther away than this may be another person's."""
SURVEY_INTERVAL_S = 5.0
"""The whole picture is searched this often to count the faces in it."""
JUMP_SHARE = 0.2
"""Landmarks that move by more than this share of the face's width within 40 ms, or change their
spread by more than this share, make the detector look at once."""


@dataclass(frozen=True, eq=False)
class FoundFace:
    """The face in one frame and its landmarks, float64 (parts, 2) in pixels."""

    box: FaceBox
    score: float
    source: FaceSource
    landmarks: Float64
    disagreement: float = 0.0


@dataclass
class FaceCounts:
    """Searches of the whole picture that found faces, and how often a face came back elsewhere."""

    surveys: int = 0
    surveys_with_several: int = 0
    most_faces: int = 0
    other_places: int = 0

    def add(self, faces: int) -> None:
        self.surveys += faces > 0
        self.surveys_with_several += faces > 1
        self.most_faces = max(self.most_faces, faces)


class Follower(Protocol):
    """Follows a face: says where it is in the next frame."""

    @property
    def counts(self) -> FaceCounts: ...

    def step(self, image: UInt8, timestamp_s: float) -> FoundFace | None: ...


class FaceFollower:
    """Keeps one face of a video from frame to frame."""

    def __init__(
        self,
        detector: FaceDetector,
        predictor: boxes.Predictor,
        settings: boxes.FaceSettings = boxes.FaceSettings(),
    ) -> None:
        self._settings = settings
        self._search = FaceSearch(detector, self._settings)
        self._placer = boxes.LandmarkPlacer(predictor, self._settings)
        self._last: FoundFace | None = None
        self._last_s = -np.inf
        self._lost: FaceBox | None = None
        self._lost_s = -np.inf
        self._relation: boxes.BoxRelation | None = None
        self._checked_s = -np.inf
        self._surveyed_s = -np.inf
        self.counts = FaceCounts()

    def step(self, image: UInt8, timestamp_s: float) -> FoundFace | None:
        """Return the face of the next frame, None where there is none."""
        face = self._keep(image, timestamp_s)
        if face is None:
            detection = self._search_anew(image, timestamp_s)
            face = self._take(image, timestamp_s, detection) if detection else None
        elif timestamp_s - self._surveyed_s >= SURVEY_INTERVAL_S:
            self._surveyed_s = timestamp_s
            self.counts.add(len(self._search.reduced(image)))
        return face

    def landmarks_in(self, image: UInt8, box: FaceBox) -> Float64:
        """Place landmarks in a box that was found before; nothing of it is remembered."""
        start = self._placer.start_over(self._placer.place_in(image, box), box)
        return self._placer.place(image, start).landmarks

    def _keep(self, image: UInt8, timestamp_s: float) -> FoundFace | None:
        """Return the face that is followed, None when it is lost (or none was found yet)."""
        if self._last is None:
            return None
        face = self._followed(self._last, image, timestamp_s)
        if face is None:
            self._checked_s = timestamp_s
            near = self._search.near(image, self._last.box)
            face = self._started(near, image) if near else None
        return self._noted(face, timestamp_s)

    def _take(self, image: UInt8, timestamp_s: float, detection: Detection) -> FoundFace | None:
        """Begin to follow a face that a detector found in this frame."""
        self._checked_s = timestamp_s
        box = boxes.box_of(detection)
        if (
            self._lost is not None
            and boxes.distance_in_widths(self._lost, box) > ANOTHER_PLACE_WIDTHS
        ):
            self.counts.other_places += 1
        return self._noted(self._started(detection, image), timestamp_s)

    def _noted(self, face: FoundFace | None, timestamp_s: float) -> FoundFace | None:
        if face is None and self._last is not None:
            self._lost, self._lost_s = self._last.box, self._last_s
        self._last = face
        if face is not None:
            self._last_s = timestamp_s
        return face

    def _followed(self, last: FoundFace, image: UInt8, timestamp_s: float) -> FoundFace | None:
        """Follow the last face, unless a check is due or the landmarks jump."""
        due_ms = (timestamp_s - self._checked_s) * 1000.0
        # Half a millisecond, because times are rounded: 0.5 s is due after 15 frames of 30/s.
        if self._relation is None or due_ms + 0.5 >= self._settings.detect_interval_ms:
            return None
        placed = self._placer.place(image, self._placer.start_over(last.landmarks, last.box))
        if self._jumped(last, placed, timestamp_s - self._last_s):
            return None
        box = self._relation.box(placed.landmarks)
        nan = float("nan")
        return FoundFace(box, nan, FaceSource.FOLLOW, placed.landmarks, placed.disagreement)

    def _started(self, detection: Detection, image: UInt8) -> FoundFace:
        """Place landmarks for a detection, with little change where it confirms the last face."""
        box, last = boxes.box_of(detection), self._last
        start = self._placer.start_over(self._placer.place_in(image, box), box)
        if last is not None and self._settings.detect_interval_ms > 0:
            expected = self._placer.start_over(last.landmarks, last.box)
            if boxes.overlap(expected, start) > 0.5:
                start = boxes.blended(expected, start, boxes.BLEND)
        placed = self._placer.place(image, start)
        self._relation = boxes.BoxRelation.between(box, placed.landmarks)
        return FoundFace(
            box, detection.score, FaceSource.DETECT, placed.landmarks, placed.disagreement
        )

    def _jumped(self, last: FoundFace, placed: boxes.Placed, elapsed_s: float) -> bool:
        centre, spread = boxes.centre_and_spread(last.landmarks)
        new_centre, new_spread = boxes.centre_and_spread(placed.landmarks)
        allowed = JUMP_SHARE * max(1.0, elapsed_s / 0.040)
        moved = float(np.linalg.norm(new_centre - centre)) / last.box.width
        grown = abs(np.log(new_spread / spread))
        return bool(not np.isfinite(moved) or moved > allowed or grown > allowed)

    def _search_anew(self, image: UInt8, timestamp_s: float) -> Detection | None:
        face = self._search.whole(image, timestamp_s)
        self._surveyed_s = timestamp_s
        self.counts.add(len(face))
        if self._settings.face_track and self._lost is not None:
            return nearest_face(face, self._lost, 0.5 + timestamp_s - self._lost_s)
        return choose_face(face, self._settings.face, (image.shape[1], image.shape[0]))


class RegionFollower:
    """Places the landmarks of a face in one region for the whole recording.

    Small movements are followed; a face that leaves the region by more than a quarter of it, or
    changes its size by a third, is taken for an error, and the landmarks start from the region
    again.
    """

    def __init__(self, predictor: boxes.Predictor, settings: boxes.FaceSettings) -> None:
        left, top, width, height = settings.region
        self._region = FaceBox(left, top, left + width - 1.0, top + height - 1.0)
        self._settings = settings
        self._placer = boxes.LandmarkPlacer(predictor, settings)
        self._last: FoundFace | None = None
        self._home: FoundFace | None = None
        self._checked_s = -np.inf
        self.counts = FaceCounts()

    def step(self, image: UInt8, timestamp_s: float) -> FoundFace:
        self._check_inside(image)
        last = self._last
        due_ms = (timestamp_s - self._checked_s) * 1000.0
        if last is None or self._has_strayed(last):
            face = self._from_region(image, None)
        elif due_ms + 0.5 >= self._settings.detect_interval_ms:
            face = self._from_region(image, last)
        else:
            start = self._placer.start_over(last.landmarks, last.box)
            placed = self._placer.place(image, start)
            face = self._face(placed.landmarks, placed.disagreement)
        if face.source is FaceSource.REGION and due_ms + 0.5 >= self._settings.detect_interval_ms:
            self._checked_s = timestamp_s
        self._last = face
        return face

    def _from_region(self, image: UInt8, last: FoundFace | None) -> FoundFace:
        """Start from the region, or a little towards it where a face is followed."""
        landmarks = self._placer.place_in(image, self._region)
        start = self._placer.start_over(landmarks, self._region)
        if last is not None:
            expected = self._placer.start_over(last.landmarks, last.box)
            start = boxes.blended(expected, start, boxes.BLEND)
        placed = self._placer.place(image, start)
        face = self._face(placed.landmarks, placed.disagreement)
        if self._home is None:
            self._home = face
        return face

    def _face(self, landmarks: np.typing.NDArray[np.float64], disagreement: float) -> FoundFace:
        home = self._home.landmarks if self._home else landmarks
        box = boxes.BoxRelation.between(self._region, home).box(landmarks)
        return FoundFace(box, float("nan"), FaceSource.REGION, landmarks, disagreement)

    def _has_strayed(self, face: FoundFace) -> bool:
        home = self._home or face
        centre, spread = boxes.centre_and_spread(home.landmarks)
        new_centre, new_spread = boxes.centre_and_spread(face.landmarks)
        moved = float(np.linalg.norm(new_centre - centre)) / self._region.width
        grown = abs(float(np.log(new_spread / spread)))
        return not (moved <= 0.25 and grown <= 0.3)

    def _check_inside(self, image: UInt8) -> None:
        height, width = image.shape[:2]
        box = self._region
        if box.left < 0 or box.top < 0 or box.right >= width or box.bottom >= height:
            raise InvalidInputError(
                f"the region {','.join(map(str, self._settings.region))} (x, y, width, height) "
                f"reaches beyond the picture of {width}x{height} pixels"
            )


FRAMES_AHEAD = 8


@dataclass(frozen=True)
class VideoFootage:
    """Decodes a recording again and follows the face again.

    Landmarks of a whole recording would take half a kilobyte a frame; the same follower finds
    the same landmarks a second time. It sees grey pictures as in the analysis, the caller gets
    those in colour.
    """

    recording: Recording
    new_follower: Callable[[], Follower]

    def pictures(self) -> Iterator[tuple[Frame, FoundFace | None]]:
        """Yield each frame in colour, uint8 (height, width, 3), and the face found in it."""
        follower = self.new_follower()
        with (
            closing(self.recording.open()) as grey,
            closing(self.recording.open("rgb")) as colour,
            closing(read_ahead(grey.frames, FRAMES_AHEAD)) as seen,
            closing(read_ahead(colour.frames, FRAMES_AHEAD)) as shown,
        ):
            # Both readers skip the same damaged packets.
            for analysed, frame in zip(seen, shown, strict=True):
                face = None
                if not analysed.damaged:
                    face = follower.step(analysed.image, analysed.timestamp_s)
                yield frame, face
