"""Soft shapes painted on arrays, by OpenCV, and a camera's effects on the scene."""

from dataclasses import dataclass
from typing import TypeVar, cast

import cv2
import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class Camera:
    """The camera that takes a scene."""

    blur_px: float = 0.5
    """Standard deviation."""
    noise: float = 2.0
    """Standard deviation, grey levels in middle tones."""
    exposure: float = 1.0
    """Factor for the brightness."""
    jpeg_quality: int | None = None
    grey: bool = False


def expose(scene: "Float32", camera: Camera, rng: np.random.Generator) -> "UInt8":
    """Take a picture, uint8 of shape (H, W, 3) in RGB, of a scene with colours in 0..255."""
    image = scene * np.float32(camera.exposure)
    if camera.blur_px > 0.2:
        image = blurred(image, camera.blur_px)
    if camera.grey:
        image = np.repeat(image.mean(axis=2, keepdims=True), 3, axis=2)
    if camera.noise > 0:
        image += _noise(rng, image.shape[:2], 1 if camera.grey else 3, camera.noise)
    picture: UInt8 = np.clip(image + np.float32(0.5), 0, 255).astype(np.uint8)
    if camera.jpeg_quality is not None:
        picture = jpeg_artefacts(picture, camera.jpeg_quality)
    return picture


def _noise(
    rng: np.random.Generator, shape: tuple[int, int], channels: int, deviation: float
) -> "Float32":
    """Return noise close to normal, shape (H, W, channels); the sum of four bytes is several times
    faster to draw than a normal deviate, and a sensor's noise is no more normal than that."""
    count = shape[0] * shape[1] * channels
    four = rng.integers(0, 1 << 32, count, dtype=np.uint32).view(np.uint8).reshape(count, 4)
    total = four.astype(np.uint16) @ np.ones(4, dtype=np.uint16)
    # Four uniform bytes: mean 510, variance 4 * (256^2 - 1) / 12.
    noise = (total.astype(np.float32) - np.float32(510)) * np.float32(deviation / 147.8)
    return noise.reshape(*shape, channels)


Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
UInt8 = NDArray[np.uint8]
Image = TypeVar("Image", UInt8, Float32)

_SHIFT = 4  # fractional bits of the corners that OpenCV fills between


class Canvas:
    """A colour image (H, W, 3) with values of 0..255 on which shapes are painted in place.

    Shapes are in the units of the caller: `scale` pixels per unit, and `origin` is the centre of
    the upper left pixel.
    """

    def __init__(self, pixels: Float32, scale: float = 1.0, origin: ArrayLike = (0, 0)) -> None:
        self.pixels = pixels
        self.scale = scale
        self.origin = np.asarray(origin, dtype=np.float64)

    def fill(
        self,
        outline: ArrayLike,
        colour: ArrayLike,
        *,
        softness: float = 0.0,
        opacity: float = 1.0,
        multiply: bool = False,
    ) -> None:
        """Fill a polygon of shape (n, 2), or several of shape (m, n, 2) as one shape.

        With `multiply` the colour is a factor for the existing colour. `softness` is the standard
        deviation, in units, of the Gaussian that blurs the edge.
        """
        points = (np.asarray(outline, dtype=np.float64) - self.origin) * self.scale
        window = self._window(points.reshape(-1, 2), softness * self.scale)
        if window is None:
            return
        left, top, right, bottom = window
        mask = polygon_mask((bottom - top, right - left), points - (left, top))
        if softness * self.scale > 0.3:
            mask = blurred(mask, softness * self.scale)
        share = mask.astype(np.float32)[..., None] * np.float32(opacity / 255)
        target = self.pixels[top:bottom, left:right]
        paint = np.asarray(colour, dtype=np.float32)
        if multiply:
            target *= 1 + share * (paint - 1)
        else:
            target += share * (paint - target)

    def ribbon(
        self,
        line: ArrayLike,
        widths: ArrayLike,
        colour: ArrayLike,
        *,
        softness: float = 0.0,
        opacity: float = 1.0,
        multiply: bool = False,
    ) -> None:
        """Paint along a line of shape (n, 2); `widths` is one number or one for each point."""
        outline = ribbon_outline(np.asarray(line, dtype=np.float64), widths)
        self.fill(outline, colour, softness=softness, opacity=opacity, multiply=multiply)

    def ellipse(
        self,
        centre: ArrayLike,
        radii: ArrayLike,
        colour: ArrayLike,
        *,
        softness: float = 0.0,
        opacity: float = 1.0,
        multiply: bool = False,
    ) -> None:
        """Paint an upright ellipse."""
        outline = ellipse_outline(centre, radii)
        self.fill(outline, colour, softness=softness, opacity=opacity, multiply=multiply)

    def _window(self, points: Float64, sigma: float) -> tuple[int, int, int, int] | None:
        """Return the window that these points can change: left, top, right, bottom, half-open."""
        height, width = self.pixels.shape[:2]
        margin = 3 * sigma + 2
        low, high = points.min(axis=0) - margin, points.max(axis=0) + margin
        left, top = max(int(low[0]), 0), max(int(low[1]), 0)
        right, bottom = min(int(high[0]) + 2, width), min(int(high[1]) + 2, height)
        return (left, top, right, bottom) if left < right and top < bottom else None


