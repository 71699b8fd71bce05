"""Finding everything that is wrong with a data set before training starts."""

import hashlib
import io
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from PIL import Image, UnidentifiedImageError

from site_agent.datasets.landmark_schemes import IBUG_PARTS
from site_agent.datasets.part_order import face_turn, misordered_faces, unsorted_names
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset, part_names
from site_agent.pictures.images import FIRST_LYING, orientation_of
from site_agent.work import Progress, no_progress

Severity = Literal["error", "warning"]

_NAMES_SHOWN = 6
_LINES_SHOWN = 5
# Faces lie if they are turned by more than this from upright.
_UPRIGHT_WITHIN = math.radians(45)


@dataclass(frozen=True)
class Finding:
    """A fault of a data set, or a possible one.

    An error stops training or spoils it; a warning may be meant.
    """

    severity: Severity
    code: str
    """A stable name such as 'missing-image'."""
    file: Path
    """The annotations, or the image where the data set comes from no file."""
    line: int
    """Of the annotations; 0 for all of them."""
    text: str

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else f"{self.file}"
        return f"{place}: {self.text}"


def kinds_of(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Return the findings with those together that say the same of one file."""
    kinds: dict[tuple[str, str, Path], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.severity, finding.code, finding.file), []).append(finding)
    return list(kinds.values())


def count_more(kind: Sequence[Finding]) -> str:
    """Return the words for the findings of a kind after the first one."""
    if len(kind) == 1:
        return ""
    lines = [str(finding.line) for finding in kind[1:] if finding.line]
    named = ", ".join(lines[:_LINES_SHOWN]) + (" ..." if len(lines) > _LINES_SHOWN else "")
    where = f", in lines {named}" if lines else ""
    return f" (and {len(kind) - 1} more of this kind{where})"


@dataclass(frozen=True)
class _Opened:
    digest: str
    width_px: int
    height_px: int
    orientation: int


def check_datasets(
    datasets: Sequence[FaceDataset], progress: Progress = no_progress
) -> list[Finding]:
    """Look for everything that would stop a training or spoil its result.

    Missing, broken and repeated images, sizes other than declared, boxes and landmarks outside
    the image, landmarks that some boxes have and others lack, landmarks in another order than
    those of a face, nothing to train on, and pictures in two of the data sets: a model scored on
    its own training data looks better than it is. Pictures are compared by their pixels, so that
    a renamed or converted copy is found, too. Boxes marked `ignore` are not looked at. Whether a
    box suits a detector's window depends on the training settings
    (`site_agent.training.ert.unlearnable_boxes`). Findings are in the order of the files.

    `datasets`: such as training and test data.
    """
    findings: list[Finding] = []
    seen: dict[str, tuple[int, AnnotatedImage]] = {}
    total = sum(len(dataset.images) for dataset in datasets)
    count = 0
    for number, dataset in enumerate(datasets):
        dataset_findings = list(_dataset_findings(dataset))
        dataset_findings += _order_findings(dataset)
        if number:
            dataset_findings += _scheme_findings(dataset, datasets[0])
        near_corner: list[bool] = []
        for image in dataset.images:
            progress(count / total, f"checking {image.path.name}")
            dataset_findings += _image_findings(dataset, image, number, seen, near_corner)
            count += 1
        if len(near_corner) >= _FEWEST_NEAR_CORNER and all(near_corner):
            text = "all faces are in the upper left quarter of their pictures: were they annotated "
            text += "on smaller versions of them, or are the numbers not pixels?"
            place = _place(dataset)
            dataset_findings.append(Finding("warning", "near-corner", place, 0, text))
        findings += sorted(dataset_findings, key=lambda finding: finding.line)
    progress(1.0, "checked")
    return findings


def _finding(
    severity: Severity,
    code: str,
    dataset: FaceDataset,
    image: AnnotatedImage,
    text: str,
    *,
    box: FaceBox | None = None,
) -> Finding:
    if dataset.path is None:
        return Finding(severity, code, image.path, 0, text)
    line = image.line if box is None else box.line
    return Finding(severity, code, dataset.path, line, f"{image.path}: {text}")


def _dataset_findings(dataset: FaceDataset) -> Iterator[Finding]:
    place = _place(dataset)
    if not dataset.images:
        yield Finding("error", "no-images", place, 0, "has no <image> at all")
        return
    boxes = list(dataset.boxes())
    if not boxes:
        text = "has no face box besides ignored ones: nothing to train on or to evaluate"
        yield Finding("error", "no-boxes", place, 0, text)
    labels = Counter(box.label or "no label" for _, box in boxes)
    if len(labels) > 1:
        kinds = ", ".join(f"{label} ({count})" for label, count in sorted(labels.items()))
        text = f"has boxes with the labels {kinds}, and all count as faces; leave out those of "
        text += "other things (ignore='1'); of orientations, by_label trains a detector for each"
        yield Finding("warning", "several-labels", place, 0, text)
    names = part_names(dataset)
    with_all = max((len(box.parts) for _, box in boxes), default=0)
    for image, box in boxes:
        if box.parts and len(box.parts) < len(names):
            absent = [name for name in names if name not in box.parts]
            text = (
                f"the box has {len(box.parts)} of the {len(names)} parts that this dataset names; "
                f"absent: {_listed(absent)}"
            )
            yield _finding("error", "inconsistent-parts", dataset, image, text, box=box)
        elif with_all and not box.parts:
            text = "the box has no parts, while others have; landmark training leaves it out"
            yield _finding("warning", "no-parts", dataset, image, text, box=box)


def _order_findings(dataset: FaceDataset) -> Iterator[Finding]:
    names = part_names(dataset)
    if not names:
        return
    if problem := unsorted_names(names):
        # Much relies on the numbers of the 68: eyes above all.
        severity: Severity = "error" if len(names) == IBUG_PARTS else "warning"
        text = (
            f"dlib orders parts by their names as text, in which {problem}; a trained model then "
            "numbers them differently. 'poolctl dataset convert' gives all names the "
            "same length"
        )
        yield Finding(severity, "names-unsorted", _place(dataset), 0, text)
    for image, box, problem, certain in misordered_faces(dataset, names):
        code = "part-order" if certain else "odd-shape"
        text = f"the parts of the box {problem}"
        severity = "error" if certain else "warning"
        yield _finding(severity, code, dataset, image, text, box=box)


def _scheme_findings(dataset: FaceDataset, first: FaceDataset) -> Iterator[Finding]:
    names, others = part_names(dataset), part_names(first)
    if not names or not others or names == others:
        return
    text = f"has {len(names)} parts ({_listed(names)})"
    text += f", while {_place(first)} has {len(others)} ({_listed(others)})"
    yield Finding("error", "other-parts", _place(dataset), 0, text)


def _place(dataset: FaceDataset) -> Path:
    return dataset.path or Path(dataset.name or "dataset")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (" ..." if len(names) > _NAMES_SHOWN else "")


def _image_findings(
    dataset: FaceDataset,
    image: AnnotatedImage,
    number: int,
    seen: dict[str, tuple[int, AnnotatedImage]],
    near_corner: list[bool],
) -> Iterator[Finding]:
    opened = _open(image.path)
    if isinstance(opened, tuple):
        code, problem = opened
        yield _finding("error", code, dataset, image, problem)
        return
    first_number, first = seen.setdefault(opened.digest, (number, image))
    if first_number != number:
        text = (
            f"the same picture as {first.path}, which is in another data set; scores on "
            "pictures that a model was trained on are too good"
        )
        yield _finding("error", "shared-image", dataset, image, text)
    elif first is not image:
        where = f"line {first.line}" if first.line else str(first.path)
        text = f"the same picture as {first.path} ({where}); a face counted twice weighs double"
        yield _finding("warning", "duplicate-image", dataset, image, text)
    declared = (image.width_px, image.height_px)
    real = (opened.width_px, opened.height_px)
    differs = None not in declared and declared != real
    if opened.orientation != 1:
        text = f"has an EXIF orientation ({opened.orientation}): "
        if reason := _drawn_upright(dataset, image, opened):
            text += (
                f"its pixels are stored as {real[0]} x {real[1]}, and {reason}, so its boxes and "
                f"landmarks belong to the turned picture; {_UPRIGHT_HINT}"
            )
            yield _finding("error", "exif-orientation", dataset, image, text)
            return
        text += (
            "programs that turn it by that and programs that do not will see the boxes in "
            f"different places; {_UPRIGHT_HINT} if they were drawn on the turned picture"
        )
        yield _finding("warning", "exif-orientation", dataset, image, text)
    if differs:
        text = (
            f"is {real[0]} x {real[1]} pixels, but declared as {declared[0]} x {declared[1]}; "
            "were the boxes drawn on another version of it?"
        )
        yield _finding("error", "size-differs", dataset, image, text)
    boxes = [box for box in image.boxes if not box.ignore]
    ends = [(2 * box.right < real[0], 2 * box.bottom < real[1]) for box in boxes]
    near_corner += map(all, ends)
    for count, box in enumerate(boxes):
        yield from _box_findings(dataset, image, box, real)
        if other := next((one for one in boxes[:count] if _overlap(one, box) > _SAME_FACE), None):
            text = f"the boxes {other.corners} and {box.corners} are of one face; did two persons "
            text += "annotate it? A detector can find only one of them, and the face weighs double"
            yield _finding("warning", "repeated-face", dataset, image, text, box=box)


_SAME_FACE = 0.6


def _overlap(one: FaceBox, other: FaceBox) -> float:
    """Return intersection over union."""
    width = min(one.right, other.right) - max(one.left, other.left) + 1
    height = min(one.bottom, other.bottom) - max(one.top, other.top) + 1
    shared = max(width, 0) * max(height, 0)
    return shared / (one.width * one.height + other.width * other.height - shared)


_FEWEST_NEAR_CORNER = 10
_UPRIGHT_HINT = "'poolctl dataset convert --upright' turns the pictures themselves"


def _drawn_upright(dataset: FaceDataset, image: AnnotatedImage, opened: _Opened) -> str:
    """Return why annotations must belong to the picture as its EXIF data turn it; else nothing."""
    width, height = opened.width_px, opened.height_px
    lies = opened.orientation >= FIRST_LYING
    if lies and width != height and (image.width_px, image.height_px) == (height, width):
        return f"declared as {height} x {width}"
    boxes = [box for box in image.boxes if not box.ignore]
    if lies and any(_fits(box, height, width) > _fits(box, width, height) for box in boxes):
        return "a box fits only into the turned one"
    if lies and (
        (image.width_px, image.height_px) == (width, height) != (height, width)
        or any(_fits(box, width, height) > _fits(box, height, width) for box in boxes)
    ):
        return ""  # Drawn on the picture as it is stored: upright faces in it lie in the scene.
    if lies or opened.orientation in _UPSIDE_DOWN:
        turns = [face_turn(box, part_names(dataset)) for box in boxes]
        known = [turn for turn in turns if turn is not None]
        if known and all(abs(turn) < _UPRIGHT_WITHIN for turn in known):
            return "the faces stand upright in the annotations"
    return ""


def _fits(box: FaceBox, width: int, height: int) -> bool:
    return box.left >= 0 and box.top >= 0 and box.right < width and box.bottom < height


_UPSIDE_DOWN = (3, 4)


def _box_findings(
    dataset: FaceDataset, image: AnnotatedImage, box: FaceBox, size: tuple[int, int]
) -> Iterator[Finding]:
    width, height = size
    if box.right < 0 or box.bottom < 0 or box.left >= width or box.top >= height:
        text = f"the box {box.corners} lies wholly outside the image of {width} x {height} pixels"
        yield _finding("error", "box-outside", dataset, image, text, box=box)
    elif box.left < 0 or box.top < 0 or box.right >= width or box.bottom >= height:
        text = f"the box {box.corners} reaches outside the image of {width} x {height} pixels"
        yield _finding("warning", "box-crosses-edge", dataset, image, text, box=box)
    is_cut = box.left <= 0 or box.top <= 0 or box.right >= width - 1 or box.bottom >= height - 1
    in_shares = bool(box.parts) and min(box.width, box.height) == 1
    if in_shares or _has_corners(box) or (not is_cut and _is_elsewhere(box)):
        text = (
            f"the parts lie beyond the box {box.corners}, or are far larger or smaller than it: "
            "are both in pixels of this picture, and is the box left, top, width, height?"
        )
        yield _finding("error", "parts-off-box", dataset, image, text, box=box)
    unmarked = _unmarked(box)
    if unmarked:
        text = (
            f"{len(unmarked)} of {len(box.parts)} parts are at 0, 0 or -1, -1, as programs write "
            f"those that nobody marked: {_listed(unmarked)}; leave them out of the box"
        )
        yield _finding("error", "parts-unmarked", dataset, image, text, box=box)
    outside = [
        name
        for name, (x, y) in box.parts.items()
        if not (-0.5 <= x < width + 0.5 and -0.5 <= y < height + 0.5)
    ]
    if outside:
        text = (
            f"{len(outside)} of {len(box.parts)} parts lie outside the image of "
            f"{width} x {height} pixels: {_listed(outside)}"
        )
        yield _finding("warning", "parts-outside", dataset, image, text, box=box)


def _unmarked(box: FaceBox) -> list[str]:
    """Return the landmarks at 0, 0 or -1, -1, unless the others lie around that place."""
    names = [name for name, place in box.parts.items() if place in _UNMARKED]
    others = [place for place in box.parts.values() if place not in _UNMARKED]
    if names and others:
        across, down = zip(*others, strict=True)
        far = max(max(across) - min(across), max(down) - min(down)) / 10
        if max(min(across), min(down)) < far:
            return []
    return names


def _is_elsewhere(box: FaceBox) -> bool:
    """Return whether the landmarks are not those of the face in the box."""
    if len(box.parts) < _FEWEST_PARTS:
        return False
    shares = []
    for values, start, length in (
        ([x for x, _ in box.parts.values()], box.left, box.width),
        ([y for _, y in box.parts.values()], box.top, box.height),
    ):
        middle = (fmean(values) - start) / length
        if not -_BEYOND_BOX < middle < 1 + _BEYOND_BOX:
            return True
        shares.append((max(values) - min(values)) / length)
    # A few may be those of a small thing, such as one eye.
    smallest = _SMALLEST_SHARE if len(box.parts) >= _OF_A_FACE else 0.0
    return not smallest < max(shares) < _LARGEST_SHARE


def _has_corners(box: FaceBox) -> bool:
    """Return whether width and height of a box must be the right and the bottom edge of its face.

    The landmarks then fill the box up to there, which is a smaller one.
    """
    width, height = box.width - box.left, box.height - box.top
    if len(box.parts) < _OF_A_FACE or min(width, height) <= 0:
        return False
    across, down = zip(*box.parts.values(), strict=True)
    left, top, right, bottom = min(across), min(down), max(across), max(down)
    beyond = _BEYOND_BOX * width, _BEYOND_BOX * height
    return (
        width * height < _SMALLER * box.width * box.height
        and (right - left) * (bottom - top) > _SMALLER * width * height
        and box.left - beyond[0] < left < right < box.width + beyond[0]
        and box.top - beyond[1] < top < bottom < box.height + beyond[1]
    )


_SMALLER = 0.4
_UNMARKED = {(0.0, 0.0), (-1.0, -1.0)}
_FEWEST_PARTS, _BEYOND_BOX, _SMALLEST_SHARE, _LARGEST_SHARE = 5, 0.1, 0.05, 3.0
_OF_A_FACE = 12


def _open(path: Path) -> _Opened | tuple[str, str]:
    """Decode an image; where that fails, the code and text of the finding."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return "missing-image", "no such file"
    except OSError as error:
        return "unreadable-image", f"cannot be read: {error.strerror}"
    try:
        with warnings.catch_warnings():
            # Pillow warns of large and of slightly odd files; both decode.
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(content)) as picture:
                orientation = orientation_of(picture)
                width, height = picture.size
                picture.load()
                mode, pixels = _samples(picture)
    except UnidentifiedImageError:
        return "broken-image", "is no picture of a known format"
    # Pillow's decoders raise many types on damaged input, some of them undocumented.
    except Exception as error:
        return "broken-image", f"cannot be decoded: {error}"
    digest = hashlib.sha256(f"{width} {height} {mode}".encode("ascii") + pixels).hexdigest()
    return _Opened(digest, width, height, orientation)


def _samples(picture: Image.Image) -> tuple[str, bytes]:
    """Return mode and samples of a picture, the same for all formats."""
    # Pillow would clip grey of more than 8 bits to 255, and all such pictures would be white.
    if picture.mode.startswith("I"):
        return "I", picture.convert("I").tobytes()
    if picture.mode == "F":
        return "F", picture.tobytes()
    return "", picture.convert("RGB").tobytes()
