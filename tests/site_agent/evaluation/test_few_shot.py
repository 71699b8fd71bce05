"""Linear heads from few shots, and principal components."""

import numpy as np
import pytest

from site_agent.evaluation.gaze import (
    PENALTIES,
    draw_shots,
    few_shot_error,
    find_components,
    fit_head,
    split_shots,
)


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
