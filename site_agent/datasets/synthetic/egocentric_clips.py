"""Drawn clips of head-mounted cameras: persons look at objects by their own preferences.

The camera is a window over a panorama with textured objects, some of them moving, and two hands.
It drifts, shakes with the steps, and turns after the gaze. The gaze rests on an object (250 to 400
ms, or follows it), and jumps to the next one with a probability of ``exp(theta . features)``, less
where it has just been. Persons differ in `theta`, ``theta = common + h N(0, sigma)``, and a
little in where the head leaves the gaze (`habit`); the heterogeneity ``h`` is 0 for persons that
all look alike. Pictures do not reveal the person: scenes are drawn without knowledge of her.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from site_agent.datasets import egocentric
from site_agent.datasets.synthetic.canvas import cloud
from site_agent.datasets.synthetic.settings import ClipSettings, Drawing
from site_agent.errors import InvalidInputError
from site_agent.pictures.video import write_video
from site_agent.tables import Column, Table, columns_of
from site_agent.work import Progress, no_progress

UInt8 = NDArray[np.uint8]

WIDTH_PX, HEIGHT_PX, RATE_HZ = 160, 120, 24
PANORAMA_PX = (240, 170)
FIELD_OF_VIEW_DEG = 60.0

FEATURES = ("red", "green", "blue", "size", "moving", "striped", "round")
_COMMON = np.array([0.3, 0.3, 0.3, 0.6, 0.8, 0.4, 0.2])
_SPREAD = np.array([8.0, 8.0, 8.0, 1.0, 2.0, 5.0, 1.0])
"""Chosen by ideal observers, which know the scene and the rule that draws the gaze.

At a heterogeneity of 1 one that knows a person's own preferences names three quarters of the
objects that she looks at next, and one that knows only those of five persons together a third; at 0
they are one and the same. The features that separate persons most, colours and stripes, can be seen
in pictures of 48 pixels.
"""

_BLOB_WISH = 8.0
"""Of the disc that a person prefers: she hardly ever looks at the other."""

_HABIT, _MOST_HABIT = 0.16, 0.25
"""Spread and largest part of a picture between its middle and where a person's gaze comes to rest.

So a map of where a person looks on average says a little, as it does of people, and much less than
the pictures do.
"""

_RETURN_COST, _RETURN_FADES_S = 1.5, 1.2
_DISTANCE_COST = 1.5
"""Of a jump across the whole picture."""


@dataclass(frozen=True, eq=False)
class DrawnClip:
    """A drawn video: its pictures, the tracked gaze, and the true one."""

    person: str
    number: int
    split: egocentric.Split
    frames: list[UInt8]
    gaze: egocentric.Float64
    truth: egocentric.Float64
    """Of shape (frames, 2). In widths and heights of the picture."""
    kind: UInt8
    """Of shape (frames,)."""

    @property
    def name(self) -> str:
        return f"{self.person}-{self.number:02}"


def preferences(settings: ClipSettings, person: int) -> egocentric.Float64:
    """Return a person's preferences: weights of `FEATURES`."""
    if settings.scene == "blobs":
        return np.array([_BLOB_WISH * (1 - 2 * settings.heterogeneity * (person % 2))])
    random = np.random.default_rng([0xE60, settings.seed, person])
    return _COMMON + settings.heterogeneity * _SPREAD * random.standard_normal(len(_COMMON))


def habit(settings: ClipSettings, person: int) -> egocentric.Float64:
    """Return where a person's head leaves the gaze: from the middle, in widths and heights."""
    random = np.random.default_rng([0xE62, settings.seed, person])
    spread = settings.heterogeneity * _HABIT * (settings.scene == "camera")
    return np.clip(spread * random.standard_normal(2), -_MOST_HABIT, _MOST_HABIT)


def draw_clip(settings: ClipSettings, person: int, number: int, every: int = 1) -> DrawnClip:
    """Draw one video of a person, or every few of its frames.

    The same arguments give the same pictures.
    """
    random = np.random.default_rng([0xE61, settings.seed, person, number])
    count = max(2, round(settings.seconds * RATE_HZ))
    scene = _Scene(random, settings.scene)
    looked, moving, camera = _look(
        scene, preferences(settings, person), habit(settings, person), count, random
    )
    frames = [scene.draw(frame / RATE_HZ, camera[frame]) for frame in range(0, count, every)]
    truth = (looked - camera) / (WIDTH_PX, HEIGHT_PX)
    # The tracker: an offset of the whole video, noise, and spells in which it loses the eye.
    offset = np.clip(random.normal(0, 0.02, 2), -0.04, 0.04)
    noise_deg = random.uniform(0.5, 1.0)
    noise = random.normal(0, noise_deg / FIELD_OF_VIEW_DEG, (count, 2))
    noise[:, 1] *= WIDTH_PX / HEIGHT_PX
    gaze = truth + offset + noise
    kind = np.where(moving, egocentric.MOVING, egocentric.FIXATION).astype(np.uint8)
    lost = round(count * random.uniform(0.03, 0.08))
    first = int(random.integers(0, count - lost + 1))
    kind[first : first + lost] = egocentric.UNTRACKED
    kind[((gaze < 0) | (gaze > 1)).any(1)] = egocentric.UNTRACKED
    share = round(settings.held_out * settings.videos)
    if settings.held_out and settings.videos >= len(egocentric.SPLITS):
        share = max(1, share)
    left = settings.videos - number
    split: egocentric.Split = (
        "test" if left <= share else "validation" if left <= 2 * share else "train"
    )
    return DrawnClip(f"P{person + 1:02}", number, split, frames, gaze, truth, kind)