_ANGLES = np.linspace(0, 2 * np.pi, 28, endpoint=False)
_CIRCLE = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)


def ellipse_outline(centre: ArrayLike, radii: ArrayLike) -> Float64:
    """Return the corners of an upright ellipse, shape (28, 2)."""
    outline: Float64 = np.asarray(centre) + _CIRCLE * np.asarray(radii)
    return outline


def moved(points: Float64, x: float, y: float) -> Float64:
    """The same points elsewhere."""
    shifted: Float64 = points + np.array([x, y])
    return shifted


def ribbon_outline(line: Float64, widths: ArrayLike) -> Float64:
    """Return the outline of a band along a line: there on one side, back on the other.

    `line` of shape (..., n, 2) gives outlines of shape (..., 2 n, 2).
    """
    along = np.empty_like(line)
    along[..., 1:-1, :] = line[..., 2:, :] - line[..., :-2, :]
    along[..., 0, :] = line[..., 1, :] - line[..., 0, :]
    along[..., -1, :] = line[..., -1, :] - line[..., -2, :]
    across = np.stack([-along[..., 1], along[..., 0]], axis=-1)
    across /= np.maximum(np.hypot(across[..., 0], across[..., 1]), 1e-9)[..., None]
    offset = across * (np.asarray(widths, dtype=np.float64)[..., None] / 2)
    return np.concatenate([line + offset, (line - offset)[..., ::-1, :]], axis=-2)


def smooth_line(knots: ArrayLike, points: int) -> Float64:
    """Return `points` evenly spaced places on a curve through knots of shape (k, 2), k >= 3."""
    k = np.asarray(knots, dtype=np.float64)
    before, after = 2 * k[0] - k[1], 2 * k[-1] - k[-2]
    padded = np.concatenate([before[None], k, after[None]])
    t = np.linspace(0, 1, 12, endpoint=False)[:, None, None]
    p0, p1, p2, p3 = (padded[i : len(padded) - 3 + i] for i in range(4))
    # Catmull-Rom: passes through every knot and needs no equations to be solved.
    curve = 0.5 * (
        2 * p1
        + (p2 - p0) * t
        + (2 * p0 - 5 * p1 + 4 * p2 - p3) * t**2
        + (3 * p1 - p0 - 3 * p2 + p3) * t**3
    )
    dense = np.concatenate([curve.transpose(1, 0, 2).reshape(-1, 2), k[-1:]])
    length = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(dense, axis=0).T))])
    places = np.linspace(0, length[-1], points)
    return np.stack([np.interp(places, length, dense[:, i]) for i in range(2)], axis=1)


def polygon_mask(shape: tuple[int, int], points: Float64) -> UInt8:
    """Return the mask, 0..255 with smooth edges, of one (n, 2) or several (m, n, 2) polygons."""
    mask: UInt8 = np.zeros(shape, dtype=np.uint8)
    corners = np.round(np.clip(points, -9000, 9000) * (1 << _SHIFT)).astype(np.int32)
    # One by one: together they would cancel out where they overlap.
    for outline in corners.reshape(-1, *corners.shape[-2:]):
        cv2.fillPoly(mask, [outline], 255, lineType=cv2.LINE_AA, shift=_SHIFT)
    return mask


