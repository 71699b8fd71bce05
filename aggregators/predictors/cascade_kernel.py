"""The compiled inner loop of `LandmarkPredictor`; imported when the first face is predicted.

The arithmetic is dlib's, with the same precision at each step: similarity transforms in double,
then rounded to single; pixel offsets, shapes and split comparisons in single; the map from box to
image coordinates in double.
"""

from typing import NamedTuple

import numpy as np

from aggregators.compiled import compiled
from aggregators.models import Float32, Float64, Int64, UInt8, UInt32


class CascadeArrays(NamedTuple):
    """The arrays of a `ShapePredictor`, for compiled code."""

    initial_shape: Float32
    trees_per_level: Int64
    pool_per_level: Int64
    tree_depths: UInt8
    split_idx1: UInt32
    split_idx2: UInt32
    split_thresholds: Float32
    leaves: Float32
    anchors: UInt32
    deltas: Float32


@compiled
def _scaled_rotation(from_shape: Float32, to_shape: Float32) -> tuple[float, float]:
    """Return (a, b) of the matrix [[a, -b], [b, a]] that best maps one shape to the other.

    Least squares over rotation, scale and translation (the closed form in the plane of Umeyama
    1991, equations 34 to 43).
    """
    parts = from_shape.shape[0]
    # One point has no rotation or scale.
    if parts == 1:
        return 1.0, 0.0
    from_x = from_y = to_x = to_y = 0.0
    for part in range(parts):
        from_x += np.float64(from_shape[part, 0])
        from_y += np.float64(from_shape[part, 1])
        to_x += np.float64(to_shape[part, 0])
        to_y += np.float64(to_shape[part, 1])
    from_x /= parts
    from_y /= parts
    to_x /= parts
    to_y /= parts
    spread = dot = cross = 0.0
    for part in range(parts):
        x = np.float64(from_shape[part, 0]) - from_x
        y = np.float64(from_shape[part, 1]) - from_y
        u = np.float64(to_shape[part, 0]) - to_x
        v = np.float64(to_shape[part, 1]) - to_y
        spread += x * x + y * y
        dot += x * u + y * v
        cross += x * v - y * u
    if spread == 0.0:
        return 1.0, 0.0
    return dot / spread, cross / spread


@compiled
def read_pool_pixels(
    grey: UInt8,
    face: tuple[Float64, Float32],
    cascade: CascadeArrays,
    pool: tuple[int, int],
    intensities: Float32,
) -> None:
    """Read grey levels of pool pixels into `intensities`; those outside the image stay 0.

    `face`: a box, and a shape in its coordinates. `pool`: first and last pixel, last excluded.
    """
    box, shape = face
    height, width = grey.shape
    box_width, box_height = box[2] - box[0], box[3] - box[1]
    cosine, sine = _scaled_rotation(cascade.initial_shape, shape)
    a, b = np.float32(cosine), np.float32(sine)
    # Places first, pixels then: arithmetic without branches runs on several numbers at once.
    places = np.empty(pool[1] - pool[0], dtype=np.int64)
    for pixel in range(pool[0], pool[1]):
        anchor = cascade.anchors[pixel]
        across, down = cascade.deltas[pixel, 0], cascade.deltas[pixel, 1]
        x = a * across + (-b) * down + shape[anchor, 0]
        y = b * across + a * down + shape[anchor, 1]
        column = np.float64(x) * box_width + box[0] + 0.5
        row = np.float64(y) * box_height + box[1] + 0.5
        # Compared as floats, as coordinates may exceed the range of integers. For positive
        # numbers, conversion to an integer rounds down.
        inside = (column >= 0.0) & (row >= 0.0) & (column < width) & (row < height)
        places[pixel - pool[0]] = np.int64(row) * width + np.int64(column) if inside else -1
    pixels = grey.ravel()
    for position, place in enumerate(places):
        if place >= 0:
            intensities[position] = np.float32(pixels[place])


@compiled
def run_faces(grey: UInt8, boxes: Float64, shapes: Float32, cascade: CascadeArrays) -> None:
    """Move one shape per box, float32 (boxes, parts, 2), through all levels, in place.

    Tree by tree for all faces, as similar faces mostly reach the same leaf, which is then loaded
    once. The order of additions, and so the result, is that of each face alone.
    """
    faces, values = shapes.shape[0], shapes.shape[1] * 2
    leaves = cascade.leaves.reshape(cascade.leaves.shape[0], values)
    coordinates = shapes.reshape(faces, values)
    tree, first_split, first_leaf, first_pixel = 0, 0, 0, 0
    for level in range(len(cascade.trees_per_level)):
        pool = (first_pixel, first_pixel + cascade.pool_per_level[level])
        intensities = np.zeros((faces, pool[1] - pool[0]), dtype=np.float32)
        for face in range(faces):
            place = (boxes[face], shapes[face])
            read_pool_pixels(grey, place, cascade, pool, intensities[face])
        first_pixel = pool[1]
        # All leaves are known before the first is added, so that the processor can load several.
        reached = np.empty((cascade.trees_per_level[level], faces), dtype=np.int64)
        for row in reached:
            splits = int((1 << np.int64(cascade.tree_depths[tree])) - 1)
            for face in range(faces):
                node = 0
                while node < splits:
                    split = first_split + node
                    difference = (
                        intensities[face, cascade.split_idx1[split]]
                        - intensities[face, cascade.split_idx2[split]]
                    )
                    node = 2 * node + (1 if difference > cascade.split_thresholds[split] else 2)
                row[face] = first_leaf + node - splits
            first_split += splits
            first_leaf += splits + 1
            tree += 1
        for row in reached:
            for face in range(faces):
                leaf = row[face]
                for value in range(values):
                    coordinates[face, value] += leaves[leaf, value]
