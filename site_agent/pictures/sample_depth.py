"""Pictures of 16 bits a sample that use fewer: cameras of 10 or 12 bits store them so.

A file does not say how many of its bits are used. Samples that never reach the upper bits, but use
the lowest, have been stored as the camera gave them; taking the upper 8 of 16 bits would leave
pictures that are nearly black.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

UInt8 = NDArray[np.uint8]
Pixels = NDArray[np.unsignedinteger[Any]]
"""Of 8 or of 16 bits."""

FULL_BITS = 16
# Pictures below a quarter of the range may be dark photographs, and a film of them a dark film;
# below a sixteenth, of which 8 bits keep 16 levels, they are taken for pictures of 12 bits.
_DEPTHS = (8, 10, 12)
_SHIFT_OF_12 = 4


@dataclass(frozen=True)
class Samples:
    """What tells how many bits pictures use: can be gathered from several.

    Attributes
    ----------
    any_set : int
        All samples combined by "or".
    repeats_bytes : bool
        Whether both bytes of every sample are the same: 8 bits stretched to 16.
    """

    any_set: int = 0
    repeats_bytes: bool = True

    @classmethod
    def of(cls, pictures: Iterable[Pixels]) -> Samples:
        any_set, repeats = 0, True
        for picture in pictures:
            any_set |= int(np.bitwise_or.reduce(picture, axis=None))
            repeats = repeats and bool(np.array_equal(picture >> 8, picture & 0xFF))
        return cls(any_set, repeats)

    def used_bits(self) -> int:
        """Return 8, 10 or 12; 16 where it is no fewer or cannot be told."""
        needed = self.any_set.bit_length()
        bits = next((depth for depth in _DEPTHS if needed <= depth), FULL_BITS)
        # Scaled up to 16 bits, by a shift or by 257, a dark picture is to stay a dark one.
        lowest = (1 << _SHIFT_OF_12) - 1
        scaled = not self.any_set & lowest or self.repeats_bytes
        return FULL_BITS if scaled else bits


def to_8_bits(picture: Pixels, bits: int) -> UInt8:
    """Return the upper 8 of the `bits` that are used; values beyond them become white."""
    return np.asarray(np.minimum(picture >> (bits - 8), 255), dtype=np.uint8)


def depth_remark(bits: int) -> str:
    """Return what to tell of a film of whose 16 bits fewer are used, as far as was looked."""
    return (
        f"pictures are stored with {FULL_BITS} bits a pixel, but no picture looked at uses more "
        f"than {bits}: brightness is scaled to {bits} bits, and what is brighter becomes white"
    )
