"""Training of landmark models (ensembles of regression trees) through dlib."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pydantic import Field

from site_agent.datasets import records
from site_agent.datasets.check import Finding
from site_agent.datasets.conversion import read_faces
from site_agent.datasets.landmark_schemes import (
    EYE_POINTS,
    PART_GROUPS,
    expand_parts,
    mean_eye_aspect_ratio,
)
from site_agent.datasets.part_order import order_problem
from site_agent.datasets.soundness import require_sound
from site_agent.errors import InvalidInputError, TrainingDataError
from site_agent.evaluation.landmark_scores import CLOSED_EAR, normaliser_for
from site_agent.plain_json import write_json
from site_agent.settings import Settings
from site_agent.training import windows
from site_agent.training.detector_plan import MOST_UPSAMPLING, HogSvmSettings, plan_detector
from site_agent.training.worker_process import read_ert_progress, require_memory, run_worker
from site_agent.training_record import DataSummary, TrainingResult, begin_training
from site_agent.work import Progress, no_progress, part_of
from site_agent.work.locks import locked

_PROGRAM_BYTES = 200_000_000
# Of one training sample in dlib: vectors and their allocation, besides their contents.
_SAMPLE_OVERHEAD_BYTES = 240
_FEWEST_FACES = 2


class ErtSettings(Settings, error=InvalidInputError):
    """Settings of training a landmark model; the defaults are those of table III of the paper."""

    oversampling_amount: int = Field(default=20, ge=1, le=10_000)
    """Starting shapes for each face."""
    nu: float = Field(default=0.1, gt=0, le=1)
    """Part of the remaining error that each tree corrects, above 0 and at most 1."""
    tree_depth: int = Field(default=5, ge=1, le=16)
    """Splits from root to leaf; a tree has 2**tree_depth leaves."""
    feature_pool_size: int = Field(default=400, ge=2, le=100_000)
    """Pixels from which the trees of a level choose."""
    num_test_splits: int = Field(default=20, ge=1, le=100_000)
    """Random splits tried at each node."""
    cascade_depth: int = Field(default=10, ge=1, le=1000)
    """Levels of the cascade."""
    num_trees_per_cascade_level: int = Field(default=500, ge=1, le=100_000)
    """Trees in each level."""
    lambda_param: float = Field(default=0.1, gt=0)
    """How near to each other the two pixels of a split are, on average, in box sizes."""
    feature_pool_region_padding: float = Field(default=0.0, gt=-0.5)
    """How far pixels are taken from beyond the region of the landmarks, in box sizes; above
    -0.5."""
    oversampling_translation_jitter: float = Field(default=0.0, ge=0)
    """Largest random shift of the box for each starting shape, in box sizes."""
    landmark_relative_padding_mode: bool = True
    """Take pixels from the region of the landmarks (true) or from the whole box at least."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Another seed gives another model."""
    threads: int = Field(default=0, ge=0, le=256)
    """The result depends on it: 0 and 1 give the same bytes, each larger number other ones, because
    sums are then added in another order. With equal settings the result is the same."""
    parts: tuple[str, ...] = ()
    """The landmarks to train on; empty: all. Names, ranges of numbers (36-47), and of iBUG's 68 the
    groups eyes, mouth, nose, brows, jaw, inner (all but the jaw), left-eye, right-eye."""
    allow_missing_parts: bool = False
    """Train on faces that lack some landmarks, from those that are marked."""

    def __post_init__(self) -> None:
        if len(set(self.parts)) != len(self.parts):
            raise self.refused("parts", self.parts, "each name once")

    def dlib_options(self) -> dict[str, Any]:
        """Return the settings under the names of dlib's options."""
        shared = ("parts", "allow_missing_parts", "seed", "threads")
        options = {name: value for name, value in asdict(self).items() if name not in shared}
        # Without a seed as text, dlib begins with that of an empty one.
        seed = str(self.seed) if self.seed else ""
        return options | {"random_seed": seed, "num_threads": self.threads}


FOR_BLINKS = ErtSettings(
    parts=("eyes",), feature_pool_region_padding=0.08, oversampling_translation_jitter=0.03
)
"""Settings for a model that follows the lids: the landmarks of the eyes alone.

The region of these landmarks is a narrow strip; without padding the lids and the crease above the
eye lie outside of it. With 0.08 the error of the landmarks is a quarter to a third smaller, on
photographs and on drawn faces.
"""


