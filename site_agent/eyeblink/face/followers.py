"""Other ways to follow: a face in a fixed place, and all faces of a video at once.

A fixed place needs no detector: for high-speed cameras and heads at rest.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from site_agent.errors import InvalidInputError
from site_agent.eyeblink.face import boxes, finding
from site_agent.eyeblink.records import FaceBox, FaceSource, UInt8
from site_agent.eyeblink.video.recording import Recording
from site_agent.eyeblink.video.seeking import read_ahead
from site_agent.faces.models import Detection, FaceDetector
from site_agent.pictures.video_reading import Frame


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
        self._last: finding.FoundFace | None = None
        self._home: finding.FoundFace | None = None
        self._checked_s = -np.inf
        self.counts = finding.FaceCounts()

    def step(self, image: UInt8, timestamp_s: float) -> finding.FoundFace:
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

    def _from_region(self, image: UInt8, last: finding.FoundFace | None) -> finding.FoundFace:
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

    def _face(
        self, landmarks: np.typing.NDArray[np.float64], disagreement: float
    ) -> finding.FoundFace:
        home = self._home.landmarks if self._home else landmarks
        box = boxes.BoxRelation.between(self._region, home).box(landmarks)
        return finding.FoundFace(box, float("nan"), FaceSource.REGION, landmarks, disagreement)

    def _has_strayed(self, face: finding.FoundFace) -> bool:
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


SAME_FACE_OVERLAP = 0.3


@dataclass(eq=False)
class FollowedFace:
    """One person, numbered in the order of appearance, and the face in the last step's frame."""

    number: int
    follower: finding.FaceFollower
    current: finding.FoundFace | None = field(default=None)


class FaceCrowd:
    """Follows every face; new ones are looked for in the whole picture at intervals.

    A face that comes back near the place where one was lost (one width of the face, and one more
    for each second) is taken for the same. Persons are not recognised otherwise.
    """

    def __init__(
        self,
        detector: FaceDetector,
        predictor: boxes.Predictor,
        settings: boxes.FaceSettings = boxes.FaceSettings(),
    ) -> None:
        self._detector, self._predictor = detector, predictor
        self._settings = settings
        self._search = finding.FaceSearch(detector, self._settings)
        self._searched_s = -np.inf
        self.faces: list[FollowedFace] = []

    def step(self, image: UInt8, timestamp_s: float) -> list[FollowedFace]:
        """Return all persons known so far, with their faces in this frame."""
        for person in self.faces:
            person.current = person.follower.keep(image, timestamp_s)
        self._let_one_follow_each()
        due_ms = (timestamp_s - self._searched_s) * 1000.0
        if due_ms + 0.5 >= self._settings.detect_interval_ms:
            self._searched_s = timestamp_s
            for detection in self._search.whole(image, timestamp_s):
                self._meet(detection, image, timestamp_s)
        return self.faces

    def _let_one_follow_each(self) -> None:
        """Where two followers have come together on one face, the older one keeps it."""
        seen: list[FollowedFace] = []
        for person in self.faces:
            face = person.current
            if face is None:
                continue
            if any(
                other.current and boxes.overlap(other.current.box, face.box) > SAME_FACE_OVERLAP
                for other in seen
            ):
                person.follower.forget()
                person.current = None
            else:
                seen.append(person)

    def _meet(self, detection: Detection, image: UInt8, timestamp_s: float) -> None:
        """Assign a detection to its person, or to a new one."""
        box = boxes.box_of(detection)
        present = [person.current.box for person in self.faces if person.current]
        if any(boxes.overlap(box, other) > SAME_FACE_OVERLAP for other in present):
            return
        near = []
        for person in self.faces:
            last = person.follower.last_box
            if not person.follower.is_lost or last is None:
                continue
            apart = boxes.distance_in_widths(last, box)
            if apart < 1.0 + timestamp_s - person.follower.seen_s:
                near.append((apart, person.number))
        if near:
            person = self.faces[min(near)[1]]
        else:
            follower = finding.FaceFollower(
                self._detector, self._predictor, self._settings, search=self._search
            )
            person = FollowedFace(len(self.faces), follower)
            self.faces.append(person)
        person.current = person.follower.take(image, timestamp_s, detection)


FRAMES_AHEAD = 8


@dataclass(frozen=True)
class VideoFootage:
    """Decodes a recording again and follows the face again.

    Landmarks of a whole recording would take half a kilobyte a frame; the same follower finds
    the same landmarks a second time. It sees grey pictures as in the analysis, the caller gets
    those in colour.
    """

    recording: Recording
    new_follower: Callable[[], finding.Follower]

    def pictures(self) -> Iterator[tuple[Frame, finding.FoundFace | None]]:
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
                yield frame, follower.step(analysed.image, analysed.timestamp_s)
