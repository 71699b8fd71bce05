"""Quick trials: small landmark models of growing parts of the faces, before the long training."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from site_agent.datasets.records import FaceDataset
from site_agent.errors import TrainingDataError
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.training.ert import ErtSettings, train_ert
from site_agent.work import Progress, no_progress, part_of

_SHARES = (0.1, 0.25, 0.5, 0.75, 1.0)
_LEFT_OUT = 0.1
_FEWEST_IMAGES = 20
_TREES_PER_LEVEL = 10


@dataclass(frozen=True)
class Trial:
    """A small model: its number of faces, and its error on the faces left out of all trials."""

    faces: int
    error: float
    """Relative to the distance between the eyes."""


def quick_trials(
    faces: FaceDataset, settings: ErtSettings, progress: Progress = no_progress
) -> Iterator[Trial]:
    """Yield the trials, each as soon as it is measured; none if there are too few images."""
    images = [image for image in faces.images if image.boxes]
    if len(images) < _FEWEST_IMAGES:
        return
    random.Random(0).shuffle(images)
    count = max(2, round(_LEFT_OUT * len(images)))
    left_out, images = replace(faces, images=tuple(images[:count])), images[count:]
    small = replace(settings, num_trees_per_cascade_level=_TREES_PER_LEVEL)
    with TemporaryDirectory() as folder:
        for number, share in enumerate(_SHARES):
            part = replace(faces, images=tuple(images[: max(2, round(share * len(images)))]))
            report = part_of(progress, number / len(_SHARES), (number + 1) / len(_SHARES))
            try:
                model = train_ert(
                    part, Path(folder) / f"{number}.dat", small, report,
                    training_scores=False, despite_findings=True,
                )  # fmt: skip
            except TrainingDataError:
                continue  # a small part may hold no face with all landmarks
            scores = evaluate_landmarks(model.model_path, left_out, resamples=0)
            yield Trial(model.record.data.boxes, scores.mean_error)
