"""Many models on one data set, in parallel processes where that pays."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from pydantic import Field

from aggregators.formats import NETWORK_FORMATS, recognise
from site_agent.datasets import FaceDataset, require_images
from site_agent.errors import EvaluationError
from site_agent.evaluation.detection import DetectionScores, evaluate_detector
from site_agent.evaluation.landmark_scores import LandmarkScores
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.faces.models import DETECTOR_FORMAT
from site_agent.runs.progress import Progress
from site_agent.settings import Settings

Scores = DetectionScores | LandmarkScores
# Starting a process and loading dlib in it takes about this long.
_PROCESS_START_S = 3.0
# dlib's scores of faces are about 0 to 2.
_CURVE_BELOW = 0.5


class EvaluationSettings(Settings):
    """Settings of an evaluation."""

    upsample: int | None = Field(
        default=None, description="Detectors: doublings of the images; None: as the file says."
    )
    threshold: float = Field(
        default=0.0, description="Detectors: added to the score that a face needs."
    )
    normaliser: str | None = Field(
        default=None,
        description="Landmark models: errors are divided by inter-ocular, outer-corners, box, "
        "none, or the distance of two groups of parts: 36,39/42,45.",
    )
    resamples: int = Field(
        default=1000, description="Number of bootstrap samples for the intervals; 0: no intervals."
    )
    seed: int = Field(default=0, description="Of the bootstrap.")
    parts: tuple[str, ...] = Field(
        default=(),
        description="Landmark models: the landmarks to compare; all that a model places where "
        "empty.",
    )


def evaluate_model(
    model: Path,
    dataset: FaceDataset,
    settings: EvaluationSettings | None = None,
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> Scores:
    """Score a detector or a landmark model, whichever the file is."""
    settings = settings or EvaluationSettings()
    require_images(dataset)
    name = recognise(model).name
    if name in NETWORK_FORMATS:
        raise EvaluationError(f"{model}: networks cannot be evaluated on faces")
    if name == DETECTOR_FORMAT:
        return evaluate_detector(
            model,
            dataset,
            upsample=settings.upsample,
            threshold=settings.threshold,
            curve_below=_CURVE_BELOW,
            resamples=settings.resamples,
            seed=settings.seed,
            workers=workers,
            progress=progress,
        )
    return evaluate_landmarks(
        model,
        dataset,
        normaliser=settings.normaliser,
        parts=settings.parts,
        resamples=settings.resamples,
        seed=settings.seed,
        workers=workers,
        progress=progress,
    )


def evaluate_models(
    models: Sequence[Path],
    dataset: FaceDataset,
    settings: EvaluationSettings | None = None,
    *,
    workers: int = 0,
    progress: Progress | None = None,
) -> list[Scores]:
    """Score several models on one data set.

    The first is scored in this process; how long that takes says whether the others get
    processes of their own. A script that scores several models must guard its main part with
    ``if __name__ == "__main__":``.

    Parameters
    ----------
    workers : int
        Processes at once; 0: as many as the machine has processors.
    """
    settings = settings or EvaluationSettings()
    workers = workers or os.cpu_count() or 1
    report = progress or (lambda _fraction, _text: None)
    count = len(models)

    def score_here(number: int) -> Scores:
        def report_one(fraction: float | None, text: str) -> None:
            report((number + (fraction or 0.0)) / count, f"{models[number].name}: {text}")

        return evaluate_model(
            models[number], dataset, settings, workers=workers, progress=report_one
        )

    # A process takes seconds to start: the first model shows whether the others are worth it.
    started = time.monotonic()
    done = [score_here(0)] if models else []
    expected_s = (time.monotonic() - started) * (count - 1)
    processes = min(workers, count - 1)
    if processes < 2 or expected_s < 2 * _PROCESS_START_S:
        return done + [score_here(number) for number in range(1, count)]
    return done + _score_in_processes(models, dataset, settings, processes, report)


def _score_in_processes(
    models: Sequence[Path],
    dataset: FaceDataset,
    settings: EvaluationSettings,
    processes: int,
    report: Progress,
) -> list[Scores]:
    results: dict[int, Scores] = {}
    # A forked process could inherit locks that threads of this one hold.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, _take, (dataset, settings))
    try:
        futures = {
            pool.submit(_score_there, model): number for number, model in enumerate(models[1:])
        }
        for future in as_completed(futures):
            outcome = future.result()
            if isinstance(outcome, Exception):
                raise outcome
            results[futures[future]] = outcome
            done = len(results) + 1
            report(done / len(models), f"{done} of {len(models)} models")
    except BrokenProcessPool as error:
        raise EvaluationError(
            "a process that scored a model has died, perhaps for lack of memory; "
            "try again with fewer at once (workers)"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)
    return [results[number] for number in range(len(models) - 1)]


_TAKEN: list[tuple[FaceDataset, EvaluationSettings]] = []
"""In a worker process: what it works on."""


def _take(dataset: FaceDataset, settings: EvaluationSettings) -> None:
    _TAKEN[:] = [(dataset, settings)]


def _score_there(model: Path) -> Scores | Exception:
    dataset, settings = _TAKEN[0]
    try:
        return evaluate_model(model, dataset, settings)
    except Exception as error:
        return _sendable(error)


def _sendable(error: Exception) -> Exception:
    """Return the error itself where it survives the way to the other process, else its text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return EvaluationError(f"{error}")
    return error
