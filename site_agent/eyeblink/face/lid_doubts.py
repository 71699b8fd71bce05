"""Whether a landmark model follows the lids, and what to do where it does not."""

from __future__ import annotations

from pathlib import Path

from aggregators import read_recipe, recipe_path
from aggregators.errors import AggregatorError
from site_agent.datasets.eye_aspect_ratio import EYE_POINTS
from site_agent.eyeblink.openness.signal import Calibration
from site_agent.training_record import read_training_metadata

HALF_OPEN_SHARE = 0.5
"""Landmarks that follow the lids put the closed eye at 0.05 to 0.26 of the open one, models that
keep the lids half open at 0.6 (seven webcam recordings with two models, four with another)."""

_AVERAGING = ("wba-cascade", "wba-final")
_ADVICE = (
    "Eye models (poolctl train ert --for blinks), merged and then refined in rounds (poolctl "
    "rounds, or poolctl refine), find most blinks"
)


def model_doubts(landmarks: Path, address: str | None, part_count: int) -> tuple[str, ...]:
    """Return a warning if what is known of a landmark model speaks against it for blinks.

    Known are the number of its landmarks, and what its recipe or its training record beside it
    says.
    """
    doubt = _training_doubt(landmarks) or _merge_doubt(landmarks)
    if not doubt and part_count != EYE_POINTS and not recipe_path(landmarks).is_file():
        doubt = "places all landmarks of the face, which leaves the lids less exact"
    return (f"{address or landmarks.name} {doubt}. {_ADVICE}",) if doubt else ()


def range_doubts(calibration: Calibration) -> list[str]:
    """Return a warning if the eyes of a session were never seen more than about half closed."""
    if not calibration.reliable or calibration.closed_ear < HALF_OPEN_SHARE * calibration.open_ear:
        return []
    return [
        f"the eye aspect ratio falls from {calibration.open_ear:.2f} to "
        f"{calibration.closed_ear:.2f} only: either no eye was closed fully, or the landmark model "
        f"keeps the lids half open and misses blinks. {_ADVICE}"
    ]


def _training_doubt(landmarks: Path) -> str:
    record = read_training_metadata(landmarks) or {}
    if record.get("details", {}).get("closed_eyes") != 0:
        return ""
    return "was trained on faces whose eyes are all open, so it may keep closed lids half open"


def _merge_doubt(landmarks: Path) -> str:
    path = recipe_path(landmarks)
    try:
        method = read_recipe(path).method.name if path.is_file() else ""
    except (AggregatorError, OSError):
        return ""
    if method not in _AVERAGING:
        return ""
    return f"is a merge ({method}) that was not refined, and averaging keeps closed lids half open"
