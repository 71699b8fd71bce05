"""Statistics of a data set: how many faces, how large, how far the eyes are open."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.landmark_schemes import PART_GROUPS, eye_aspect_ratio, ibug_places
from site_agent.datasets.records import FaceDataset, part_names, parts_array

Float64 = NDArray[np.float64]

_BINS = 10
_PERCENTILES = (5, 25, 50, 75, 95)


@dataclass(frozen=True)
class Distribution:
    """The distribution of values: extremes, percentiles (5, 25, 50, 75, 95) and a histogram."""

    count: int
    mean: float
    low: float
    high: float
    percentiles: dict[int, float]
    bin_edges: tuple[float, ...]
    bin_counts: tuple[int, ...]

    @property
    def median(self) -> float:
        return self.percentiles[50]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "count": self.count,
            "mean": self.mean,
            "min": self.low,
            "max": self.high,
            **{f"p{percent}": value for percent, value in self.percentiles.items()},
            "histogram": {"edges": list(self.bin_edges), "counts": list(self.bin_counts)},
        }


@dataclass(frozen=True)
class DatasetStatistics:
    """Numbers of a data set."""

    images: int
    images_without_faces: int
    faces: int
    """Without the boxes marked `ignore`."""
    ignored: int
    marks: dict[str, int]
    labels: dict[str, int]
    """How many faces are difficult, occluded, truncated; faces of each label, '' for none."""
    parts: tuple[str, ...]
    faces_with_all_parts: int
    faces_without_parts: int
    distributions: dict[str, Distribution]
    """By measure, where known: ``faces_per_image``, ``box_width_px``, ``box_height_px``,
    ``box_aspect`` (width over height), and where the landmarks are iBUG's ``inter_ocular_px``
    (distance of the eye centres), ``inter_ocular_per_box`` (over the square root of the box's
    area), ``eye_aspect_ratio`` (mean of both eyes)."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        spreads = {name: item.to_dict() for name, item in self.distributions.items()}
        return asdict(self) | {"distributions": spreads}


def dataset_statistics(dataset: FaceDataset) -> DatasetStatistics:
    """Count and measure the faces of a data set; images are not opened."""
    boxes = [box for _, box in dataset.boxes()]
    names = part_names(dataset)
    every = sum(len(image.boxes) for image in dataset.images)
    per_image = [sum(not box.ignore for box in image.boxes) for image in dataset.images]
    values: dict[str, Sequence[float] | Float64] = {
        "faces_per_image": per_image,
        "box_width_px": [box.width for box in boxes],
        "box_height_px": [box.height for box in boxes],
        "box_aspect": [box.width / box.height for box in boxes],
    }
    if names and boxes:
        shapes = np.stack([parts_array(box, names) for box in boxes])
        areas = np.array([box.width * box.height for box in boxes], dtype=np.float64)
        values |= _eye_measures(shapes, areas, names)
    spreads = {
        name: spread for name, measured in values.items() if (spread := distribution(measured))
    }
    marks = ("difficult", "occluded", "truncated")
    return DatasetStatistics(
        images=len(dataset.images),
        images_without_faces=sum(count == 0 for count in per_image),
        faces=len(boxes),
        ignored=every - len(boxes),
        marks={mark: sum(getattr(box, mark) for box in boxes) for mark in marks},
        labels=dict(sorted(Counter(box.label or "" for box in boxes).items())),
        parts=names,
        faces_with_all_parts=sum(len(box.parts) == len(names) > 0 for box in boxes),
        faces_without_parts=sum(not box.parts for box in boxes),
        distributions=spreads,
    )


def distribution(values: Sequence[float] | Float64) -> Distribution | None:
    """Describe values; NaN are left out, None where nothing remains."""
    array = np.asarray(values, dtype=np.float64)
    array = array[np.isfinite(array)]
    if not array.size:
        return None
    counts, edges = np.histogram(array, bins=_BINS)
    return Distribution(
        count=int(array.size),
        mean=float(array.mean()),
        low=float(array.min()),
        high=float(array.max()),
        percentiles=dict(
            zip(_PERCENTILES, np.percentile(array, _PERCENTILES).tolist(), strict=True)
        ),
        bin_edges=tuple(edges.tolist()),
        bin_counts=tuple(counts.tolist()),
    )


def mean_eye_aspect_ratio(shapes: Float64, names: Sequence[str]) -> Float64 | None:
    """Return the mean eye aspect ratio of both eyes of faces, shape (faces, parts, 2).

    NaN where an eye is not marked; None where the landmarks have no eyes of iBUG's scheme.
    """
    places = ibug_places(names)
    eyes = [PART_GROUPS["right-eye"], PART_GROUPS["left-eye"]]
    if any(number not in places for eye in eyes for number in eye):
        return None
    right, left = (eye_aspect_ratio(shapes[:, [places[number] for number in eye]]) for eye in eyes)
    return (right + left) / 2.0


def _eye_measures(shapes: Float64, areas: Float64, names: Sequence[str]) -> dict[str, Float64]:
    ratios = mean_eye_aspect_ratio(shapes, names)
    if ratios is None:
        return {}
    places = ibug_places(names)
    right, left = (
        shapes[:, [places[number] for number in PART_GROUPS[eye]]].mean(axis=1)
        for eye in ("right-eye", "left-eye")
    )
    distances = np.linalg.norm(right - left, axis=1)
    return {
        "inter_ocular_px": distances,
        "inter_ocular_per_box": distances / np.sqrt(areas),
        "eye_aspect_ratio": ratios,
    }
