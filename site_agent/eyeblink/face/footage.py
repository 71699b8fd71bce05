"""A video's pictures once more, with the faces that the analysis found in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from site_agent.eyeblink.face.finding import Follower, FoundFace
from site_agent.eyeblink.video.frames import Frame
from site_agent.eyeblink.video.recording import Recording
from site_agent.eyeblink.video.seeking import read_ahead

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
                yield frame, follower.step(analysed.image, analysed.timestamp_s)
