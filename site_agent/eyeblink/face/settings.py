"""How faces are found, chosen and followed."""

from __future__ import annotations

from dataclasses import dataclass

from site_agent.errors import BlinkAnalysisError


@dataclass(frozen=True)
class FaceSettings:
    """How faces are found and followed.

    Attributes
    ----------
    face : str
        Which face when several are visible: ``largest``, ``central`` (nearest to the middle of
        the picture), or a number: 1 is the leftmost in the picture.
    face_track : bool
        Stay with the face that was chosen first: when it is lost, only a face near its last
        place is taken for it, the nearer the shorter it was lost (one width of the face a
        second).
    region : tuple of int
        X,Y,WIDTH,HEIGHT in pixels of a fixed place where the face is, as a detector would box
        it; then no detector runs. For high-speed cameras and heads at rest.
    detect_interval_ms : float
        The detector checks a followed face this often; 0: in every frame, nothing is followed.
    search_side_px : int
        Whole frames are searched at this length of their longer side; 0: as they are. Where
        nothing is found so, the frame is searched as it is.
    threshold : float
        Added to the score that a face needs.
    starts : int
        Landmarks are placed from this many slightly different boxes (1 to 9), and the median is
        taken: where a face box begins changes what a landmark model finds, as noise of the eye
        aspect ratio.
    """

    face: str = "largest"
    face_track: bool = False
    region: tuple[int, ...] = ()
    detect_interval_ms: float = 500.0
    search_side_px: int = 640
    threshold: float = 0.0
    starts: int = 7

    def check(self) -> None:
        """Raise an error for values out of range.

        Raises
        ------
        BlinkAnalysisError
        """
        numbered = self.face.isdecimal() and int(self.face) >= 1
        if self.face not in {"largest", "central"} and not numbered:
            raise BlinkAnalysisError(
                f"face is {self.face!r}, expected largest, central or a number from 1 (leftmost)"
            )
        if self.region and (len(self.region) != 4 or min(self.region[2:]) < 16):
            raise BlinkAnalysisError(
                f"region is {','.join(map(str, self.region))}, expected X,Y,WIDTH,HEIGHT in "
                "pixels, at least 16 wide and high"
            )
        if not 1 <= self.starts <= 9:
            raise BlinkAnalysisError(f"starts is {self.starts}, expected 1 to 9")
