"""Lettering on frames: each letter is drawn once and then copied, for text on every frame."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont

WHITE, BLACK = (255, 255, 255), (0, 0, 0)
_RIM_PX = 2


@dataclass(frozen=True, eq=False)
class _Letter:
    """`ink` and `rim` are masks of one size, in which the letter begins `_RIM_PX` inside."""

    ink: Image.Image
    rim: Image.Image
    advance_px: float


class Lettering:
    """Writes white text with a black rim, readable on any picture.

    Parameters
    ----------
    size_px : int
        Of the font.
    """

    def __init__(self, size_px: int) -> None:
        self.size_px = size_px
        self._font = ImageFont.load_default(size=size_px)
        self._letters: dict[str, _Letter] = {}

    def width_px(self, text: str) -> float:
        return sum(self._letter(sign).advance_px for sign in text)

    def write(self, picture: Image.Image, left_px: float, top_px: float, text: str) -> None:
        """Write one line into a picture, in place."""
        placed, x = [], left_px
        for sign in text:
            letter = self._letter(sign)
            placed.append((letter, (round(x) - _RIM_PX, round(top_px) - _RIM_PX)))
            x += letter.advance_px
        # All rims first: none may lie on the letter before it.
        for letter, place in placed:
            picture.paste(BLACK, place, letter.rim)
        for letter, place in placed:
            picture.paste(WHITE, place, letter.ink)

    def _letter(self, sign: str) -> _Letter:
        if sign not in self._letters:
            self._letters[sign] = self._drawn(sign)
        return self._letters[sign]

    def _drawn(self, sign: str) -> _Letter:
        advance_px = self._font.getlength(sign)
        size = (round(advance_px) + 4 * _RIM_PX, round(1.4 * self.size_px) + 2 * _RIM_PX)
        masks = []
        for rim_px in (0, _RIM_PX):
            mask = Image.new("L", size)
            pen = ImageDraw.Draw(mask)
            pen.text((_RIM_PX, _RIM_PX), sign, fill=255, font=self._font, stroke_width=rim_px)
            masks.append(mask)
        return _Letter(masks[0], masks[1], advance_px)


@lru_cache(maxsize=4)
def lettering(size_px: int) -> Lettering:
    """Return the letters of a size; they are kept for the next frame."""
    return Lettering(size_px)
