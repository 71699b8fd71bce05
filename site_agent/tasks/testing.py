"""Tests of models on a lab's own data: scores, faces learned before the test, and a verdict."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggregators.formats import file_digest
from site_agent.datasets.records import FaceDataset, dataset_digest, image_marks
from site_agent.datasets.soundness import require_sound
from site_agent.errors import NotFoundError, NotLoggedInError, PoolClientError
from site_agent.evaluation.detection import DetectionScores
from site_agent.evaluation.gaze import GazeScores
from site_agent.evaluation.landmark_scores import LandmarkScores
from site_agent.evaluation.model_runs import EvaluationSettings, evaluate_models, use_of
from site_agent.evaluation.report import ScoredModel
from site_agent.pool.profiles import is_offline
from site_agent.pool.rebuilding import RecipeSources
from site_agent.pool.sidecars import save_evaluation
from site_agent.tasks.caller import Caller
from site_agent.tasks.model_files import ModelFile
from site_agent.training.overlap import TrainingOverlap, training_overlap

Scores = DetectionScores | LandmarkScores | GazeScores

_LENGTHS = {
    "inter-ocular": "distance between the eyes",
    "outer-corners": "distance of the outer eye corners",
    "box": "size of the box",
    "parts": "distance of the named landmarks",
}


@dataclass(frozen=True)
class Scored:
    """The scores of all models on one data set."""

    files: Sequence[ModelFile]
    models: Sequence[ScoredModel]
    measured: str
    """Digest of the data set."""
    trained_on: Sequence[int]
    """How many of its images each model has learned."""
    despite: Sequence[str]
    """Findings in the data that the test goes on despite."""

    def keep(self, caller: Caller) -> None:
        """Save the scores next to the models."""
        for file, model, count in zip(self.files, self.models, self.trained_on, strict=True):
            if file.version is not None:
                caller.warn(f"{file.word} is in the pool, not a local file: nothing was saved")
                continue
            path = save_evaluation(
                file.path,
                model.digest,
                model.scores.metrics,
                self.measured,
                count,
                despite_findings=self.despite,
            )
            caller.note(f"kept in {path}")


def scored_models(files: Sequence[ModelFile], scores: Sequence[Scores]) -> list[ScoredModel]:
    return [
        ScoredModel(file.word, file_digest(file.path), scored)
        for file, scored in zip(files, scores, strict=True)
    ]


def score_on_faces(
    caller: Caller,
    files: Sequence[ModelFile],
    dataset: FaceDataset,
    settings: EvaluationSettings = EvaluationSettings(),
    workers: int = 0,
    *,
    despite_findings: bool,
) -> Scored:
    paths = [file.path for file in files]
    with caller.progress("evaluate") as report:
        scores = evaluate_models(
            paths,
            dataset,
            settings,
            workers=workers,
            despite_findings=despite_findings,
            progress=report,
        )
    sounds = [
        require_sound(dataset, use=use_of(path), despite_findings=despite_findings)
        for path in paths
    ]
    despite = max((sound.despite for sound in sounds), key=len)
    digest = dataset_digest(dataset)
    learned = warn_of_training_images(caller, files, dataset, digest)
    return Scored(files, scored_models(files, scores), digest, learned, despite)


def warn_of_training_images(
    caller: Caller, models: Sequence[ModelFile], dataset: FaceDataset, digest: str
) -> list[int]:
    """Return how many images of a test each model has learned, and warn where there are any."""
    marks = image_marks(dataset)
    lineages = lineages_of(caller, [model.path for model in models])
    return [
        warn_of_overlap(caller, model, training_overlap(model.path, marks, digest, lineage))
        for model, lineage in zip(models, lineages, strict=True)
    ]


def warn_of_overlap(caller: Caller, model: ModelFile, overlap: TrainingOverlap | None) -> int:
    """Return how many images of a test a model has learned, and warn if there are any."""
    if overlap is None:
        return 0
    caller.warn(f"{model.word}: {overlap.words}")
    return overlap.images


def lineages_of(caller: Caller, models: Sequence[Path]) -> list[set[str]]:
    """Return the digests of all that each model was made from, by recipes here and by the pool.

    This site's own records are looked up by them.
    """
    own_digests = [file_digest(model) for model in models]
    known = [
        set(RecipeSources([model.parent]).holdings(digest))
        for model, digest in zip(models, own_digests, strict=True)
    ]
    if is_offline():
        return known
    try:
        with caller.pool() as pool:
            for digest, digests in zip(own_digests, known, strict=True):
                with suppress(NotFoundError):
                    answer = pool.models.lineage_of_digest(digest)
                    digests |= {node.digest for node in answer.nodes if node.depth <= 0}
    except NotLoggedInError:
        pass
    except PoolClientError as error:
        caller.warn(f"what the models were made from is not known: {error}")
    return known


def verdicts(models: Sequence[ScoredModel]) -> list[str]:
    """Return a sentence on the best detector, and one on the best landmark model."""
    lines = []
    detectors = [model for model in models if isinstance(model.scores, DetectionScores)]
    if detectors:
        winner, name = _best(detectors, lambda scores: -scores.f1)
        best = "" if len(detectors) == 1 else "Best by F1: "
        lines.append(
            f"{best}{name} finds {100 * winner.recall:.0f} % of the faces, and "
            f"{100 * winner.precision:.0f} % of what it finds are faces."
        )
    landmarks = [model for model in models if isinstance(model.scores, LandmarkScores)]
    if landmarks:
        placed, name = _best(landmarks, lambda scores: scores.mean_error)
        best = "" if len(landmarks) == 1 else "Smallest error: "
        in_px = placed.normaliser == "none"
        unit = "px" if in_px else f"% of the {_LENGTHS[placed.normaliser]}"
        lids = ""
        if placed.ear_range is not None:
            lids = f" and follows the lids {100 * placed.ear_range:.0f} % of their way"
        size = placed.mean_error * (1 if in_px else 100)
        lines.append(f"{best}{name} is off by {size:.1f} {unit}{lids}.")
    return lines


def _best(models: Sequence[ScoredModel], badness: Callable[[Any], float]) -> tuple[Any, str]:
    model = min(models, key=lambda candidate: badness(candidate.scores))
    return model.scores, Path(model.name).name
