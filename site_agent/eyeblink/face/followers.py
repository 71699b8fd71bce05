"""Follow a face in a fixed place, and follow one a second time for its pictures.

A fixed place needs no detector: for high-speed cameras and heads at rest.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from site_agent.errors import InvalidInputError
from site_agent.eyeblink.face import boxes, finding
from site_agent.eyeblink.records import FaceBox, FaceSource, UInt8
from site_agent.eyeblink.video.recording import Recording
from site_agent.eyeblink.video.seeking import read_ahead
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
                face = None
                if not analysed.damaged:
                    face = follower.step(analysed.image, analysed.timestamp_s)
                yield frame, face
