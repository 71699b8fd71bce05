"""Scores of gaze networks, heads from few shots, and one network for 30 persons."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregators.formats import file_digest, write_model
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import (
    GazeDataset,
    GazeSamples,
    angular_errors_deg,
    held_out_sessions,
    person_digests,
    sample_marks,
)
from site_agent.datasets.synthetic.eye_patches.dataset import write_eye_dataset
from site_agent.errors import EvaluationError
from site_agent.evaluation import bootstrap_intervals
from site_agent.evaluation.gaze import (
    PENALTIES,
    GazeScores,
    convention_doubts,
    draw_shots,
    evaluate_networks,
    few_shot_error,
    find_components,
    fit_head,
    score_gaze,
    split_shots,
)
from site_agent.evaluation.report import ScoredModel, write_report
from site_agent.networks.modules import new_network
from site_agent.training.gaze import train_gaze
from site_agent.training.network_settings import GazeSettings
from site_agent.training.overlap import gaze_overlap
from site_agent.training_record import DataSummary, TrainingRecord, metadata_path
from tests.site_agent.datasets.gaze.made import samples_of


@pytest.fixture
def samples() -> GazeSamples:
    return GazeSamples.join(
        [samples_of("a", 24, 1), samples_of("b", 10, 2), samples_of("c", 40, 3)]
    )


@pytest.mark.parametrize(
    ("turn", "named"),
    [
        ([[1, 0], [0, 1]], []),
        ([[-1, 0], [0, 1]], ["yaw falls as"]),
        ([[1, 0], [0, -1]], ["pitch falls as"]),
        ([[0, 1], [1, 0]], ["yaw follows the pitch"]),
        ([[0, 0], [0, 0]], []),
    ],
)
def test_labels_of_another_convention_are_doubted(turn: list[list[int]], named: list[str]) -> None:
    samples = samples_of("a", 200, 1)
    rng = np.random.default_rng(0)
    gaze = rng.normal(0, (0.2, 0.1), samples.gaze.shape)
    predicted = 0.7 * gaze + rng.normal(0, 0.08, gaze.shape)
    doubts = list(convention_doubts(predicted, replace(samples, gaze=gaze @ np.array(turn))))
    eyes = len(np.unique(samples.eye))
    assert len(doubts) == eyes * len(named)
    assert all(named[0] in doubt for doubt in doubts)


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
    one = replace(samples_of("a", 24), session=np.repeat(["s0", "s1", "s2"], 8))
    predicted = one.gaze + np.where(one.session == "s1", 0.1, 0.0)[:, None]
    low, high = score_gaze(predicted, one).intervals["mean_error_deg"]
    assert low == 0
    assert high > 3
    same = score_gaze(predicted, replace(one, session=np.full(24, "s0")))
    assert same.intervals == {}


def test_a_report_has_tables(samples: GazeSamples, tmp_path: Path) -> None:
    paths = []
    for seed in range(2):
        paths.append(tmp_path / f"{seed}.safetensors")
        write_model(new_network("gaze-lenet", seed), paths[-1])
    scores = evaluate_networks(paths, samples, resamples=20)
    models = [ScoredModel(p.name, "ab", score) for p, score in zip(paths, scores, strict=True)]
    written = write_report(tmp_path / "out", models, dataset_name="eyes", dataset_digest="cd" * 32)
    assert {path.name for path in written} == {"scores.json", "scores.csv"}
    [item, _] = json.loads((tmp_path / "out" / "scores.json").read_text())["items"]
    assert len(item["persons"]) == 3
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
    assert (other.images, other.persons) == (0, ("a",))
    assert "other sessions of a:" in other.words
    same = gaze_overlap(network, samples, digests)
    assert same is not None
    assert same.images == len(trained)
    assert f"{len(trained)} of the {len(samples)} images" in same.words
    strangers = samples[samples.person == "c"]
    assert gaze_overlap(network, strangers, person_digests(strangers)) is None


def _write_record(network: Path, samples: GazeSamples, digests: dict[str, str]) -> None:
    record = TrainingRecord(
        kind="network",
        model_file=network.name,
        model_digest=file_digest(network),
        model_bytes=1,
        data=DataSummary("00", len(samples), persons=1, image_marks=sample_marks(samples.patches)),
        settings={},
        details={"person_digests": sorted(digests.values())},
        training_scores={},
        versions={},
        started_utc="",
        duration_s=0.0,
        peak_memory_bytes=0,
    )
    metadata_path(network).write_text(json.dumps(record.to_dict()))


def test_a_linear_law_is_found_whatever_the_scale_of_features() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 5)) * (1, 10, 0.1, 3, 0) + (0, 5, 0, -2, 7)
    law = rng.normal(size=(5, 2)) * 0.05 / np.array([1, 10, 0.1, 3, 1])[:, None]
    gaze = features @ law + (0.1, -0.2)
    head = fit_head(features[:100], gaze[:100])
    np.testing.assert_allclose(head(features[100:]), gaze[100:], atol=1e-4)
    assert few_shot_error(features[:100], gaze[:100], features[100:], gaze[100:]) < 0.01


@pytest.mark.parametrize("count", [1, 2, 30])
def test_without_features_or_with_two_shots_the_answer_is_their_mean(count: int) -> None:
    rng = np.random.default_rng(1)
    gaze = rng.normal(size=(count, 2))
    features = rng.normal(size=(count, 0 if count > 2 else 4))
    predicted = fit_head(features, gaze)(np.ones((3, features.shape[1])))
    np.testing.assert_allclose(predicted, np.tile(gaze.mean(axis=0), (3, 1)))


def test_the_penalty_is_that_of_the_smallest_leave_one_out_error() -> None:
    rng = np.random.default_rng(2)
    features = rng.normal(size=(14, 9))
    gaze = features[:, :2] * 0.1 + rng.normal(size=(14, 2)) * 0.1
    scaled = (features - features.mean(axis=0)) / features.std(axis=0)

    def slopes(x: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
        return np.linalg.solve(x.T @ x + penalty * np.eye(9), x.T @ y)

    def error(penalty: float) -> float:
        total = 0.0
        for left in range(14):
            keep = np.arange(14) != left
            # The scale stays that of all shots; the intercept is of the others.
            x, y = scaled[keep], gaze[keep]
            fitted = slopes(x - x.mean(axis=0), y - y.mean(axis=0), penalty)
            predicted = (scaled[left] - x.mean(axis=0)) @ fitted + y.mean(axis=0)
            total += float(np.square(predicted - gaze[left]).sum())
        return total

    best = min((14 * penalty for penalty in PENALTIES), key=error)
    expected = scaled @ slopes(scaled, gaze - gaze.mean(axis=0), best) + gaze.mean(axis=0)
    np.testing.assert_allclose(fit_head(features, gaze)(features), expected, atol=1e-9)


def test_draws_are_nested_and_halves_apart() -> None:
    assert draw_shots(50, 5, 3).tolist() == draw_shots(50, 20, 3)[:5].tolist()
    assert draw_shots(50, 20, 3).tolist() != draw_shots(50, 20, 4).tolist()
    shots, test = split_shots(300, 100)
    assert (len(shots), shots[-1], test[0], test[-1]) == (100, 149, 150, 299)
    assert [part.tolist() for part in split_shots(3, 100)] == [[0], [1, 2]]


@pytest.mark.parametrize("count", [20, 90])
def test_components_are_those_of_the_singular_value_decomposition(count: int) -> None:
    patches = np.random.default_rng(3).normal(size=(count, 40)) * np.linspace(3, 1, 40)
    components = find_components(patches, 4)
    _, _, right = np.linalg.svd(patches - patches.mean(axis=0), full_matrices=False)
    np.testing.assert_allclose(np.abs(components.directions @ right[:4].T), np.eye(4), atol=1e-6)
    assert components(patches).shape == (count, 4)
    np.testing.assert_allclose(components(patches).mean(axis=0), 0, atol=1e-9)


def test_the_penalty_is_chosen_by_sessions_as_those_of_a_test_are_others() -> None:
    """Features know the session, and gaze differs between sessions: by shots, that is learned."""
    draw = np.random.default_rng(0)
    errors: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(8):
        session = np.repeat(np.arange(10), 20)
        marks, offsets = draw.normal(size=(10, 5)), 0.2 * draw.normal(size=(10, 2))
        signal = draw.normal(size=(200, 2))
        features = np.concatenate([signal, marks[session] + 0.3 * draw.normal(size=(200, 5))], 1)
        gaze = 0.05 * signal + offsets[session]
        shots, test = slice(0, 100), slice(100, 200)
        for by_session, degrees in errors.items():
            names = session[shots].astype(str) if by_session else None
            degrees.append(
                few_shot_error(features[shots], gaze[shots], features[test], gaze[test], names)
            )
    assert np.mean(errors[True]) < 0.95 * np.mean(errors[False])


@pytest.mark.slow
def test_a_network_is_within_three_degrees_on_held_out_sessions(tmp_path: Path) -> None:
    drawn = write_eye_dataset(tmp_path / "eyes")
    assert drawn.counts["samples"] > 30_000
    scores, ridge_deg, constant_deg = measure(open_gaze(drawn.path), tmp_path, epochs=5)
    assert len(scores.persons) == 30
    assert scores.mean_error_deg <= 3.0
    assert ridge_deg >= 1.3 * scores.mean_error_deg
    assert constant_deg >= 2 * ridge_deg


def measure(dataset: GazeDataset, folder: Path, epochs: int) -> tuple[GazeScores, float, float]:
    """Return the network's scores, and the mean errors of ridge regression and constant."""
    samples = dataset.read()
    held = held_out_sessions(samples)
    train, test = samples[~held], samples[held]
    # The network sees nothing of the test, not even for when to stop.
    seen = GazeDataset(
        dataset.path, "folder", dataset.persons, lambda name: train[train.person == name]
    )
    settings = GazeSettings(epochs=epochs, validation=0.0, device="cpu", threads=1)
    network = train_gaze(seen, folder / "all.safetensors", settings).model_path
    [scores] = evaluate_networks([network], test)
    constant = np.broadcast_to(train.gaze.mean(axis=0), test.gaze.shape)
    constant_deg = float(angular_errors_deg(constant, test.gaze).mean())
    return scores, _ridge_error_deg(train, test), constant_deg


