"""Normalisers of landmark errors."""

import numpy as np
import pytest

from site_agent.errors import EvaluationError
from site_agent.evaluation.landmark_scores import normaliser_for

PADDED = tuple(f"{i:02d}" for i in range(68))
BARE = tuple(sorted(str(i) for i in range(68)))
FROM_ONE = tuple(sorted(str(i) for i in range(1, 69)))
BOX = (10, 20, 109, 219)


def points_of(names: tuple[str, ...], first: int = 0) -> np.ndarray:
    """Landmark number n at (n, 2 n)."""
    numbers = np.array([int(name) - first for name in names], dtype=np.float64)
    return np.stack([numbers, 2 * numbers], axis=1)


@pytest.mark.parametrize(("names", "first"), [(PADDED, 0), (BARE, 0), (FROM_ONE, 1)])
def test_eye_centres_are_found_by_the_names_of_the_landmarks(
    names: tuple[str, ...], first: int
) -> None:
    chosen = normaliser_for(names)
    assert chosen.name == "inter-ocular"
    assert chosen.scale(points_of(names, first), BOX) == pytest.approx(6 * 5**0.5)
    outer = normaliser_for(names, "outer-corners")
    assert outer.scale(points_of(names, first), BOX) == pytest.approx(9 * 5**0.5)


def test_excerpts_of_the_68_keep_their_eyes() -> None:
    names = PADDED[36:48]
    assert normaliser_for(names).scale(points_of(names), BOX) == pytest.approx(6 * 5**0.5)


@pytest.mark.parametrize(
    "names",
    [PADDED[:5], tuple(map(str, range(51))), tuple(map(str, range(194))), ("left", "right")],
)
def test_other_schemes_are_divided_by_the_box(names: tuple[str, ...]) -> None:
    chosen = normaliser_for(names)
    assert chosen.scale(np.zeros((len(names), 2)), BOX) == pytest.approx(20000**0.5)
    with pytest.raises(EvaluationError, match="68-landmark scheme"):
        normaliser_for(names, "inter-ocular")


def test_unknown_names_are_refused_and_pixels_can_be_asked_for() -> None:
    assert normaliser_for(PADDED, "none").scale(points_of(PADDED), BOX) == 1
    with pytest.raises(EvaluationError, match="expected inter-ocular, outer-corners, box, none"):
        normaliser_for(PADDED, "pupils")
