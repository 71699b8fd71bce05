"""Annotated faces written as other programs do: COCO keypoints, and a folder of .pts files."""

import json
import math
import os
import shutil
from pathlib import Path

from site_agent.datasets.records import FaceDataset, part_names, parts_array


def write_coco_keypoints(dataset: FaceDataset, path: Path) -> None:
    """Write a COCO keypoints file, file names relative to its folder."""
    names = part_names(dataset)
    images, annotations = [], []
    for number, image in enumerate(dataset.images, 1):
        size = {"width": image.width_px, "height": image.height_px}
        name = Path(os.path.relpath(image.path, path.parent)).as_posix()
        images.append({"id": number, "file_name": name, **size})
        for box in image.boxes:
            points = [(*at, 2) if (at := box.parts.get(name)) else (0, 0, 0) for name in names]
            annotations.append({
                "id": len(annotations) + 1, "image_id": number, "category_id": 1,
                "bbox": [box.left, box.top, box.width, box.height],
                "keypoints": [value for point in points for value in point],
            })  # fmt: skip
    categories = [{"id": 1, "name": "face", "keypoints": names}]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )


def write_pts_folder(dataset: FaceDataset, folder: Path, *, origin: float = 1.0) -> None:
    """Write a ``.pts`` file for each image's one face, and a copy of the image next to it."""
    names = part_names(dataset)
    folder.mkdir(parents=True, exist_ok=True)
    for image, box in dataset.boxes():
        shutil.copyfile(image.path, folder / image.path.name)
        lines = [
            "nan nan" if math.isnan(x) else f"{x:.6f} {y:.6f}"
            for x, y in parts_array(box, names) + origin
        ]
        text = "\n".join(["version: 1", f"n_points: {len(lines)}", "{", *lines, "}", ""])
        (folder / f"{image.path.stem}.pts").write_text(text)
