"""Drawn glasses: on a share of the persons, over the eyes alone, the same every time."""

from pathlib import Path

import numpy as np
from PIL import Image

from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.landmark_schemes import eyes_of
from site_agent.datasets.records import FaceDataset
from site_agent.datasets.synthetic.sites import write_face_dataset


def draw(folder: Path, glasses: float) -> FaceDataset:
    xml = write_face_dataset(folder, 12, 12, 3, image_size=(160, 160), glasses=glasses)
    return read_imglab_xml(xml)


def test_glasses_lie_over_the_eyes_and_move_no_landmark(tmp_path: Path) -> None:
    bare, some, all_ = (draw(tmp_path / str(share), share) for share in (0.0, 0.4, 1.0))
    changed = {"some": 0, "all": 0}
    for images in zip(bare.images, some.images, all_.images, strict=True):
        boxes = [image.boxes[0] for image in images]
        assert boxes[0].parts == boxes[1].parts == boxes[2].parts
        without, now, worn = (np.asarray(Image.open(image.path), dtype=float) for image in images)
        changed["some"] += bool(np.abs(now - without).max() > 60)
        points = np.array([boxes[0].parts[key] for key in sorted(boxes[0].parts)])
        centre = np.mean(eyes_of(points), axis=(0, 1)).round().astype(int)
        reach = boxes[0].width // 3
        difference = np.abs(worn - without).max(axis=2)
        changed["all"] += bool(difference.max() > 60)
        rows = slice(max(centre[1] - reach, 0), centre[1] + reach)
        difference[rows, max(centre[0] - 2 * reach, 0) : centre[0] + 2 * reach] = 0
        assert np.median(difference) < 25, "the rest of the picture is as it was, but for noise"
    assert changed["all"] == 12
    assert 1 <= changed["some"] <= 10
