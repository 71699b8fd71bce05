"""The child process in which dlib trains: ``python -m site_agent.training.worker JOB.json``.

dlib cannot be interrupted, reports only by printing, and takes all the memory it needs; in a
process of its own it can be stopped at once, its output can be read, and a crash takes nothing
else along. The events of this process itself are lines that begin with `EVENT_MARK`, followed by
JSON: ``{"reading": done, "of": total}``, ``{"error": text}``, ``{"done": facts}``.
"""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np
from PIL import Image

from aggregators.predictors import to_grey
from site_agent.pictures.images import orientation_of, read_image
from site_agent.work.processes import end_with_parent, peak_memory_bytes

EVENT_MARK = "@poolctl-training "
# dlib's mark for a part that a box lacks (both coordinates).
_PART_NOT_PRESENT = 0x7FFFFFFF
# How far beyond its box, in box sizes, a face's image is kept for landmark training. Pixels that a
# tree looks at lie around the landmarks; farther out dlib sees black, as beyond an image's edge.
CROP_MARGIN = 1.0


def main(job_file: str) -> int:
    """Run one job and report its outcome."""
    end_with_parent()
    job = json.loads(Path(job_file).read_text(encoding="utf-8"))
    try:
        facts = {"hog-svm": train_hog_svm_job, "ert": train_ert_job}[job["kind"]](job)
    except Exception as error:  # the parent turns it into its own error
        _say({"error": f"{error}".strip() or type(error).__name__, "type": type(error).__name__})
        return 1
    facts["peak_memory_bytes"] = peak_memory_bytes()
    _say({"done": facts})
    return 0


def train_hog_svm_job(job: dict[str, Any]) -> dict[str, Any]:
    """Train a detector.

    Goes through an XML file, the only way in which dlib's Python interface takes boxes to be
    ignored. Image files that dlib decodes by itself are linked, others are converted.
    """
    import dlib

    folder = Path(job["folder"])
    elements = []
    for number, image in enumerate(job["images"]):
        name = _provide_image(Path(image["path"]), folder, number)
        elements.append(_image_element(name, image["boxes"], image["ignore"]))
        _say({"reading": number + 1, "of": len(job["images"])})
    xml = folder / "training.xml"
    head, tail = "<?xml version='1.0'?>\n<dataset><images>\n", "</images></dataset>\n"
    xml.write_text(head + "".join(elements) + tail, encoding="ascii")
    options = dlib.simple_object_detector_training_options()
    for name, value in job["options"].items():
        setattr(options, name, value)
    options.be_verbose = True
    dlib.train_simple_object_detector(str(xml), job["output"], options)
    facts: dict[str, Any] = {"dlib": dlib.__version__}
    if job["score"]:
        scores = dlib.test_simple_object_detector(str(xml), job["output"])
        facts["training_scores"] = {
            "recall": scores.recall,
            "precision": scores.precision,
            "average_precision": scores.average_precision,
        }
    return facts


def train_ert_job(job: dict[str, Any]) -> dict[str, Any]:
    """Train a landmark model on grey crops around the boxes."""
    import dlib

    images, detections = [], []
    for number, image in enumerate(job["images"]):
        grey, offset = _grey_crop(Path(image["path"]), [box["corners"] for box in image["boxes"]])
        images.append(grey)
        detections.append([_detection(box, offset) for box in image["boxes"]])
        _say({"reading": number + 1, "of": len(job["images"])})
    options = dlib.shape_predictor_training_options()
    for name, value in job["options"].items():
        setattr(options, name, value)
    options.be_verbose = True
    predictor = dlib.train_shape_predictor(images, detections, options)
    predictor.save(job["output"])
    facts: dict[str, Any] = {
        "dlib": dlib.__version__,
        "image_bytes": sum(image.nbytes for image in images),
    }
    if job["scales"]:
        facts["training_scores"] = {
            "mean_error": dlib.test_shape_predictor(images, detections, job["scales"], predictor)
        }
    return facts


def _provide_image(path: Path, folder: Path, number: int) -> str:
    """Put an image that dlib can decode into the folder and return its name there."""
    pixels = read_image(path, apply_orientation=False)  # also finds out whether the file is whole
    name = f"{number:07d}"
    if _dlib_decodes(path):
        with contextlib.suppress(OSError):  # no links on this file system
            (folder / name).symlink_to(path.resolve())
            return name
    Image.fromarray(pixels).save(folder / f"{name}.png", compress_level=1)
    return f"{name}.png"


def _dlib_decodes(path: Path) -> bool:
    """Return whether dlib reads the same pixels from a file as `read_image` does."""
    try:
        with Image.open(path) as header:
            # dlib and OpenCV may cut 16 bits a sample to 8 in different ways.
            deep = any(";16" in str(tile.args) for tile in header.tile)
            upright = orientation_of(header) == 1
            known = header.format in ("JPEG", "PNG") and header.mode in ("RGB", "L")
            return known and upright and not deep
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return False


def _image_element(name: str, boxes: list[list[int]], ignore: list[list[int]]) -> str:
    lines = [_box_element(box, "") for box in boxes]
    lines += [_box_element(box, " ignore='1'") for box in ignore]
    return f"<image file={quoteattr(name)}>\n{''.join(lines)}</image>\n"


def _box_element(box: list[int], mark: str) -> str:
    left, top, right, bottom = box
    width, height = right - left + 1, bottom - top + 1
    return f"<box top='{top}' left='{left}' width='{width}' height='{height}'{mark}/>\n"


def _grey_crop(path: Path, boxes: list[list[int]]) -> tuple[Any, tuple[int, int]]:
    """Return the grey image around all boxes, and the place of its upper left pixel."""
    grey = to_grey(read_image(path, apply_orientation=False))
    rows, columns = grey.shape
    margins = [
        (CROP_MARGIN * (right - left + 1), CROP_MARGIN * (bottom - top + 1))
        for left, top, right, bottom in boxes
    ]
    pairs = list(zip(boxes, margins, strict=True))
    left = max(0, int(min(box[0] - wide for box, (wide, _) in pairs)))
    top = max(0, int(min(box[1] - high for box, (_, high) in pairs)))
    right = min(columns, int(max(box[2] + 1 + wide for box, (wide, _) in pairs)))
    bottom = min(rows, int(max(box[3] + 1 + high for box, (_, high) in pairs)))
    if right <= left or bottom <= top:
        raise ValueError(f"{path}: its boxes lie outside the image ({columns} x {rows} px)")
    return np.ascontiguousarray(grey[top:bottom, left:right]), (left, top)


def _detection(box: dict[str, Any], offset: tuple[int, int]) -> Any:
    import dlib

    left, top, right, bottom = box["corners"]
    x, y = offset
    points = [
        dlib.point(_PART_NOT_PRESENT, _PART_NOT_PRESENT)
        if point is None
        else dlib.point(point[0] - x, point[1] - y)
        for point in box["points"]
    ]
    return dlib.full_object_detection(
        dlib.rectangle(left - x, top - y, right - x, bottom - y), points
    )


def _say(event: dict[str, Any]) -> None:
    print(EVENT_MARK + json.dumps(event), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