def train_ert(
    dataset: records.FaceDataset,
    output: Path | str,
    settings: ErtSettings = ErtSettings(),
    progress: Progress = no_progress,
    *,
    training_scores: bool = True,
    despite_findings: bool = False,
) -> TrainingResult:
    """Train a landmark model and write it as a dlib file.

    Landmarks are numbered by the alphabetic order of their names, as dlib does.

    `dataset`: boxes with parts; boxes marked `ignore` and images without boxes are left out.
    `output`: the ``.dat`` file, put in place only when it is complete; ``<output>.training.json``
    lies next to it. `progress`: an exception that it raises stops the training. `training_scores`:
    score the model on its own training data at the end. `despite_findings`: go on despite faults
    of the data that must be mended.

    Raises `UnsoundDataError`: such faults. `TrainingDataError`: too few faces, boxes without parts
    or with other parts, unreadable images; names file and lines. `TrainingFailedError`: dlib
    failed, or memory would not or did not suffice.
    """
    output = Path(output)
    sound = require_sound(dataset, despite_findings=despite_findings, progress=progress)
    begun = begin_training(output, sound.details)
    settings = with_named_parts(dataset, settings)
    names = checked_parts(dataset, settings)
    faces = trainable_faces(dataset)
    needed = estimated_memory_bytes(faces, len(names), settings)
    require_memory(needed, "use fewer faces or less oversampling")
    progress(None, f"about {needed / 1e9:.1f} GB of memory")
    digest, marks = records.dataset_digest(dataset), records.image_marks(dataset)
    closed_eyes = _count_closed_eyes(faces, names)
    with begun.writing() as temporary:
        facts = run_worker(
            _job(faces, names, settings, temporary, score=training_scores),
            read_ert_progress,
            progress=progress,
            needed_memory_bytes=needed,
            data_path=dataset.path,
        )
        boxes = sum(len(boxes) for _, boxes in faces)
        ignored = sum(1 for _ in dataset.boxes(ignored=True)) - boxes
        details = {
            "samples": boxes * settings.oversampling_amount,
            **closed_eyes,
            "image_bytes": facts["image_bytes"],
            "estimated_memory_bytes": needed,
        }
        data = DataSummary(digest, len(faces), boxes, ignored, len(names), image_marks=marks)
        warnings = (*_order_warnings(faces, names), *_lid_warnings(closed_eyes, names))
        return begun.publish("ert", data, asdict(settings), details, facts, warnings=warnings)


def with_named_parts(dataset: records.FaceDataset, settings: ErtSettings) -> ErtSettings:
    """Replace groups of landmarks and ranges of numbers by the names that they mean.

    Words that mean nothing stay, for `checked_parts` to refuse.
    """
    if not settings.parts:
        return settings
    parts, unknown = expand_parts(settings.parts, records.part_names(dataset))
    return replace(settings, parts=(*parts, *unknown))


def checked_parts(dataset: records.FaceDataset, settings: ErtSettings) -> tuple[str, ...]:
    """Names of the landmarks to train on, after checking every box."""
    boxes = [box for _, box in dataset.boxes()]
    if len(boxes) < _FEWEST_FACES:
        shortage = f"has {len(boxes)} boxes to train on, at least {_FEWEST_FACES} are needed"
        raise TrainingDataError(dataset.path, shortage)
    known = records.part_names(dataset)
    if not known:
        raise TrainingDataError(
            dataset.path,
            "has boxes, but none of them has landmarks",
            hint="mark landmarks with <part>, or train a detector (hog-svm), which needs none",
        )
    unknown = [name for name in settings.parts if name not in known]
    if unknown:
        raise settings.refused(
            "parts",
            ", ".join(unknown),
            f"names of the data set ({_listed(known)}), or groups of iBUG's 68 landmarks "
            f"({', '.join(PART_GROUPS)})",
        )
    names = tuple(name for name in known if not settings.parts or name in settings.parts)
    problems = [
        (box.line, problem)
        for image, box in dataset.boxes()
        if (problem := _box_problem(image, box, names, settings))
    ]
    if problems:
        raise TrainingDataError(
            dataset.path,
            problems,
            hint="complete these boxes, mark them ignore='1', or allow missing parts "
            "(--set allow_missing_parts=true); a box without any part cannot be used",
        )
    return names


