"""The next round of a laboratory's eye model: refined with the frames of its reviews."""

import math
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from aggregators.methods.refitting import RefitSettings
from site_agent.datasets.imglab_xml import read_imglab_xml, write_imglab_xml
from site_agent.datasets.records import FaceDataset
from site_agent.errors import InvalidInputError
from site_agent.evaluation.model_runs import evaluate_model
from site_agent.eyeblink.pipeline import run_blink_analysis
from site_agent.eyeblink.review.review_session import ReviewSession, open_review
from site_agent.eyeblink.review.reviewed_session import reviewed_blinks
from site_agent.eyeblink.review.training_export import export_training_set
from site_agent.eyeblink.session import AnalysedSession
from site_agent.eyeblink.session_folder import SessionLabels
from site_agent.eyeblink.session_reading import read_session
from site_agent.eyeblink.video.recording import were_given
from site_agent.refinement import CROP_MARGIN, RefinementPlan, load_site, read_base, refine_sites
from site_agent.work import Progress, no_progress, part_of

LEAST_OVERLAP = 0.2
"""Blinks are the same above this intersection over union."""


@dataclass(frozen=True)
class SessionGain:
    """The gain on a reviewed session by a model that had no frame of it."""

    place: Path
    frames: int
    errors: tuple[float, float]
    """Mean distance from the reviewer's landmarks, in distances between the eyes: before, after."""
    f1: tuple[float, float]
    """Of the blinks found before and after, by the reviewed ones; NaN where none was reviewed, or
    where the recording's times were given."""


@dataclass(frozen=True)
class LearnedModel:
    """A refined model, the training set of all reviewed frames, and the gain."""

    path: Path
    faces: Path
    frames: int
    gains: tuple[SessionGain, ...]

    @property
    def mean_errors(self) -> tuple[float, float]:
        return _means([gain.errors for gain in self.gains])

    @property
    def mean_f1(self) -> tuple[float, float]:
        """The mean over the sessions with a known one, NaN without any."""
        return _means([gain.f1 for gain in self.gains if np.isfinite(gain.f1).all()])


def _means(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    before, after = np.mean(pairs or [(math.nan, math.nan)], axis=0).tolist()
    return before, after


def learn_from_reviews(
    places: Sequence[Path],
    landmarks: Path,
    output: Path,
    *,
    detector: Path | None = None,
    rounds: int = 3,
    progress: Progress = no_progress,
) -> LearnedModel:
    """Refine a model with the frames that reviewers chose, and measure the gain.

    Each session is left out once: a model refined with the frames of all others is measured on its
    frames, and finds the blinks in its recording again. `output` is refined with all of them; its
    training set, ``OUTPUT-frames.xml``, serves rounds of a pool as well.
    """
    faces = output.with_name(f"{output.stem}-frames.xml")
    for target in (output, faces):
        if target.exists():
            raise InvalidInputError(f"{target}: already exists; give another name")
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="poolctl-learn-")))
        reviews = [
            stack.enter_context(open_review(place, landmarks=landmarks, detector=detector))
            for place in places
        ]
        chosen = [review for review in reviews if review.state.frames]
        if len(chosen) < 2:
            raise InvalidInputError(
                f"found {len(chosen)} sessions with frames chosen for training, expected at least "
                "2, for each is left out once to measure the gain; choose frames in 'poolctl blink "
                "review' (key T)"
            )
        folder = faces.with_suffix("")
        sets = []
        for number, review in enumerate(chosen, 1):
            written = export_training_set(review, folder / f"session-{number}.xml")
            sets.append(read_imglab_xml(written.path))
        gains = []
        for number, review in enumerate(chosen):
            report = part_of(progress, number / (len(chosen) + 1), (number + 1) / (len(chosen) + 1))
            others = [dataset for dataset in sets if dataset is not sets[number]]
            model = temporary / f"without-{number + 1}.dat"
            refine_with(landmarks, others, model, rounds, part_of(report, 0.0, 0.5))
            report = part_of(report, 0.5, 1.0)
            gains.append(_gain(review, sets[number], landmarks, model, detector, report))
        last = part_of(progress, len(chosen) / (len(chosen) + 1), 1.0)
        refine_with(landmarks, sets, output, rounds, last)
    write_imglab_xml(_joined(sets, faces), faces)
    return LearnedModel(output, faces, sum(len(one.images) for one in sets), tuple(gains))


def refine_with(
    base_path: Path, sets: Sequence[FaceDataset], output: Path, rounds: int, progress: Progress
) -> None:
    """Refine a model with the frames of reviews, all in one place."""
    base, settings = read_base(base_path), RefitSettings(min_faces=1)
    site = load_site(
        _joined(sets, output.with_suffix(".xml")),
        base.part_count,
        initial_shape=base.initial_shape,
        margin=CROP_MARGIN + settings.jitter,
    )
    plan = RefinementPlan(settings, rounds)
    refine_sites(base_path, {"reviews": site}, output, plan, base=base, progress=progress)


def _joined(sets: Sequence[FaceDataset], path: Path) -> FaceDataset:
    images = tuple(image for dataset in sets for image in dataset.images)
    return FaceDataset(path, "Reviewed frames", "Frames chosen and corrected in reviews", images)


def _gain(  # noqa: PLR0917
    review: ReviewSession,
    frames: FaceDataset,
    before: Path,
    after: Path,
    detector: Path | None,
    progress: Progress,
) -> SessionGain:
    error, new_error = (
        evaluate_model(model, frames).metrics["mean_error"] for model in (before, after)
    )
    f1 = (math.nan, math.nan)
    result, video = review.result, review.video
    reviewed = any(not event.awaits_review for event in review.state.events)
    times_given = were_given(str(result.session.recording.get("times_from", "")))
    if video is not None and reviewed and not times_given:
        settings = replace(result.session.settings, labels=SessionLabels(), outputs=frozenset())
        truth = [(blink.onset_s, blink.offset_s) for blink in reviewed_blinks(result, review.state)]
        with tempfile.TemporaryDirectory(prefix="poolctl-learn-") as folder:
            run_blink_analysis(
                video.path, out_dir=folder, landmarks=after, detector=detector, settings=settings,
                progress=progress,
            )  # fmt: skip
            f1 = (f1_of(result.session, truth), f1_of(read_session(Path(folder)), truth))
    return SessionGain(result.folder, len(frames.images), (error, new_error), f1)


def f1_of(session: AnalysedSession, truth: Sequence[tuple[float, float]]) -> float:
    """Return F1 of a session's blinks; they are paired one to one, with the largest overlaps."""
    if not session.blinks or not truth:
        return float(not session.blinks and not truth)
    onsets_s, offsets_s = np.array([(b.onset_s, b.offset_s) for b in session.blinks]).T[..., None]
    true_onsets_s, true_offsets_s = np.array(truth).T
    shared_s = np.minimum(offsets_s, true_offsets_s) - np.maximum(onsets_s, true_onsets_s)
    covered_s = np.maximum(offsets_s, true_offsets_s) - np.minimum(onsets_s, true_onsets_s)
    overlap = np.maximum(shared_s / covered_s, 0.0)
    # Here, as help pages are read without the extra.
    from scipy.optimize import linear_sum_assignment

    pairs = overlap[linear_sum_assignment(overlap, maximize=True)]
    return float(2.0 * (pairs > LEAST_OVERLAP).sum() / sum(overlap.shape))
