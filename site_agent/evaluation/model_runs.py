"""Many models on one data set, in parallel processes where that pays."""

import os
from collections.abc import Sequence
from pathlib import Path

from aggregators.formats import NETWORK_FORMATS, recognise
from site_agent.datasets.records import FaceDataset, require_images
from site_agent.datasets.soundness import Use, require_sound
from site_agent.errors import EvaluationError
from site_agent.evaluation.detection import DetectionScores, evaluate_detector
from site_agent.evaluation.landmark_scores import LandmarkScores
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.faces.models import DETECTOR_FORMAT
from site_agent.settings import Settings
from site_agent.work import Progress, no_progress

Scores = DetectionScores | LandmarkScores
# dlib's scores of faces are about 0 to 2.
_CURVE_BELOW = 0.5


class EvaluationSettings(Settings):
    """Settings of an evaluation."""

    upsample: int | None = None
    """Detectors: doublings of the images; None: as the file says."""
    threshold: float = 0.0
    """Detectors: added to the score that a face needs."""
    normaliser: str | None = None
    """Landmark models: errors are divided by inter-ocular, outer-corners, box, or none."""
    resamples: int = 1000
    """Number of bootstrap samples for the intervals; 0: no intervals."""
    parts: tuple[str, ...] = ()
    """Landmark models: the landmarks to compare; all that a model places where empty."""


def use_of(model: Path) -> Use:
    """Return the part of the annotations for a test of a model."""
    return "boxes" if recognise(model).name == DETECTOR_FORMAT else "landmarks"


def evaluate_model(
    model: Path,
    dataset: FaceDataset,
    settings: EvaluationSettings = EvaluationSettings(),
    *,
    workers: int = 1,
    despite_findings: bool = False,
    progress: Progress = no_progress,
) -> Scores:
    """Score a detector or a landmark model.

    Raises `UnsoundDataError`: faults of the faces must be mended, unless `despite_findings` goes
    on.
    """
    require_images(dataset)
    name = recognise(model).name
    if name in NETWORK_FORMATS:
        raise EvaluationError(f"{model}: networks cannot be evaluated on faces")
    require_sound(dataset, use=use_of(model), despite_findings=despite_findings, progress=progress)
    if name == DETECTOR_FORMAT:
        return evaluate_detector(
            model,
            dataset,
            upsample=settings.upsample,
            threshold=settings.threshold,
            curve_below=_CURVE_BELOW,
            resamples=settings.resamples,
            workers=workers,
            progress=progress,
        )
    return evaluate_landmarks(
        model,
        dataset,
        normaliser=settings.normaliser,
        parts=settings.parts,
        resamples=settings.resamples,
        workers=workers,
        progress=progress,
    )


def evaluate_models(
    models: Sequence[Path],
    dataset: FaceDataset,
    settings: EvaluationSettings = EvaluationSettings(),
    *,
    workers: int = 0,
    despite_findings: bool = False,
    progress: Progress = no_progress,
) -> list[Scores]:
    """Score several models on one data set, one after the other, each on all processors.

    A script that scores detectors must guard its main part with ``if __name__ == "__main__":``.

    `workers`: Images at once; 0: as many as the machine has processors. The numbers stay the same.
    """
    workers = workers or os.cpu_count() or 1
    scores = []
    for number, model in enumerate(models):

        def report(part: float | None, text: str, at: int = number) -> None:
            # Not the name of the file, which for an address is a digest.
            which = f"model {at + 1} of {len(models)}, " if len(models) > 1 else ""
            progress((at + (part or 0.0)) / len(models), which + text)

        scores.append(
            evaluate_model(
                model,
                dataset,
                settings,
                workers=workers,
                despite_findings=despite_findings,
                progress=report,
            )
        )
    return scores