def estimated_memory_bytes(
    faces: Sequence[tuple[records.AnnotatedImage, Sequence[records.FaceBox]]],
    parts: int,
    settings: ErtSettings,
) -> int:
    """Memory that the training process will take.

    A sample holds four vectors of coordinates and the pixels of the pool; images are kept as grey
    crops of up to three box sizes, twice while they are handed to dlib.
    """
    boxes = [box for _, image_boxes in faces for box in image_boxes]
    sample = 4 * 2 * parts * 4 + settings.feature_pool_size + _SAMPLE_OVERHEAD_BYTES
    crops = sum(9 * box.width * box.height for box in boxes)
    leaves = (1 << settings.tree_depth) * 2 * parts * 4
    trees = settings.cascade_depth * settings.num_trees_per_cascade_level * leaves
    samples = len(boxes) * settings.oversampling_amount * sample
    return _PROGRAM_BYTES + samples + 2 * crops + 2 * trees


def trainable_faces(
    dataset: records.FaceDataset,
) -> list[tuple[records.AnnotatedImage, list[records.FaceBox]]]:
    """Return the images with boxes to train on, and these boxes."""
    faces = [(image, [box for box in image.boxes if not box.ignore]) for image in dataset.images]
    return [(image, boxes) for image, boxes in faces if boxes]


def _count_closed_eyes(
    faces: Sequence[tuple[records.AnnotatedImage, Sequence[records.FaceBox]]], names: Sequence[str]
) -> dict[str, int]:
    """Count the faces with closed eyes; nothing where the eyes are not among the landmarks."""
    shapes = np.stack([records.parts_array(box, names) for _, boxes in faces for box in boxes])
    ratios = mean_eye_aspect_ratio(shapes, names)
    return {} if ratios is None else {"closed_eyes": int((ratios < CLOSED_EAR).sum())}


def _lid_warnings(closed_eyes: Mapping[str, int], names: Sequence[str]) -> tuple[str, ...]:
    if closed_eyes.get("closed_eyes") != 0 or len(names) != EYE_POINTS:
        return ()
    return (
        "no face has closed eyes: the model may keep closed lids half open and miss blinks. Add "
        "some frames with closed eyes; 'poolctl blink review --export' writes frames of your own "
        "recordings with corrected landmarks",
    )


def _order_warnings(
    faces: Sequence[tuple[records.AnnotatedImage, Sequence[records.FaceBox]]], names: Sequence[str]
) -> tuple[str, ...]:
    shapes = [
        (records.parts_array(box, names) - [box.left, box.top]) / [box.width, box.height]
        for _, boxes in faces
        for box in boxes
    ]
    marked = [shape for shape in shapes if np.isfinite(shape).all()]
    problem = order_problem(np.mean(marked, axis=0)) if marked else ""
    if not problem:
        return ()
    return (
        f"the model's 68 landmarks {problem}: what takes them for those of the iBUG scheme, such "
        "as poolctl blink, refuses it or takes other points for the eyes. 'poolctl dataset check' "
        "reports what is wrong with the data",
    )


def _box_problem(
    image: records.AnnotatedImage, box: records.FaceBox, names: Sequence[str], settings: ErtSettings
) -> str:
    missing = [name for name in names if name not in box.parts]
    if len(missing) == len(names):
        return f"a box of {image.path.name} has no landmarks, {len(names)} are expected"
    if missing and not settings.allow_missing_parts:
        count = len(names) - len(missing)
        return (
            f"a box of {image.path.name} has {count} of {len(names)} landmarks; "
            f"it lacks {_listed(missing)}"
        )
    return ""


def _job(
    faces: Sequence[tuple[records.AnnotatedImage, Sequence[records.FaceBox]]],
    names: Sequence[str],
    settings: ErtSettings,
    output: Path,
    *,
    score: bool,
) -> dict[str, Any]:
    images = [
        {
            "path": str(image.path.resolve()),
            "boxes": [{"corners": box.corners, "points": _points(box, names)} for box in boxes],
        }
        for image, boxes in faces
    ]
    return {
        "kind": "ert",
        "images": images,
        "options": settings.dlib_options(),
        "output": str(output.resolve()),
        "scales": _scales(faces, names) if score else None,
    }


def _points(box: records.FaceBox, names: Sequence[str]) -> list[list[int] | None]:
    # dlib takes whole pixels; halves go up, as in its own reading of files.
    return [
        [math.floor(value + 0.5) for value in box.parts[name]] if name in box.parts else None
        for name in names
    ]


