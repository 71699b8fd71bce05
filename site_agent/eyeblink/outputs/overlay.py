"""overlay.mp4 on request: the recording with face, landmarks and blinks drawn in.

Each frame keeps its own time, so that variable frame rates look as they were.
"""

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from site_agent.datasets.landmark_schemes import eyes_of
from site_agent.datasets.trials import TrialType
from site_agent.errors import InvalidInputError
from site_agent.eyeblink.face.finding import FoundFace
from site_agent.eyeblink.records import FaceSource, Float64, Gap, Int64, UInt8
from site_agent.eyeblink.session import AnalysedSession
from site_agent.eyeblink.video.seeking import read_ahead
from site_agent.pictures.plot_style import FOUND_RGB
from site_agent.pictures.video import write_video
from site_agent.pictures.video_reading import Frame

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

LARGEST_SIDE_PX = 1280
SMALLEST_SIDE_PX = 320
STIMULUS_SHOWN_S = 0.1

FRAMES_AHEAD = 8

WHITE, BLACK = (255, 255, 255), (0, 0, 0)


def write_overlay(session: AnalysedSession, path: Path) -> None:
    """Draw face box, landmarks, closure, blinks and stimuli on every frame."""
    if session.footage is None:
        raise InvalidInputError("there are no pictures: the analysis began with a trace")
    pictures = session.footage.pictures()
    facts = _FrameFacts.of(session)

    def drawn_frames() -> Iterator[tuple[float, UInt8]]:
        for frame, face in pictures:
            if frame.index < len(facts.timestamps_s):
                yield frame.timestamp_s, draw_overlay(frame, face, facts)

    # Frames are read and drawn while others are encoded.
    with closing(read_ahead(drawn_frames, FRAMES_AHEAD)) as drawn:
        write_video(path, drawn)


@dataclass(frozen=True, eq=False)
class _FrameFacts:
    """Facts written on the frames; one entry a frame, stimuli as (time, name)."""

    timestamps_s: Float64
    ear: Float64
    fec_left: Float64
    fec_right: Float64
    gaps: UInt8
    blink_ids: Int64
    kinds: dict[int, str]
    stimuli: tuple[tuple[float, str], ...]
    calibrated: bool

    @classmethod
    def of(cls, session: AnalysedSession) -> "_FrameFacts":
        stimuli: list[tuple[float, str]] = []
        trials = session.conditioning.trials if session.conditioning is not None else ()
        for result in trials:
            measures = result.measures
            if result.has_cs:
                stimuli.append((measures.cs_onset_s, "CS"))
            if measures.trial_type is not TrialType.CS_ONLY:
                stimuli.append((measures.us_onset_s, "US"))
        return cls(
            session.trace.timestamps_s,
            session.trace.ear,
            session.fec_left(),
            session.fec_right(),
            session.trace.gaps,
            session.blink_ids(),
            {blink.number: f"{blink.completeness} {blink.kind}" for blink in session.blinks},
            tuple(stimuli),
            session.calibration.reliable,
        )

    def stimulus_text(self, time_s: float) -> str:
        shown = [name for onset_s, name in self.stimuli if 0 <= time_s - onset_s < STIMULUS_SHOWN_S]
        return " ".join(dict.fromkeys(shown))


def draw_overlay(frame: Frame, face: FoundFace | None, facts: _FrameFacts) -> UInt8:
    """Draw the results into one frame; its size is even, at most 1280 pixels a side."""
    height_px, width_px = frame.image.shape[:2]
    scale = _scale(width_px, height_px)
    half_width, half_height = (max(1, round(side * scale / 2.0)) for side in (width_px, height_px))
    size = (2 * half_width, 2 * half_height)
    picture = Image.fromarray(frame.image).resize(size, Image.Resampling.BILINEAR)
    draw = ImageDraw.Draw(picture)
    line_px = max(1, round(min(size) / 300))
    if face is not None:
        _draw_face(draw, face, scale, line_px)
    _draw_texts(picture, frame, facts)
    return np.asarray(picture)


def _scale(width_px: int, height_px: int) -> float:
    longest, shortest = max(width_px, height_px), min(width_px, height_px)
    if longest > LARGEST_SIDE_PX:
        return LARGEST_SIDE_PX / longest
    # Small pictures get room for the texts.
    return min(max(1.0, SMALLEST_SIDE_PX / shortest), LARGEST_SIDE_PX / longest)


def _draw_face(draw: ImageDraw.ImageDraw, face: FoundFace, scale: float, line_px: int) -> None:
    box = face.box
    corners = [
        box.left * scale,
        box.top * scale,
        (box.right + 1.0) * scale,
        (box.bottom + 1.0) * scale,
    ]
    if all(math.isfinite(corner) for corner in corners):
        # Found by the detector: a double line; followed: a single one.
        draw.rectangle(corners, outline=WHITE, width=line_px)
        if face.source is FaceSource.DETECT:
            wider = [corners[0] - 3 * line_px, corners[1] - 3 * line_px]
            wider += [corners[2] + 3 * line_px, corners[3] + 3 * line_px]
            draw.rectangle(wider, outline=WHITE, width=line_px)
    points = face.landmarks * scale
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            draw.ellipse([x - line_px, y - line_px, x + line_px, y + line_px], fill=FOUND_RGB)
    for eye in eyes_of(points):
        outline = [(float(x), float(y)) for x, y in eye]
        if np.isfinite(eye).all():
            draw.line([*outline, outline[0]], fill=FOUND_RGB, width=line_px)


def _draw_texts(picture: Image.Image, frame: Frame, facts: _FrameFacts) -> None:
    size = picture.size
    place, time_s = frame.index, frame.timestamp_s
    text_px = max(11, round(min(size) / 28))
    font = _font(text_px)
    draw = ImageDraw.Draw(picture)
    ear = float(facts.ear[place])
    gap = Gap(int(facts.gaps[place])).text
    lines = [
        f"{time_s:9.3f} s   frame {place}",
        f"EAR {ear:.3f}" if math.isfinite(ear) else f"EAR not known ({gap or 'not measured'})",
    ]
    right, left = float(facts.fec_right[place]), float(facts.fec_left[place])
    if not facts.calibrated:
        lines.append("FEC not calibrated")
    elif math.isfinite(right + left):
        lines.append(f"FEC {right:.2f} right, {left:.2f} left")
    number = int(facts.blink_ids[place])
    if number:
        lines.append(f">> {facts.kinds[number]} {number} <<")
    stimulus = facts.stimulus_text(time_s)
    if stimulus:
        lines.append(f"** {stimulus} **")
    for row, line in enumerate(lines):
        _write(draw, (text_px * 0.5, text_px * (0.4 + 1.35 * row)), line, font)


@lru_cache(maxsize=4)
def _font(size_px: int) -> Font:
    return ImageFont.load_default(size=size_px)


def _write(draw: ImageDraw.ImageDraw, at_px: tuple[float, float], text: str, font: Font) -> None:
    """Write white text with a black rim, which is readable on any picture."""
    draw.text(at_px, text, font=font, fill=WHITE, stroke_width=2, stroke_fill=BLACK)
