"""Sites with a few faces of noise and a forest that can be fitted to them."""

import numpy as np

from aggregators.methods.refitting import SiteFaces
from aggregators.models import ShapePredictor
from tests.aggregators.small_models import make_predictor

PARTS = 10  # 20 columns: one full block and a part of another


def make_base(seed: int = 0) -> ShapePredictor:
    """Make a forest of three levels with trees of unlike depths."""
    return make_predictor(seed, parts=PARTS, depths=((3, 1, 2, 0), (2, 2, 2), (4, 1)))


def make_faces(seed: int, count: int = 12, parts: int = PARTS) -> SiteFaces:
    """Make faces with landmarks that vary around one shape, some near the images' edges."""
    random = np.random.default_rng(seed)
    mean = np.random.default_rng(99).uniform(0.1, 0.9, (parts, 2))
    images = [
        random.integers(0, 256, (70 + k % 3, 80 + k % 5), dtype=np.uint8) for k in range(count)
    ]
    boxes = np.column_stack(
        [random.uniform(-5, 20, (count, 2)), random.uniform(50, 79, (count, 2))]
    )
    shapes = mean + random.normal(0, 0.08, (count, parts, 2))
    sides = boxes[:, np.newaxis, 2:] - boxes[:, np.newaxis, :2]
    return SiteFaces.from_arrays(images, boxes, boxes[:, np.newaxis, :2] + shapes * sides)
