"""Studies of gaze networks: training alone, in one place, and federated, and hostile sites."""

from __future__ import annotations

from site_agent.studies.gaze.conducting import conduct_gaze_study, look_at_gaze_study
from site_agent.studies.gaze.protocol import Run
from site_agent.studies.gaze.settings import PRESETS, GazeStudySettings, for_tuning, make_settings

__all__ = [
    "PRESETS",
    "GazeStudySettings",
    "Run",
    "conduct_gaze_study",
    "for_tuning",
    "look_at_gaze_study",
    "make_settings",
]