def _ridge_error_deg(train: GazeSamples, test: GazeSamples) -> float:
    inputs, gaze = _features(train), train.gaze
    products, targets = inputs.T @ inputs, inputs.T @ gaze
    tried = _features(test)
    errors = []
    for penalty in (1.0, 10.0, 100.0, 1000.0):
        weights = np.linalg.solve(products + penalty * np.eye(len(products)), targets)
        errors.append(float(angular_errors_deg(tried @ weights, test.gaze).mean()))
    return min(errors)


def _features(samples: GazeSamples) -> np.ndarray:
    patches = samples.patches.reshape(len(samples), -1).astype(np.float64)
    patches -= patches.mean(axis=1, keepdims=True)
    patches /= np.maximum(patches.std(axis=1, keepdims=True), 4.0)
    return np.column_stack([patches, samples.head, np.ones(len(samples))])


def test_too_few_images_and_images_all_alike_have_no_interval() -> None:
    def drawn(scores: list[float]) -> dict[str, tuple[float, float]]:
        values = np.array(scores)
        return bootstrap_intervals(
            lambda times: {"score": float((times * values).sum() / times.sum())},
            len(values), resamples=100, seed=0,
        )  # fmt: skip

    assert drawn([1.0, 3.0]) == drawn([0.7] * 5) == {}
    assert drawn([1.0, 2.0, 4.0])["score"][0] < drawn([1.0, 2.0, 4.0])["score"][1]
