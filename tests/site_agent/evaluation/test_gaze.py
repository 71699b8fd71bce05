"""Scores of gaze networks: against plain loops, and in files."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aggregators.formats import file_digest, write_model
from site_agent.datasets.gaze.records import (
    GazeSamples,
    angular_errors_deg,
    join_samples,
    person_digests,
    sample_marks,
)
from site_agent.errors import EvaluationError
from site_agent.evaluation.gaze import evaluate_networks, score_gaze
from site_agent.evaluation.report import ScoredModel, write_report
from site_agent.networks.modules import new_network
from site_agent.training.overlap import gaze_overlap
from site_agent.training_record import DataSummary, TrainingRecord, metadata_path
from tests.site_agent.datasets.gaze.made import samples_of


@pytest.fixture
def samples() -> GazeSamples:
    return join_samples([samples_of("a", 24, 1), samples_of("b", 10, 2), samples_of("c", 40, 3)])


def test_scores_are_those_of_plain_means(samples: GazeSamples) -> None:
    predicted = samples.gaze + np.random.default_rng(0).normal(0, 0.05, samples.gaze.shape)
    scores = score_gaze(predicted, samples, resamples=50)
    errors = angular_errors_deg(predicted, samples.gaze)
    means = [float(errors[samples.person == name].mean()) for name in "abc"]
    assert [person.mean_error_deg for person in scores.persons] == pytest.approx(means)
    assert scores.mean_error_deg == pytest.approx(errors.mean())
    assert scores.median_error_deg == pytest.approx(np.median(errors))
    metrics = scores.metrics
    assert metrics["worst_person_error_deg"] == pytest.approx(max(means))
    assert metrics["person_range_deg"] == pytest.approx(max(means) - min(means))
    assert metrics["person_sd_deg"] == pytest.approx(np.std(means, ddof=1))
    low, high = scores.intervals["mean_error_deg"]
    # Whole persons are drawn: a mean lies between the persons' means, never outside.
    assert min(means) <= low <= scores.mean_error_deg <= high <= max(means) + 1e-9


def test_the_constant_predictor_scores_as_the_constant(samples: GazeSamples) -> None:
    constant = np.broadcast_to(samples.gaze.mean(axis=0), samples.gaze.shape)
    scores = score_gaze(constant, samples)
    assert scores.mean_error_deg == pytest.approx(scores.constant_error_deg)
    assert score_gaze(samples.gaze, samples).mean_error_deg == 0


def test_one_person_is_resampled_by_sessions() -> None:
    one = samples_of("a", 24)
    predicted = one.gaze + np.where(one.session == "s1", 0.1, 0.0)[:, None]
    low, high = score_gaze(predicted, one).intervals["mean_error_deg"]
    assert low == 0
    assert high > 5
    same = score_gaze(predicted, replace(one, session=np.full(24, "s0")))
    assert same.intervals == {}


def test_a_report_has_tables_and_plots(samples: GazeSamples, tmp_path: Path) -> None:
    paths = []
    for seed in range(2):
        paths.append(tmp_path / f"{seed}.safetensors")
        write_model(new_network("gaze-lenet", seed), paths[-1])
    scores = evaluate_networks(paths, samples, resamples=20)
    models = [ScoredModel(p.name, "ab", score) for p, score in zip(paths, scores, strict=True)]
    written = write_report(tmp_path / "out", models, dataset_name="eyes", dataset_digest="cd" * 32)
    assert {path.name for path in written} == {
        *("scores.json", "scores.csv", "scores.md"),
        *("persons.csv", "persons.png"),
    }
    assert len((tmp_path / "out" / "persons.csv").read_text().splitlines()) == 7
    for name in ("persons.png",):
        with Image.open(tmp_path / "out" / name) as picture:
            assert picture.width > 800
    with pytest.raises(EvaluationError, match="no samples"):
        evaluate_networks(paths, samples[:0])


def test_a_test_knows_what_a_network_was_trained_on(samples: GazeSamples, tmp_path: Path) -> None:
    network = tmp_path / "a.safetensors"
    write_model(new_network("gaze-lenet"), network)
    digests = person_digests(samples)
    assert gaze_overlap(network, samples, digests) is None
    session = samples.session == "s0"
    trained = samples[session & (samples.person == "a")]
    _write_record(network, trained, {"a": digests["a"]})
    rest = samples[~session]
    other = gaze_overlap(network, rest, digests)
    assert other is not None
    assert (other.samples, other.persons) == (0, ("a",))
    assert "other sessions of a:" in other.words
    same = gaze_overlap(network, samples, digests)
    assert same is not None
    assert same.samples == len(trained)
    assert f"{len(trained)} of the {len(samples)} samples" in same.words
    strangers = samples[samples.person == "c"]
    assert gaze_overlap(network, strangers, person_digests(strangers)) is None


def _write_record(network: Path, samples: GazeSamples, digests: dict[str, str]) -> None:
    record = TrainingRecord(
        kind="network",
        model_file=network.name,
        model_digest=file_digest(network),
        model_bytes=1,
        data=DataSummary("00", len(samples), persons=1, image_marks=sample_marks(samples)),
        settings={},
        details={"person_digests": sorted(digests.values())},
        training_scores={},
        versions={},
        started_utc="",
        duration_s=0.0,
        peak_memory_bytes=0,
    )
    metadata_path(network).write_text(json.dumps(record.to_dict()))
