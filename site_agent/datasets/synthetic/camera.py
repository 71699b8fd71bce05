"""What a camera does to a scene: focus, exposure, noise, grey, compression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from site_agent.datasets.synthetic.canvas import Float32, UInt8, blurred, jpeg_artefacts


@dataclass(frozen=True)
class Camera:
    """How a scene is taken.

    `blur_px` and `noise` (grey levels, middle tones) are standard deviations, `exposure` is a
    factor for the brightness.
    """

    blur_px: float = 0.5
    noise: float = 2.0
    exposure: float = 1.0
    jpeg_quality: int | None = None
    grey: bool = False


def expose(scene: Float32, camera: Camera, rng: np.random.Generator) -> UInt8:
    """Take a picture, uint8 of shape (H, W, 3) in RGB, of a scene with colours in 0..255."""
    image = scene * np.float32(camera.exposure)
    if camera.blur_px > 0.2:
        image = blurred(image, camera.blur_px)
    if camera.grey:
        image = np.repeat(image.mean(axis=2, keepdims=True), 3, axis=2)
    if camera.noise > 0:
        image += _noise(rng, image.shape[:2], 1 if camera.grey else 3, camera.noise)
    taken: UInt8 = np.clip(image + np.float32(0.5), 0, 255).astype(np.uint8)
    if camera.jpeg_quality is not None:
        taken = jpeg_artefacts(taken, camera.jpeg_quality)
    return taken


def _noise(
    rng: np.random.Generator, shape: tuple[int, int], channels: int, deviation: float
) -> Float32:
    """Noise close to normal, shape (H, W, channels); the sum of four bytes is several times
    faster to draw than a normal deviate, and a sensor's noise is no more normal than that."""
    count = shape[0] * shape[1] * channels
    four = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.uint8).reshape(count, 4)
    total = four.astype(np.uint16) @ np.ones(4, dtype=np.uint16)
    # Four uniform bytes: mean 510, variance 4 * (256^2 - 1) / 12.
    noise = (total.astype(np.float32) - np.float32(510)) * np.float32(deviation / 147.8)
    return noise.reshape(*shape, channels)
