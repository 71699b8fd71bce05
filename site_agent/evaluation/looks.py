"""Where a person looks in a video: maps of all frames, drawn over it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from torch import nn

from aggregators.whole_file import made_apart
from site_agent.datasets.egocentric import UNTRACKED, ClipShape, GazeClip, decode_timed, squeeze
from site_agent.evaluation.saliency import COVERAGE_THRESHOLD, scale_maps
from site_agent.networks.modules import predict_maps
from site_agent.pictures.plot_style import FOUND_RGB
from site_agent.pictures.video import write_video
from site_agent.training_record import temporary_beside

_SMALLEST_SIDE_PX = 320
_HEAT = 0.6
"""Share of the colour of the map where it is hottest."""


@dataclass(frozen=True, eq=False)
class LookedAt:
    """A frame with the map of where somebody looks."""

    frame: int
    """From 0."""
    time_s: float
    picture: NDArray[np.uint8]
    """Of shape (height, width, 3). RGB."""
    map: NDArray[np.float32]
    """Of shape (64, 64). It sums to 1."""

    @property
    def peak(self) -> tuple[float, float]:
        """x and y of the largest number, in widths and heights of the picture."""
        height, width = self.map.shape
        place = int(self.map.argmax())
        return (place % width + 0.5) / width, (place // width + 0.5) / height


def find_looks(
    module: nn.Module,
    shape: ClipShape,
    path: Path,
    progress: Callable[[int], None] = lambda _frames: None,
) -> Iterator[LookedAt]:
    """Yield all frames of a video with their maps; a frame between two clips' frames has the last.

    `module`: Of a saliency network. `shape`: How the network's clips are cut. `progress`: Called
    with the number of frames that have been looked at.
    """
    window: list[tuple[int, float, NDArray[np.uint8]]] = []
    for number, (time_s, picture) in enumerate(decode_timed(path)):
        window.append((number, time_s, picture))
        if len(window) == shape.frames * shape.every:
            yield from _look(module, shape, window)
            progress(number + 1)
            window = []
    if window:
        yield from _look(module, shape, window)


def _look(
    module: nn.Module, shape: ClipShape, window: list[tuple[int, float, NDArray[np.uint8]]]
) -> Iterator[LookedAt]:
    small = [squeeze(picture, shape.size_px) for _, _, picture in window[:: shape.every]]
    # The last clip of a video is filled up with its last picture.
    small += [small[-1]] * (shape.frames - len(small))
    maps = predict_maps(module, np.stack(small)[None])[0]
    for place, (number, time_s, picture) in enumerate(window):
        yield LookedAt(number, time_s, picture, maps[place // shape.every])


def write_overlay(
    looks: Iterator[LookedAt], target: Path, clip: GazeClip | None = None
) -> list[LookedAt]:
    """Draw maps over a video, whole or not at all, and return the looks without pictures.

    The predicted region is outlined, its peak is a cross; the tracked gaze, where `clip` has it, is
    a ring.
    """
    shown: list[LookedAt] = []

    def pictures() -> Iterator[tuple[float, NDArray[np.uint8]]]:
        for look in looks:
            gaze = None
            index = look.frame
            if clip is not None and index < len(clip.kind) and clip.kind[index] != UNTRACKED:
                gaze = (float(clip.gaze[index, 0]), float(clip.gaze[index, 1]))
            yield look.time_s, draw_look(look, gaze)
            shown.append(replace(look, picture=np.empty((0, 0, 3), np.uint8)))

    partial = temporary_beside(target)
    try:
        with made_apart(target):
            write_video(partial, pictures())
            partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return shown


def draw_look(look: LookedAt, gaze: tuple[float, float] | None = None) -> NDArray[np.uint8]:
    """Return a frame with its map: uint8 RGB, with even sides of at least 320 pixels."""
    height, width = look.picture.shape[:2]
    scale = max(1.0, _SMALLEST_SIDE_PX / min(height, width))
    size = (2 * round(width * scale / 2), 2 * round(height * scale / 2))
    picture = cv2.resize(look.picture, size, interpolation=cv2.INTER_LINEAR)
    heat = cv2.resize(scale_maps(look.map[None])[0], size, interpolation=cv2.INTER_LINEAR)
    colours = cv2.applyColorMap((255 * heat).astype(np.uint8), cv2.COLORMAP_INFERNO)[..., ::-1]
    share = (_HEAT * heat)[..., None]
    mixed = (picture * (1 - share) + colours * share).astype(np.uint8)
    line = max(1, round(min(size) / 200))
    region = (heat > COVERAGE_THRESHOLD).astype(np.uint8)
    outlines, _ = cv2.findContours(region, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(mixed, outlines, -1, FOUND_RGB, line)
    x, y = look.peak
    place = (round(x * size[0]), round(y * size[1]))
    cv2.drawMarker(mixed, place, FOUND_RGB, cv2.MARKER_CROSS, 10 * line, line)
    if gaze is not None:
        place = (round(gaze[0] * size[0]), round(gaze[1] * size[1]))
        cv2.circle(mixed, place, 6 * line, (0, 0, 0), 3 * line, cv2.LINE_AA)
        cv2.circle(mixed, place, 6 * line, (255, 255, 255), line, cv2.LINE_AA)
    return np.asarray(mixed, dtype=np.uint8)