def _scales(
    faces: Sequence[tuple[records.AnnotatedImage, Sequence[records.FaceBox]]], names: Sequence[str]
) -> list[list[float]] | None:
    """Return the divisor of errors of each box; None where a face lacks landmarks for it."""
    normaliser = normaliser_for(names)
    scales = [
        [normaliser.scale(records.parts_array(box, names), box.corners) for box in boxes]
        for _, boxes in faces
    ]
    return scales if all(scale > 0 for image in scales for scale in image) else None


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:6])
    return shown if len(names) <= 6 else f"{shown} ... ({len(names)} in all)"


def unlearnable_boxes(
    dataset: records.FaceDataset, settings: HogSvmSettings = HogSvmSettings()
) -> list[Finding]:
    """Find the boxes that no position of a detector's window covers well enough.

    They are warnings: landmark training can use such boxes, and detector training can ignore them.
    Each says why, and how often the images would have to be doubled, where that helps. Of
    `settings` the window size and the doublings of the images count.
    """
    if not any(True for _ in dataset.boxes()):
        return []
    size = settings.target_size_px
    window = windows.DetectionWindow(*size)
    try:
        reshaped = plan_detector(dataset, replace(settings, ignore_unreachable=True)).reshaped
    except TrainingDataError:  # no box at all can be learned
        reshaped = (
            windows.area_for_window([box.corners for _, box in dataset.boxes()], size) is None
        )
    findings = []
    for image in dataset.images:
        kept = [box for box in image.boxes if not box.ignore]
        corners = [box.corners for box in kept]
        if reshaped:
            corners = [windows.with_window_shape(box, size) for box in corners]
        for miss in windows.unreachable_boxes(corners, window, settings.upsample):
            way = _doublings(corners, miss.index, window, settings.upsample)
            text = f"{image.path}: the box {miss.reason}{way}"
            line = kept[miss.index].line
            place = dataset.path or image.path
            findings.append(Finding("warning", "unreachable-box", place, line, text))
    return findings


def _doublings(
    corners: Sequence[windows.Corners], index: int, window: windows.DetectionWindow, upsample: int
) -> str:
    for times in range(upsample + 1, MOST_UPSAMPLING + 1):
        if all(box.index != index for box in windows.unreachable_boxes(corners, window, times)):
            return f"; with upsample={times} it is reached"
    return ""


IMAGE_COUNT = 250
GLASSES_SHARE = 1 / 3
"""Share of a starter's drawn persons with glasses."""
_MANY_FACES = 1000
_KEPT = f"starter-1-{IMAGE_COUNT}.dat"
"""Name in the cache; the first number changes with the drawing or the training."""


def train_starter(
    output: Path, image_count: int = IMAGE_COUNT, progress: Progress = no_progress
) -> TrainingResult:
    """Draw faces, and train on them; the training record says that they are drawn."""
    from site_agent.datasets.synthetic.settings import FaceDrawing
    from site_agent.datasets.synthetic.sites import write_face_dataset

    with TemporaryDirectory() as folder:
        # A model that has seen no glasses loses the lids behind thick rims and strong lenses.
        drawing = FaceDrawing(images=image_count, persons=image_count, glasses=GLASSES_SHARE)
        faces = write_face_dataset(Path(folder), drawing, part_of(progress, 0.0, 0.3)).path
        settings, report = settings_for_blinks(image_count), part_of(progress, 0.3, 1.0)
        result = train_ert(read_faces(faces), output, settings, report, training_scores=False)
    record = replace(result.record, details={**result.record.details, "drawn": True})
    write_json(result.metadata_path, record.to_dict())
    return replace(result, record=record)


def kept_starter(cache: Path) -> Path:
    """Return the path of the starter in a cache, whether or not it was trained already."""
    return cache / "starter" / _KEPT


def find_starter(cache: Path, progress: Progress = no_progress) -> Path:
    """Return the starter of a cache; train it if it is not there yet."""
    path = kept_starter(cache)
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(".lock")):
        if not path.is_file():
            train_starter(path, progress=progress)
    return path


def settings_for_blinks(faces: int) -> ErtSettings:
    """Return settings for a model that follows the lids, by the number of faces."""
    if faces >= _MANY_FACES:
        return FOR_BLINKS
    return replace(FOR_BLINKS, nu=0.05, tree_depth=4, oversampling_amount=40)
