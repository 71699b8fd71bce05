"""Scores of saliency maps against where a person looked, frame by frame.

Two measures as in the literature: coverage of the gaze by the map's hottest region (Feng et al.
2024, and the paper on FedCPF), and AUC after Judd et al. 2009; next to them the average angular
error (AAE), and the F1 of pixels and AUC as GLC's own code (Lai et al. 2024) computes them
(`score_as_glc`). Only frames in which the gaze rests (fixations) count, each
as much as any other, however the frames were batched. A map says nothing by itself:
`reference_maps` (uniform, centre, and the mean of a client's training targets) are scored, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage
from torch import nn

from site_agent.datasets.egocentric import FIXATION, ClipSamples
from site_agent.datasets.samples import Samples
from site_agent.errors import InvalidInputError
from site_agent.evaluation import Interval, bootstrap_intervals
from site_agent.networks.modules import predict_maps

Float = NDArray[np.floating]

COVERAGE_THRESHOLD = 0.7
"""Pixels above this value of a frame's map, scaled to 0..1, are the predicted region."""
DISC_RADIUS = 0.117
"""Radius of the true region, in widths of the frame."""
FIELD_OF_VIEW_DEG = 60.0
"""Horizontal field of view of a head-mounted camera, where it is not known."""
TARGET_SIGMA = 3.2
TARGET_SIZE = 19
_TARGET_THRESHOLD = 0.001
"""Pixels of a target above this value are the true ones of GLC's F1."""


@dataclass(frozen=True)
class SaliencyScores:
    """Scores of the maps of some frames."""

    frames: int
    """Number of frames that count."""
    recall: float
    """Share of frames with the gaze in the predicted region."""
    precision: float
    """Mean share of the predicted region that lies in the true disc."""
    precision_of_hits: float
    """The same over the frames with the gaze in the predicted region; NaN without such frames."""
    f1: float
    """Of `recall` and `precision`."""
    aae_deg: float
    """Mean angle between the map's peak and the gaze."""
    auc: float
    """0.5 for a constant map."""


@dataclass(frozen=True, eq=False)
class FrameScores(Samples):
    """The parts of `SaliencyScores` for each frame, float64 of shape (frames,).

    Frames of several clips can be joined before the means are taken.
    """

    hit: NDArray[np.bool_]
    overlap: Float
    aae_deg: Float
    auc: Float


