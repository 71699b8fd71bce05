"""Directions of gaze and poses of heads as angles, in the frame of the normalised camera.

x points to the right of the picture, y down, z away from the camera. Angles are (yaw, pitch) in
radians: yaw is positive to the left of the picture, pitch upwards, (0, 0) looks into the camera.
The conversions are those of MPIIGaze's own notes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


def gaze_angles(vectors: Float64) -> Float64:
    """Return yaw and pitch, shape (n, 2), of unit vectors (n, 3): (atan2(-x, -z), asin(-y))."""
    x, y, z = vectors.T
    return np.stack([np.arctan2(-x, -z), np.arcsin(np.clip(-y, -1, 1))], axis=1)


def gaze_vectors(angles: Float64) -> Float64:
    """Return unit vectors, shape (n, 3), of yaws and pitches (n, 2)."""
    yaw, pitch = angles.T
    flat = np.cos(pitch)
    return np.stack([-flat * np.sin(yaw), -np.sin(pitch), -flat * np.cos(yaw)], axis=1)


def head_angles(poses: Float64) -> Float64:
    """Return yaw and pitch, shape (n, 2), of poses given as Rodrigues vectors (n, 3).

    With z the third column of the rotation: (atan2(z_x, z_z), asin(z_y)).
    """
    angle = np.linalg.norm(poses, axis=1)
    x, y, z = (poses / np.maximum(angle, 1e-12)[:, None]).T
    sine, rest = np.sin(angle), 1 - np.cos(angle)
    # Rodrigues' formula applied to (0, 0, 1).
    forward = np.array(
        [rest * x * z + sine * y, rest * y * z - sine * x, np.cos(angle) + rest * z * z]
    )
    return gaze_angles(-forward.T)


def angular_errors_deg(found: Float64, expected: Float64) -> Float64:
    """Return angles in degrees, shape (n,), between directions given by yaw and pitch (n, 2)."""
    first, second = gaze_vectors(found), gaze_vectors(expected)
    across = np.linalg.norm(np.cross(first, second), axis=1)
    # The arc cosine would be inexact for small errors.
    errors: Float64 = np.rad2deg(np.arctan2(across, (first * second).sum(axis=1)))
    return errors
