"""All faces of a video, each followed on its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from site_agent.eyeblink.face.boxes import box_of, distance_in_widths, overlap
from site_agent.eyeblink.face.finding import FaceFollower, FoundFace
from site_agent.eyeblink.face.placing import Predictor
from site_agent.eyeblink.face.search import FaceSearch
from site_agent.eyeblink.face.settings import FaceSettings
from site_agent.eyeblink.records import UInt8
from site_agent.faces.detector import Detection, FaceDetector

SAME_FACE_OVERLAP = 0.3


@dataclass(eq=False)
class FollowedFace:
    """One person, numbered in the order of appearance, and the face in the last step's frame."""

    number: int
    follower: FaceFollower
    current: FoundFace | None = field(default=None)


class FaceCrowd:
    """Follows every face; new ones are looked for in the whole picture at intervals.

    A face that comes back near the place where one was lost (one width of the face, and one more
    for each second) is taken for the same. Persons are not recognised otherwise.
    """

    def __init__(
        self, detector: FaceDetector, predictor: Predictor, settings: FaceSettings | None = None
    ) -> None:
        self._detector, self._predictor = detector, predictor
        self._settings = settings or FaceSettings()
        self._settings.check()
        self._search = FaceSearch(detector, self._settings)
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
                other.current and overlap(other.current.box, face.box) > SAME_FACE_OVERLAP
                for other in seen
            ):
                person.follower.forget()
                person.current = None
            else:
                seen.append(person)

    def _meet(self, detection: Detection, image: UInt8, timestamp_s: float) -> None:
        """Give a detection to whom it belongs, or to somebody new."""
        box = box_of(detection)
        present = [person.current.box for person in self.faces if person.current]
        if any(overlap(box, other) > SAME_FACE_OVERLAP for other in present):
            return
        near = []
        for person in self.faces:
            last = person.follower.last_box
            if not person.follower.is_lost or last is None:
                continue
            apart = distance_in_widths(last, box)
            if apart < 1.0 + timestamp_s - person.follower.seen_s:
                near.append((apart, person.number))
        if near:
            person = self.faces[min(near)[1]]
        else:
            follower = FaceFollower(
                self._detector, self._predictor, self._settings, search=self._search
            )
            person = FollowedFace(len(self.faces), follower)
            self.faces.append(person)
        person.current = person.follower.take(image, timestamp_s, detection)