def score_maps(maps: Float, gaze: Float) -> FrameScores:
    """Return the scores of each frame.

    `maps` (float, shape (frames, height, width)): Saliency, not negative; any scale. `gaze` (float,
    shape (frames, 2)): x and y from the upper left corner, in widths and heights of the frame, 0 to
    1.
    """
    count, height, width = maps.shape
    scaled = scale_maps(maps)
    rows, columns = pixel_of(gaze, height, width)
    frames = np.arange(count)
    region = scaled > COVERAGE_THRESHOLD
    # Centres of pixels, in sides of the frame.
    x, y = ((np.arange(side) + 0.5) / side for side in (width, height))
    distance = np.hypot(
        x[None, None, :] - gaze[:, 0, None, None], y[None, :, None] - gaze[:, 1, None, None]
    )
    overlap = (region & (distance <= DISC_RADIUS)).sum((1, 2)) / region.sum((1, 2))
    flat = scaled.reshape(count, height * width)
    at_gaze = scaled[frames, rows, columns]
    # Judd's curve with one fixation: (0, 0), (share of other pixels as hot, 1), (1, 1).
    as_hot = ((flat >= at_gaze[:, None]).sum(1) - 1) / (height * width - 1)
    peak = flat.argmax(1)
    predicted = np.stack([x[peak % width], (peak // width + 0.5) / height], axis=1)
    return FrameScores(
        hit=region[frames, rows, columns],
        overlap=overlap,
        aae_deg=angle_between_deg(predicted, gaze, FIELD_OF_VIEW_DEG),
        auc=1 - as_hot / 2,
    )


def summarise_frames(frames: FrameScores) -> SaliencyScores:
    """Return the means over frames; all NaN where there are none."""
    count = len(frames.hit)
    if not count:
        nothing = [float("nan")] * (len(fields(SaliencyScores)) - 1)
        return SaliencyScores(0, *nothing)
    recall, precision = float(frames.hit.mean()), float(frames.overlap.mean())
    total = recall + precision
    return SaliencyScores(
        frames=count,
        recall=recall,
        precision=precision,
        precision_of_hits=float(frames.overlap[frames.hit].mean()) if frames.hit.any() else np.nan,
        f1=2 * recall * precision / total if total else 0.0,
        aae_deg=float(frames.aae_deg.mean()),
        auc=float(frames.auc.mean()),
    )


def scale_maps(maps: Float) -> Float:
    """Return each frame's map scaled to 0..1; a constant map is 1 everywhere, as it excludes none.

    `maps` (float, shape (frames, height, width)).
    """
    low = maps.min((1, 2), keepdims=True)
    span = maps.max((1, 2), keepdims=True) - low
    with np.errstate(invalid="ignore", divide="ignore"):
        scaled: Float = np.where(span > 0, (maps - low) / span, 1.0)
    return scaled


def pixel_of(gaze: Float, height: int, width: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows and columns of the pixels that the gaze, (frames, 2) from 0 to 1, lies in."""
    columns = np.clip((gaze[:, 0] * width).astype(np.intp), 0, width - 1)
    rows = np.clip((gaze[:, 1] * height).astype(np.intp), 0, height - 1)
    return rows, columns


def angle_between_deg(first: Float, second: Float, field_of_view_deg: float) -> NDArray[np.float64]:
    """Return the angle between the rays through two points of a square picture, for each frame.

    `first`, `second` (float, shape (frames, 2)): x and y, 0 to 1.
    """
    focal = 0.5 / np.tan(np.radians(field_of_view_deg) / 2)

    def rays(points: Float) -> Float:
        x, y = points[:, 0] - 0.5, points[:, 1] - 0.5
        directions = np.stack([x, y, np.full(len(points), focal)], axis=1)
        unit: Float = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        return unit

    a, b = rays(first), rays(second)
    # The arc tangent is exact for small angles, where the arc cosine of the product is not.
    angles = np.arctan2(np.linalg.norm(np.cross(a, b), axis=1), (a * b).sum(1))
    degrees: NDArray[np.float64] = np.degrees(angles)
    return degrees


def gaze_targets(
    gaze: Float, height: int, width: int, tracked: NDArray[np.bool_] | None = None
) -> NDArray[np.float32]:
    """Return the maps that a network learns: a Gaussian at the gaze, summing to 1.

    Where the gaze is not tracked, or its Gaussian lies outside the frame, the map is uniform.

    `gaze` (float, shape (frames, 2)): x and y, 0 to 1. `tracked` (bool, shape (frames,)): All, if
    not given.

    Returns float32, shape (frames, height, width).
    """
    half = TARGET_SIZE // 2
    rows, columns = pixel_of(gaze, height, width)
    down = np.arange(height)[None] - rows[:, None]
    across = np.arange(width)[None] - columns[:, None]

    # Smaller maps have smaller Gaussians: the paper's is for 64 x 64.
    scale = 64 / width

    def bell(steps: NDArray[Any]) -> NDArray[np.float64]:
        near = np.exp(-0.5 * (steps * scale / TARGET_SIGMA) ** 2)
        return np.where(np.abs(steps) * scale <= half, near, 0.0)

    maps = bell(down)[:, :, None] * bell(across)[:, None, :]
    inside = (gaze >= 0).all(1) & (gaze <= 1).all(1)
    usable = inside if tracked is None else inside & tracked
    maps[~usable] = 1.0
    targets: NDArray[np.float32] = (maps / maps.sum((1, 2), keepdims=True)).astype(np.float32)
    return targets


@dataclass(frozen=True)
class GlcScores:
    """F1 and AUC by which the table of GLC compares networks; higher than the others."""

    f1: float
    """Of mean recall and mean precision, at the best of eleven thresholds for the test frames."""
    auc: float
    """Of a Gaussian at the centre of mass of the map; the shape of the map does not matter."""


GlcFrames = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Recall and precision, shape (frames, thresholds), and AUC, shape (frames,)."""

_GLC_THRESHOLDS = np.linspace(0, 0.02, 11)


def score_as_glc(maps: Float, gaze: Float) -> GlcFrames:
    """Return the scores of each frame as the published code of GLC has them, for `join_as_glc`.

    It softens a map by a temperature of 2 and scales it to 0..1 before it applies thresholds.

    `maps` (float, shape (frames, height, width)): Each sums to 1. `gaze` (float, shape (frames,
    2)): x and y, 0 to 1.
    """
    count, height, width = maps.shape
    soft = np.sqrt(maps.astype(np.float64))
    soft /= soft.sum((1, 2), keepdims=True)
    low = soft.min((1, 2), keepdims=True)
    scaled = (soft - low) / (soft.max((1, 2), keepdims=True) - low + 1e-6)
    truth = gaze_targets(gaze, height, width) > _TARGET_THRESHOLD
    recall, precision = (np.empty((count, len(_GLC_THRESHOLDS))) for _ in range(2))
    for number, threshold in enumerate(_GLC_THRESHOLDS):
        region = scaled > threshold
        both = (region & truth).sum((1, 2))
        recall[:, number] = both / (truth.sum((1, 2)) + 1e-6)
        precision[:, number] = both / (region.sum((1, 2)) + 1e-6)
    auc = np.empty(count)
    rows, columns = (np.rint(gaze[:, (1, 0)].T * [[height - 1], [width - 1]])).astype(np.intp)
    for frame, picture in enumerate(scaled):
        middle: tuple[int, ...] = (height // 2, width // 2)
        if picture.any():
            middle = tuple(int(place) for place in ndimage.center_of_mass(picture))
        bell = np.zeros((height, width))
        bell[middle] = 1.0
        bell = ndimage.gaussian_filter(bell, TARGET_SIGMA)
        auc[frame] = 1 - (bell > bell[rows[frame], columns[frame]]).mean()
    return recall, precision, auc


def join_as_glc(parts: Sequence[GlcFrames]) -> GlcScores:
    """Return the scores over the frames of all parts."""
    recall, precision, auc = (np.concatenate(values).mean(0) for values in zip(*parts, strict=True))
    f1 = 2 * recall * precision / (recall + precision + 1e-6)
    return GlcScores(float(f1.max()), float(auc))


def reference_maps(training_gaze: Float, height: int, width: int) -> dict[str, NDArray[np.float32]]:
    """Return the baseline maps, each of shape (height, width).

    `training_gaze` (float, shape (frames, 2)): Fixations in a person's training clips; their
    density is ``person-mean``: a kernel as wide as Scott's rule says, as targets are so narrow that
    few of them make a map of spots.
    """
    y = (np.arange(height) + 0.5) / height - 0.5
    x = (np.arange(width) + 0.5) / width - 0.5
    centre = np.exp(-0.5 * (x[None] ** 2 + y[:, None] ** 2) / 0.15**2)
    mean = centre
    if count := len(training_gaze):
        spread = np.maximum(training_gaze.std(0), 0.02) * count ** (-1 / 6)
        across, down = (
            np.exp(-0.5 * ((places[None] + 0.5 - gaze[:, None]) / wide) ** 2)
            for places, gaze, wide in zip((x, y), training_gaze.T, spread, strict=True)
        )
        mean = down.T @ across
    return {
        "uniform": np.full((height, width), 1 / (height * width), np.float32),
        "centre": (centre / centre.sum()).astype(np.float32),
        "person-mean": (mean / mean.sum()).astype(np.float32),
    }


REFERENCES = ("person-mean", "centre", "uniform")
"""Maps that know no picture."""


@dataclass(frozen=True)
class SaliencyEvaluation:
    """Scores of a network's maps and of the baseline maps."""

    scores: Mapping[str, SaliencyScores]
    """``network``; ``person-mean``, ``centre``, ``uniform``; and ``oracle``, a Gaussian at the true
    gaze, where that is known."""
    intervals: Mapping[str, Interval]
    """95 % interval of F1, from resampling videos; empty for one video."""
    by_person: Mapping[str, float]
    """F1 of the network."""
    as_glc: Mapping[str, GlcScores]
    """Of the same maps as `scores`, to stand next to GLC's table."""

    @property
    def verdict(self) -> str:
        """Summarise in one sentence how good the network is."""
        ours = self.scores["network"].f1
        name = max(REFERENCES, key=lambda name: self.scores[name].f1)
        bar = self.scores[name].f1
        better = "better" if ours > bar else "no better"
        return f"F1 {ours:.3f}: {better} than maps that know no picture (best: {name}, {bar:.3f})"


def evaluate_saliency(module: nn.Module, samples: ClipSamples) -> SaliencyEvaluation:
    """Score a network on the fixations of test clips, next to maps that know no picture.

    `samples`: Of the training split, which gives each person's mean map, and of the test split.
    """
    test = samples.of("test")
    if not (test.kind == FIXATION).any():
        raise InvalidInputError("there are no fixations in the test clips to score maps on")
    knows_truth = bool(np.isfinite(test.truth[test.kind == FIXATION]).all())
    frames: dict[str, list[FrameScores]] = {}
    as_glc: dict[str, list[GlcFrames]] = {}
    videos, by_person = [], {}
    for person in sorted(set(test.person.tolist())):
        of_person = test[test.person == person]
        chosen = of_person.kind == FIXATION
        if not chosen.any():
            continue
        maps = predict_maps(module, of_person.frames)[chosen]
        candidates = {"network": maps}
        for name, reference in _person_references(samples, person, maps.shape[1:]).items():
            candidates[name] = np.broadcast_to(reference, maps.shape)
        if knows_truth:
            candidates["oracle"] = gaze_targets(of_person.truth[chosen], *maps.shape[1:])
        for name, candidate in candidates.items():
            scored = score_maps(candidate, of_person.gaze[chosen])
            frames.setdefault(name, []).append(scored)
            as_glc.setdefault(name, []).append(score_as_glc(candidate, of_person.gaze[chosen]))
        by_person[person] = summarise_frames(frames["network"][-1]).f1
        videos.append(np.repeat(of_person.video[:, None], of_person.kind.shape[1], axis=1)[chosen])
    names, unit = np.unique(np.concatenate(videos), return_inverse=True)
    scores: dict[str, SaliencyScores] = {}
    intervals: dict[str, Interval] = {}
    for name, parts in frames.items():
        joined = FrameScores.join(parts)
        scores[name] = summarise_frames(joined)
        drawn = bootstrap_intervals(_F1(joined, unit, len(names)), len(names), resamples=1000)
        if "f1" in drawn:
            intervals[name] = drawn["f1"]
    joined_as_glc = {name: join_as_glc(parts) for name, parts in as_glc.items()}
    return SaliencyEvaluation(scores, intervals, by_person, joined_as_glc)


class _F1:
    """F1 of resampled videos."""

    def __init__(self, frames: FrameScores, unit: NDArray[np.intp], count: int) -> None:
        self._sums = [np.bincount(unit, values, count) for values in (frames.hit, frames.overlap)]
        self._counts = np.bincount(unit, minlength=count)

    def __call__(self, times: NDArray[np.int64]) -> dict[str, float]:
        total = (times * self._counts).sum()
        recall, precision = (float((times * series).sum() / total) for series in self._sums)
        both = recall + precision
        return {"f1": 2 * recall * precision / both if both else 0.0}


def _person_references(
    samples: ClipSamples, person: str, shape: tuple[int, ...]
) -> dict[str, NDArray[np.float32]]:
    training = samples.of("train")
    of_person = training[training.person == person]
    references = reference_maps(of_person.gaze[of_person.kind == FIXATION], *shape)
    return {name: references[name] for name in REFERENCES}


def _words_of(interval: Interval | None) -> str:
    return "{:.3f}-{:.3f}".format(*interval) if interval else ""


def score_rows(evaluation: SaliencyEvaluation) -> Sequence[Sequence[str]]:
    """Return the rows of a table of scores, the network first."""
    return [
        [
            name, f"{scores.f1:.3f}", _words_of(evaluation.intervals.get(name)),
            f"{scores.recall:.3f}", f"{scores.precision:.3f}", f"{scores.aae_deg:.1f}",
            f"{scores.auc:.3f}", f"{evaluation.as_glc[name].f1:.3f}",
            f"{evaluation.as_glc[name].auc:.3f}",
        ]
        for name, scores in evaluation.scores.items()
    ]  # fmt: skip