def depth_inside(mask: UInt8) -> Float32:
    """Return the distance in pixels of every place inside a mask from its edge; 0 outside."""
    return np.asarray(cv2.distanceTransform(mask, cv2.DIST_L2, 5), dtype=np.float32)


def blurred(image: Image, sigma_px: float) -> Image:
    """Apply a Gaussian blur with repeated edges."""
    size = 2 * int(np.ceil(2.5 * sigma_px)) + 1
    return np.asarray(
        cv2.GaussianBlur(image, (size, size), sigma_px, borderType=cv2.BORDER_REPLICATE),
        dtype=image.dtype,
    )


def resized(image: Float32, shape: tuple[int, int]) -> Float32:
    """Resize bilinearly to (rows, columns)."""
    return np.asarray(
        cv2.resize(image, (shape[1], shape[0]), interpolation=cv2.INTER_LINEAR), dtype=np.float32
    )


def sampled(image: Float32, x: Float32, y: Float32) -> Float32:
    """Sample an image at pixel coordinates, bilinear, edges repeated."""
    return np.asarray(
        cv2.remap(image, x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE), dtype=np.float32
    )


def blend(target: Float32, paint: Float32, cover: Float32) -> None:
    """Lay paint, shape (H, W, 3), over `target` in place where `cover`, shape (H, W), is 1."""
    share = cv2.merge([cover, cover, cover])
    cv2.add(target, cv2.multiply(share, cv2.subtract(paint, target)), dst=target)


def shaded(paint: Float32, shade: Float32, colour: ArrayLike, gloss: Float32) -> Float32:
    """Return paint, shape (H, W, 3), under light: times `shade` and its colour, plus `gloss`."""
    factors = np.asarray(colour, dtype=np.float32)
    light = cv2.merge([shade * factor for factor in factors])
    return np.asarray(
        cv2.add(cv2.multiply(paint, light), cv2.merge([gloss, gloss, gloss])), dtype=np.float32
    )


def with_grain(image: UInt8, brighter: UInt8, darker: UInt8) -> UInt8:
    """The image with noise on it; no place is made both brighter and darker."""
    return np.asarray(cv2.subtract(cv2.add(image, brighter), darker), dtype=np.uint8)


def lookup(x: Float32, y: Float32) -> tuple[Float32, Float32]:
    """Prepare pixel coordinates for sampling several images with `sampled`."""
    where, fraction = cv2.convertMaps(x, y, cv2.CV_16SC2)
    return cast("Float32", where), cast("Float32", fraction)


def doubled(lattice: Float32, shape: tuple[int, int]) -> Float32:
    """Interpolate values known at every other place to all places of `shape`, bilinearly."""
    rows, columns = shape
    wide = np.empty((lattice.shape[0], columns), dtype=np.float32)
    wide[:, ::2] = lattice[:, : (columns + 1) // 2]
    odd = columns // 2
    wide[:, 1::2] = (lattice[:, :odd] + lattice[:, 1 : odd + 1]) * np.float32(0.5)
    full = np.empty(shape, dtype=np.float32)
    full[::2] = wide[: (rows + 1) // 2]
    odd = rows // 2
    full[1::2] = (wide[:odd] + wide[1 : odd + 1]) * np.float32(0.5)
    return full


def cloud(rng: np.random.Generator, shape: tuple[int, int], cell_px: float) -> Float32:
    """Return smooth noise of about unit variance with grains about `cell_px` wide."""
    rows, columns = (max(2, int(np.ceil(side / cell_px)) + 1) for side in shape)
    grains = rng.standard_normal((rows, columns)).astype(np.float32)
    return np.asarray(
        cv2.resize(grains, (shape[1], shape[0]), interpolation=cv2.INTER_CUBIC), dtype=np.float32
    )


def jpeg_artefacts(image: UInt8, quality: int) -> UInt8:
    """The RGB image as it looks after a JPEG file of that quality (1..100)."""
    encoded, data = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    if not encoded:
        raise RuntimeError("OpenCV has no JPEG encoder")
    decoded = cv2.imdecode(data, cv2.IMREAD_COLOR)
    if decoded is None:
        raise RuntimeError("OpenCV cannot decode its own JPEG")
    return np.ascontiguousarray(decoded[..., ::-1], dtype=np.uint8)
