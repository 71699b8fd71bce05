"""The kinds of studies on eyes: their runs, samples, work and tables."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from site_agent.datasets.gaze.records import GazeSamples, held_out_sessions, require_both_eyes
from site_agent.errors import InvalidInputError
from site_agent.studies import cross_encoder, split
from site_agent.studies.cross_encoder import one_run as cross_encoder_run
from site_agent.studies.eyes import StudyKind, StudySamples, spread_over_sessions
from site_agent.studies.gaze import one_run as gaze_run
from site_agent.studies.gaze import protocol as gaze
from site_agent.studies.gaze import report as gaze_report
from site_agent.studies.split import one_run as split_run

# More of these change nothing of the runs that are done.
_EXTENDING = ("methods", "seeds", "first_seed", "folds", "left_out", "drawn")
_SHARED = (
    "architecture", "cohort", "learning_rate_decay", "noise_sd", "noise_unit", "hostile_sites",
)  # fmt: skip


def _all_but(settings: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in asdict(settings).items() if name not in names}


def _gaze_depends(run: Any, settings: Any) -> dict[str, Any]:
    return {
        **{name: getattr(settings, name) for name in _SHARED},
        "rounds": gaze_run.rounds_of(run, settings),
        "secure": gaze_run.is_secure(run, settings),
    }


def _split_depends(run: Any, settings: Any) -> dict[str, Any]:
    attack = () if run.method == split.INVERSION else ("levels", "passes")
    return _all_but(settings, (*_EXTENDING, *attack))


def _require_sessions(runs: Sequence[Any], samples: StudySamples, settings: Any) -> None:
    """Refuse to leave out persons that are not in the data."""
    least = min(settings.shots)
    for name in dict.fromkeys(name for run in runs for name in run.test):
        held = held_out_sessions(samples[name], settings.test_share)
        if not held.any() or (~held).sum() < least:
            raise InvalidInputError(
                f"person {name} is left out, and has {np.unique(samples[name].session).size} "
                f"sessions with {len(held)} samples; expected at least 2 sessions, and {least} "
                "samples outside the sessions that are tested"
            )


def _of_both_eyes(_settings: Any, samples: GazeSamples) -> GazeSamples:
    return require_both_eyes(samples, "the data")


GAZE = StudyKind(
    "gaze",
    gaze.plan_runs,
    lambda settings, samples: spread_over_sessions(samples, settings.most_frames),
    _gaze_depends,
    gaze_run.do_run,
    gaze_report.write_report,
    ("protocol", "method", "group", "seed"),
)
GAZE_TUNING = replace(GAZE, plan=gaze.plan_tuning, report=gaze_report.write_tuning)
SPLIT = StudyKind(
    "split",
    split.plan_runs,
    lambda settings, samples: spread_over_sessions(samples, settings.images),
    _split_depends,
    split_run.do_run,
    split.write_report,
    ("method", "seed", "test"),
)
CROSS_ENCODER = StudyKind(
    "cross-encoder",
    cross_encoder.plan_runs,
    _of_both_eyes,
    lambda _run, settings: _all_but(settings, _EXTENDING),
    cross_encoder_run.do_run,
    cross_encoder.write_report,
    ("method", "seed", "test"),
    both_eyes=True,
    check=_require_sessions,
)
