"""The study of personalised rounds: a network of one's own for each person, or one for all."""

from __future__ import annotations

from site_agent.studies.egocentric.conducting import conduct_egocentric_study
from site_agent.studies.egocentric.protocol import (
    QUICK,
    EgocentricStudySettings,
    plan_tuning,
    worlds_of,
)

__all__ = [
    "QUICK",
    "EgocentricStudySettings",
    "conduct_egocentric_study",
    "plan_tuning",
    "worlds_of",
]
