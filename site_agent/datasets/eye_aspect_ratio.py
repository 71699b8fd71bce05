"""The eye aspect ratio: the height of an eye over its width, from landmarks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

LEFT_EYE = slice(42, 48)
"""The subject's left eye: landmarks 43..48 of the iBUG scheme, counted from 1."""
RIGHT_EYE = slice(36, 42)
"""The subject's right eye: landmarks 37..42."""
EYE_POINTS = 12
"""Landmarks of a model of the eyes alone."""


def eye_aspect_ratio(eye: NDArray[np.floating]) -> Float64:
    """Return height over width of eyes.

    Parameters
    ----------
    eye : float, shape (..., 6, 2)
        Corner, two points of the upper lid, other corner, two points of the lower lid.

    Returns
    -------
    float64, shape (...)
        ``(|2-6| + |3-5|) / (2 |1-4|)`` with points counted from 1; NaN for an eye of no width.

    Notes
    -----
    Soukupová and Čech 2016, and section V.A of the paper on merging landmark sub-models.
    """
    points = np.asarray(eye, dtype=np.float64)
    heights = np.linalg.norm(points[..., 1, :] - points[..., 5, :], axis=-1) + np.linalg.norm(
        points[..., 2, :] - points[..., 4, :], axis=-1
    )
    widths = np.linalg.norm(points[..., 0, :] - points[..., 3, :], axis=-1)
    known = widths > 0
    return np.where(known, heights / (2.0 * np.where(known, widths, 1.0)), np.nan)


def eyes_of(landmarks: NDArray[np.floating]) -> tuple[Float64, Float64]:
    """Return the points (left, right) of both eyes, each of shape (..., 6, 2).

    Parameters
    ----------
    landmarks : float, shape (..., 68, 2) or (..., 12, 2)
        All landmarks of the iBUG scheme, or those of the eyes alone (37 to 48).
    """
    points = np.asarray(landmarks, dtype=np.float64)
    if points.shape[-2] == EYE_POINTS:
        return points[..., 6:, :], points[..., :6, :]
    return points[..., LEFT_EYE, :], points[..., RIGHT_EYE, :]


def both_eye_aspect_ratios(landmarks: NDArray[np.floating]) -> tuple[Float64, Float64]:
    """Return the eye aspect ratios (left, right) of landmarks as in `eyes_of`."""
    left, right = eyes_of(landmarks)
    return eye_aspect_ratio(left), eye_aspect_ratio(right)
