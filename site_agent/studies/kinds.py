"""The kinds of studies on gaze: their runs, samples, work and tables."""

from dataclasses import replace
from typing import Any

from site_agent.studies.eyes import StudyKind, spread_over_sessions
from site_agent.studies.gaze import one_run as gaze_run
from site_agent.studies.gaze import protocol as gaze
from site_agent.studies.gaze import report as gaze_report

_SHARED = (
    "architecture", "cohort", "learning_rate_decay", "noise_sd", "noise_unit", "hostile_sites",
)  # fmt: skip


def _gaze_depends(run: Any, settings: Any) -> dict[str, Any]:
    return {
        **{name: getattr(settings, name) for name in _SHARED},
        "rounds": gaze_run.rounds_of(run, settings),
        "secure": gaze_run.is_secure(run, settings),
    }


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
