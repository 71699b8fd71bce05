"""Studies of cross-encoders: what gaze heads from few shots are worth, on whom no site trained."""

from __future__ import annotations

from site_agent.studies.cross_encoder.conducting import conduct_cross_encoder_study
from site_agent.studies.cross_encoder.settings import (
    CrossEncoderStudySettings,
    Run,
    make_cross_encoder_settings,
    plan_runs,
)

__all__ = [
    "CrossEncoderStudySettings",
    "Run",
    "conduct_cross_encoder_study",
    "make_cross_encoder_settings",
    "plan_runs",
]
