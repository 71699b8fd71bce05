"""Pictures with 16 bits a sample, of which cameras of 10 or 12 bits use fewer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

UInt8 = NDArray[np.uint8]
Pixels = NDArray[np.unsignedinteger[Any]]
"""Of 8 or of 16 bits."""

FULL_BITS = 16


def to_8_bits(picture: Pixels, bits: int) -> UInt8:
    """Return the upper 8 of the `bits` that are used; values beyond them become white."""
    return np.asarray(np.minimum(picture >> (bits - 8), 255), dtype=np.uint8)
