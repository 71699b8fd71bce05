"""Faces and clips in layouts of other programs, which this one reads and never writes."""

import json
import math
import os
import shutil
from pathlib import Path

from site_agent.datasets.egocentric import (
    EGTEA_HEADER_LINES,
    EGTEA_SIZE_PX,
    FIXATION,
    MOVING,
    UNTRACKED,
)
from site_agent.datasets.records import FaceDataset, part_names, parts_array
from site_agent.datasets.synthetic.egocentric_clips import (
    RATE_HZ,
    ClipSettings,
    drawn_clips,
    write_clip,
    write_clips,
)
from site_agent.tables import Column, Table, columns_of


def write_layout(folder: Path, settings: ClipSettings, layout: str) -> None:
    write = {"generic": write_clips, "egtea": write_egtea, "ego4d": write_ego4d}[layout]
    write(folder, settings)


def write_egtea(folder: Path, settings: ClipSettings) -> None:
    labels = {FIXATION: "Fixation", MOVING: "Saccade", UNTRACKED: "Blink"}
    for clip in drawn_clips(settings):
        session = f"{clip.person}-R{clip.number + 1:02}-Drawn"
        first, last = 24, 24 + len(clip.kind)
        name = f"{session}-F{first:06}-F{last:06}.mp4"
        write_clip(folder / "cropped_clips" / session / name, clip)
        header = [f"## [header line {line + 1}]" for line in range(EGTEA_HEADER_LINES)]
        header[9] = f"## Number of Samples:\t{2 * len(clip.kind)}"
        lines = header
        for number, (xy, kind) in enumerate(zip(clip.gaze, clip.kind, strict=True)):
            x, y = xy * EGTEA_SIZE_PX
            frame = first + number
            row = f"{frame * 41667}\tSMP\t1\t{x:.2f}\t{y:.2f}\t{frame}\t{labels[int(kind)]}"
            lines += [row, row]  # the tracker is faster than the camera
        table = folder / "gaze_data" / f"{session}.txt"
        table.parent.mkdir(exist_ok=True)
        table.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_ego4d(folder: Path, settings: ClipSettings) -> None:
    persons = []
    for clip in drawn_clips(settings):
        write_clip(folder / "full_scale.gaze" / f"{clip.name}.mp4", clip)
        persons.append((clip.name, clip.person))
        rows = (
            (n / RATE_HZ, n, 0.0 if kind == UNTRACKED else 0.95, x, 1 - y)
            for n, ((x, y), kind) in enumerate(zip(clip.gaze.tolist(), clip.kind, strict=True))
        )
        (folder / "gaze").mkdir(exist_ok=True)
        _EGO4D.write_csv(folder / "gaze" / f"{clip.name}.csv", rows)
    _PERSONS.write_csv(folder / "persons.csv", persons)


_EGO4D = Table(
    "gaze",
    (
        Column("gaze_timestamp", format=".6f"), Column("world_index"),
        *columns_of(("confidence", "norm_pos_x", "norm_pos_y"), ".6f"),
    ),
)  # fmt: skip

_PERSONS = Table("persons", (Column("uid"), Column("person")))


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


def write_pts_folder(dataset: FaceDataset, folder: Path) -> None:
    """Write a ``.pts`` file, counting from 1, for each image's one face, and copy the image."""
    names = part_names(dataset)
    folder.mkdir(parents=True, exist_ok=True)
    for image, box in dataset.boxes():
        shutil.copyfile(image.path, folder / image.path.name)
        lines = [
            "nan nan" if math.isnan(x) else f"{x:.6f} {y:.6f}"
            for x, y in parts_array(box, names) + 1.0
        ]
        text = "\n".join(["version: 1", f"n_points: {len(lines)}", "{", *lines, "}", ""])
        (folder / f"{image.path.stem}.pts").write_text(text)
