"""How good the models of a quickstart are: on unseen persons, and in the drawn video."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from site_agent.quickstart.at_once import SharedProgress, run_two_at_once
from site_agent.quickstart.records import BlinkResult, Reporter, ScoredModel


def score_models(
    detectors: Mapping[Path, str],
    landmarks: Mapping[Path, str],
    test_dataset: Path,
    reporter: Reporter,
) -> tuple[tuple[ScoredModel, ...], tuple[ScoredModel, ...]]:
    """Score detectors and landmark models; the values of the mappings are how they were made."""
    from site_agent.datasets import read_imglab_xml
    from site_agent.evaluation import evaluate_detector, evaluate_landmarks

    dataset = read_imglab_xml(test_dataset)
    shares = SharedProgress(len(detectors) + len(landmarks), reporter.progress)
    jobs: list[Callable[[], ScoredModel]] = []

    def score_detector(path: Path, made_by: str, index: int) -> ScoredModel:
        scores = evaluate_detector(path, dataset, resamples=0, progress=shares.of(index))
        return ScoredModel(path.name, made_by, scores.recall, scores.precision, str(path))

    def score_landmarks(path: Path, made_by: str, index: int) -> ScoredModel:
        scores = evaluate_landmarks(
            path, dataset, resamples=0, workers=1, progress=shares.of(index)
        )
        return ScoredModel(
            path.name, made_by, scores.mean_error, scores.ear_range or 0.0, str(path)
        )

    for index, (path, made_by) in enumerate(detectors.items()):
        jobs.append(partial(score_detector, path, made_by, index))
    for index, (path, made_by) in enumerate(landmarks.items(), start=len(detectors)):
        jobs.append(partial(score_landmarks, path, made_by, index))
    scored = run_two_at_once(jobs)
    reporter.done(f"{len(scored)} models on {len(dataset.images)} pictures")
    return tuple(scored[: len(detectors)]), tuple(scored[len(detectors) :])


def compare_blinks(
    video: Path, detector: Path, landmarks: Path, out_dir: Path, reporter: Reporter
) -> BlinkResult:
    """Find the blinks of a drawn video, and compare them with the drawn ones."""
    from site_agent.eyeblink.blinks.matching import match_blinks
    from site_agent.eyeblink.pipeline import run_blink_analysis

    session = run_blink_analysis(
        video,
        detector=detector,
        landmarks=landmarks,
        out_dir=out_dir,
        progress=reporter.progress,
    )
    with session.files["blinks"].open(encoding="utf-8", newline="") as file:
        found = [row for row in csv.DictReader(file) if row["kind"] == "blink"]
    truth_file = video.with_name(f"{video.stem}_truth.json")
    truth = json.loads(truth_file.read_text(encoding="utf-8"))["blinks"]
    match = match_blinks(
        [(float(blink["onset_s"]), float(blink["offset_s"])) for blink in found],
        [(blink["onset_s"], blink["offset_s"]) for blink in truth],
    )
    reporter.done(f"{match.found} found, {match.true} drawn, {len(match.pairs)} of them matched")
    return BlinkResult(match.true, match.found, len(match.pairs))
