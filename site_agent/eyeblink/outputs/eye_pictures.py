"""Pictures of the eyes at onset, peak and offset of blinks, for a report that stays at the site."""

import base64
import io
from contextlib import closing

import numpy as np
from markupsafe import Markup
from PIL import Image

from site_agent.errors import ImageFileError, VideoFileError
from site_agent.eyeblink.blinks.finding import Blink
from site_agent.eyeblink.records import Float64, Int64, UInt8
from site_agent.eyeblink.session import AnalysedSession

MOST_BLINKS = 120
"""Seeking takes a tenth of a second for each; the review shows all others."""
EYES_PX = (108, 54)
BESIDE, ABOVE = 1.0, 0.5
"""Shown around the middle of the eyes, in distances of the eyes."""


def eye_pictures(session: AnalysedSession) -> list[str]:
    """Return an image element for each of the first blinks; none where there is no picture."""
    face, opened = session.trace.face, session.pictures
    if not session.settings.files.eye_pictures or opened is None:
        return []
    if face is None or face.eyes_places is None:
        return []
    strips = []
    try:
        with closing(opened()) as recording:
            for blink in session.blinks[:MOST_BLINKS]:
                moments = (blink.onset_frame, blink.peak_frame, blink.offset_frame)
                rows = np.searchsorted(session.trace.frames, moments)
                places = _known_places(face.eyes_places, rows)
                eyes = [
                    _eyes(recording.picture(frame), place)
                    for frame, place in zip(moments, places, strict=True)
                ]
                strips.append(_element(blink, np.concatenate(eyes, axis=1)))
    except (ImageFileError, OSError, VideoFileError):
        # A report without pictures is better than none.
        return []
    return strips


def _known_places(places: Float64, rows: Int64) -> Float64:
    """Return the middles and distances of the eyes; of the nearest row where they are not known."""
    known = np.flatnonzero(np.isfinite(places).all(axis=1))
    nearest = known[np.abs(known[None, :] - rows[:, None]).argmin(axis=1)]
    return np.asarray(places[nearest], dtype=np.float64)


def _eyes(picture: UInt8, place: Float64) -> UInt8:
    x, y, distance = place
    across, up = BESIDE * distance, ABOVE * distance
    corners = (x - across, y - up, x + across, y + up)
    image = Image.fromarray(picture).convert("L")
    cut = image.transform(EYES_PX, Image.Transform.EXTENT, corners, Image.Resampling.BILINEAR)
    return np.asarray(cut, dtype=np.uint8)


def _element(blink: Blink, strip: UInt8) -> str:
    data = io.BytesIO()
    Image.fromarray(strip).save(data, "JPEG", quality=80)
    text = base64.b64encode(data.getvalue()).decode("ascii")
    caption = f"Eyes at onset, peak and offset of blink {blink.number}"
    return Markup('<img class="eyes" src="data:image/jpeg;base64,{}" alt="{}">').format(
        text, caption
    )
