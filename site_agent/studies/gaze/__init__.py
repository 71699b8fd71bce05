"""Studies of gaze networks: training alone, in one place, and federated, and hostile sites."""

from __future__ import annotations

from site_agent.studies.gaze.conducting import conduct_gaze_study, look_at_gaze_study

__all__ = ["conduct_gaze_study", "look_at_gaze_study"]