def draw_samples(
    settings: ClipSettings, shape: egocentric.ClipShape, progress: Progress
) -> egocentric.ClipSamples:
    """Draw a data set as networks read it, without its videos."""
    parts = []
    for drawn in drawn_clips(settings, progress, shape.every):
        gaze, kind = egocentric.checked_gaze(drawn.gaze, drawn.kind)
        count = len(kind)
        clip = egocentric.GazeClip(
            drawn.name, Path(), drawn.person, drawn.split, gaze, kind, count, count, drawn.truth
        )
        pictures = [egocentric.squeeze(frame, shape.size_px) for frame in drawn.frames]
        parts.append(egocentric.cut_pictures(clip, pictures, shape))
    return egocentric.ClipSamples.join(parts)


class _Object:
    """One thing to look at: a picture with its cover, and where it is at any time."""

    def __init__(self, random: np.random.Generator, place: egocentric.Float64, moves: bool) -> None:
        hue = int(random.integers(3))
        size = float(random.uniform(0, 1))
        striped, is_round = bool(random.random() < 0.5), bool(random.random() < 0.5)
        self.features = np.array(
            [hue == 0, hue == 1, hue == 2, size, moves, striped, is_round], dtype=np.float64
        )
        self.radius = 9 + round(9 * size)
        self._place, self._phase = place, random.uniform(0, 2 * math.pi, 2)
        self._swing = random.uniform(14, 26, 2) * moves
        self._rate = random.uniform(0.15, 0.35)
        self.picture, self.cover = self._paint(random, hue, striped, is_round)

    def _paint(
        self, random: np.random.Generator, hue: int, striped: bool, is_round: bool
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the picture (side, side, 3) from 0 to 255, and its cover (side, side, 1)."""
        side = 2 * self.radius + 1
        colour = random.uniform(30, 90, 3)
        colour[hue] = random.uniform(170, 240)
        picture = np.tile(colour, (side, side, 1)).astype(np.float32)
        down, across = np.mgrid[:side, :side] - self.radius
        if striped:
            angle = random.uniform(0, math.pi)
            wave = np.sin((across * math.cos(angle) + down * math.sin(angle)) * 0.6)
            picture += 55 * np.sign(wave)[..., None].astype(np.float32)
        picture *= (1 - 0.25 * (down + across) / side)[..., None].astype(np.float32)
        mask = np.zeros((side, side), np.uint8)
        centre = (self.radius, self.radius)
        if is_round:
            axes = (self.radius, int(self.radius * random.uniform(0.7, 1.0)))
            cv2.ellipse(mask, centre, axes, random.uniform(0, 180), 0, 360, 255, -1, cv2.LINE_AA)
        else:
            corners = cv2.boxPoints(
                (centre, (1.5 * self.radius, 1.1 * self.radius), random.uniform(0, 90))
            )
            cv2.fillPoly(mask, [np.round(corners).astype(np.int32)], 255, cv2.LINE_AA)
        cover: NDArray[np.float32] = (mask / 255).astype(np.float32)[..., None]
        return np.clip(picture, 0, 255).astype(np.float32), cover

    def at(self, time_s: float) -> egocentric.Float64:
        """Return the centre in pixels of the panorama."""
        turn = 2 * math.pi * self._rate * time_s + self._phase
        return self._place + self._swing * np.sin(turn)


class _Blob(_Object):
    """A white or a black disc, which moves a little."""

    def __init__(
        self, random: np.random.Generator, place: egocentric.Float64, bright: bool
    ) -> None:
        self.features = np.array([1.0 if bright else -1.0])
        self.radius = 11
        self._place, self._phase = place, random.uniform(0, 2 * math.pi, 2)
        self._swing, self._rate = random.uniform(2, 8, 2), random.uniform(0.15, 0.35)
        side = 2 * self.radius + 1
        self.picture = np.full((side, side, 3), 235.0 if bright else 20.0, np.float32)
        mask = np.zeros((side, side), np.uint8)
        cv2.circle(mask, (self.radius, self.radius), self.radius, 255, -1, cv2.LINE_AA)
        self.cover = (mask / 255).astype(np.float32)[..., None]


class _Scene:
    """A panorama with objects and two hands."""

    objects: Sequence[_Object]

    def __init__(self, random: np.random.Generator, kind: str) -> None:
        self.moves = kind == "camera"
        if kind == "blobs":
            self._scatter_blobs(random)
            return
        width, height = PANORAMA_PX
        ground = random.uniform(70, 150, 3)
        picture = ground + 14 * cloud(random, (height, width), 40)[..., None]
        picture = picture + 8 * cloud(random, (height, width), 9)[..., None]
        for _ in range(int(random.integers(4, 9))):  # shelves, boards, doors
            x, y = int(random.integers(width)), int(random.integers(height))
            size = random.integers(20, 90, 2)
            tone = ground + random.normal(0, 25, 3)
            picture[y : y + int(size[1]), x : x + int(size[0])] = tone
        self._ground = np.clip(picture, 0, 255).astype(np.float32)
        count = int(random.integers(5, 10))
        places: list[egocentric.Float64] = []
        while len(places) < count:
            place = random.uniform((22, 22), (width - 22, height - 22))
            near = [float(np.hypot(*(place - other))) for other in places]
            if min(near, default=math.inf) > 34 or random.random() < 0.05:
                places.append(place)
        self.objects = [_Object(random, place, bool(random.random() < 0.3)) for place in places]
        self._skin = random.uniform((170, 110, 80), (235, 190, 165))
        self._hands = random.uniform(0, 2 * math.pi, 4)

    def _scatter_blobs(self, random: np.random.Generator) -> None:
        """Put two discs where a still camera sees them, wherever it stands."""
        ground = random.uniform(90, 160, 3) + 6 * random.standard_normal((*PANORAMA_PX[::-1], 3))
        self._ground = ground.astype(np.float32)
        places = np.zeros((2, 2))
        while np.hypot(*(places[0] - places[1])) < 34:
            places = random.uniform((79, 55), (161, 115), (2, 2))
        self.objects = [_Blob(random, place, bright == 0) for bright, place in enumerate(places)]

    def draw(self, time_s: float, camera: egocentric.Float64) -> UInt8:
        """Return the picture, RGB, of a camera with its upper left corner at `camera`."""
        x, y = round(float(camera[0])), round(float(camera[1]))
        view = self._ground[y : y + HEIGHT_PX, x : x + WIDTH_PX].copy()
        for item in self.objects:
            _paste(view, item, item.at(time_s) - (x, y))
        for side in range(2 * self.moves):
            sway = 6 * np.sin(2 * math.pi * 0.4 * time_s + self._hands[2 * side : 2 * side + 2])
            centre = (int(45 + 70 * side + sway[0]), int(HEIGHT_PX + 4 + sway[1]))
            tone = tuple(float(part) for part in self._skin)
            cv2.ellipse(view, centre, (15, 22), -12 + 24 * side, 0, 360, tone, -1, cv2.LINE_AA)
        return np.clip(view, 0, 255).astype(np.uint8)


def _paste(view: NDArray[np.float32], thing: _Object, centre: egocentric.Float64) -> None:
    left, top = (round(float(part)) - thing.radius for part in centre)
    side = 2 * thing.radius + 1
    x0, y0, x1, y1 = (
        max(left, 0),
        max(top, 0),
        min(left + side, WIDTH_PX),
        min(top + side, HEIGHT_PX),
    )
    if x0 >= x1 or y0 >= y1:
        return
    part = (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left))
    cover = thing.cover[part]
    view[y0:y1, x0:x1] += cover * (thing.picture[part] - view[y0:y1, x0:x1])


def _look(
    scene: _Scene,
    theta: egocentric.Float64,
    rest: egocentric.Float64,
    count: int,
    random: np.random.Generator,
) -> tuple[egocentric.Float64, NDArray[np.bool_], egocentric.Float64]:
    """Return gaze in the panorama (frames, 2), whether it jumps, and the camera's corners."""
    size = np.array([WIDTH_PX, HEIGHT_PX], dtype=np.float64)
    room = np.array(PANORAMA_PX) - size
    corner = room * random.uniform(0.2, 0.8, 2)
    drift, shake = random.uniform(0, 2 * math.pi, 2), random.uniform(1.4, 2.2)
    gaze, camera = np.empty((count, 2)), np.empty((count, 2))
    moving = np.zeros(count, dtype=np.bool_)
    costs = np.zeros(len(scene.objects))
    features = np.array([item.features for item in scene.objects])
    target, aim, ends_s, begun = -1, np.zeros(2), 0.0, corner + size / 2
    for frame in range(count):
        time_s = frame / RATE_HZ
        places = np.array([item.at(time_s) for item in scene.objects])
        if time_s >= ends_s:
            begun = gaze[frame - 1] if frame else corner + size / 2
            if target >= 0:
                costs[target] += _RETURN_COST
            where, now = (places - corner) / size, (begun - corner) / size
            odds = odds_of(features, theta, costs, where, now)
            target = int(random.choice(len(odds), p=odds))
            aim = random.normal(0, 0.15, 2) * scene.objects[target].radius
            ends_s = time_s + random.gamma(16, random.uniform(0.25, 0.4) / 16)
            moving[frame] = frame > 0
        there = places[target] + aim
        # A jump lasts less than a frame or two: in its first frame the gaze is half-way.
        gaze[frame] = (begun + there) / 2 if moving[frame] else there
        costs *= math.exp(-1 / RATE_HZ / _RETURN_FADES_S)
        if not scene.moves:
            camera[frame] = np.round(corner)
            continue
        off = (gaze[frame] - corner - size / 2) / size - rest
        corner = corner + 0.09 * size * off * (np.abs(off) > 0.12)
        corner = corner + 0.35 * np.sin(2 * math.pi * 0.13 * time_s + drift)
        steps = 0.8 * np.sin(2 * math.pi * shake * time_s + np.array([0, 1.2]))
        corner = np.clip(corner, 0, room)
        camera[frame] = np.round(np.clip(corner + steps, 0, room))
    return gaze, moving, camera


def odds_of(
    features: egocentric.Float64,
    theta: egocentric.Float64,
    costs: egocentric.Float64,
    where: egocentric.Float64,
    now: egocentric.Float64,
) -> egocentric.Float64:
    """Return how likely a person looks next at each object; 0 for those not well in the picture.

    `features`, shape (objects, `FEATURES`). `theta`: The person's preferences. `costs`, shape
    (objects,): Of going back to where she has just been. `where`, shape (objects, 2), `now`: Of
    objects and of the gaze, in widths and heights of the picture.
    """
    seen = ((where > 0.04) & (where < 0.96)).all(1)
    if not seen.any():
        seen = np.arange(len(where)) == np.abs(where - 0.5).sum(1).argmin()
    far = np.hypot(*((where - now) * (1, HEIGHT_PX / WIDTH_PX)).T)
    wish = features @ theta - costs - _DISTANCE_COST * far
    odds = np.exp(np.where(seen, wish - wish[seen].max(), -np.inf))
    shares: egocentric.Float64 = odds / odds.sum()
    return shares


_CLIPS = Table("clips", tuple(Column(name) for name in ("clip", "file", "person", "split")))
_POINTS = (Column("clip"), Column("frame"), *columns_of(("x", "y"), ".6f"))
_GAZE = Table("gaze", (*_POINTS, Column("kind")))
_TRUTH = Table("truth", _POINTS)


def write_clips(folder: Path, settings: ClipSettings, progress: Progress = no_progress) -> Drawing:
    """Write a data set of drawn clips with the true gaze."""
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInputError(f"{folder}: holds other files; choose a new or empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    listed = []
    with (
        _GAZE.open_csv(folder / egocentric.GAZE_TABLE) as write_gaze,
        _TRUTH.open_csv(folder / egocentric.TRUTH_TABLE) as write_truth,
    ):
        for clip in drawn_clips(settings, progress):
            file = f"videos/{clip.name}.mp4"
            write_clip(folder / file, clip)
            listed.append((clip.name, file, clip.person, clip.split))
            points = enumerate(zip(clip.gaze.tolist(), clip.kind.tolist(), strict=True))
            write_gaze((clip.name, n, *xy, egocentric.KINDS[kind]) for n, (xy, kind) in points)
            write_truth((clip.name, n, *xy) for n, xy in enumerate(clip.truth.tolist()))
    # Last: a folder without it is no data set.
    _CLIPS.write_csv(folder / egocentric.CLIPS_TABLE, listed)
    return Drawing(folder, {"persons": settings.persons, "videos": len(listed)})


def drawn_clips(
    settings: ClipSettings, progress: Progress = no_progress, every: int = 1
) -> Iterator[DrawnClip]:
    """Draw the videos of all persons, or every few of their frames."""
    total = settings.persons * settings.videos
    for position in range(total):
        person, number = divmod(position, settings.videos)
        progress(position / total, f"person {person + 1} of {settings.persons}")
        yield draw_clip(settings, person, number, every)


def write_clip(path: Path, clip: DrawnClip) -> None:
    """Write the video of a clip."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = ((number / RATE_HZ, frame) for number, frame in enumerate(clip.frames))
    write_video(path, frames, RATE_HZ, quality_crf=18)
