"""The site agent: it keeps merged models of a site as good as it can, and takes part in rounds.

Subscribe, pull, merge, evaluate, push: one cycle after the other, or one for cron. What leaves
the site are models, their scores, and contributions to rounds; never images.
"""

from __future__ import annotations

from site_agent.agent.agent import CycleReport, Stopped, run_agent
from site_agent.agent.config import AgentConfig, MergeGoal, RoundsConfig, read_config
from site_agent.agent.example import EXAMPLE_CONFIG
from site_agent.agent.journal import EVENTS, Journal
from site_agent.agent.planning import AgentPlan, plan_cycle

__all__ = [
    "EVENTS",
    "EXAMPLE_CONFIG",
    "AgentConfig",
    "AgentPlan",
    "CycleReport",
    "Journal",
    "MergeGoal",
    "RoundsConfig",
    "Stopped",
    "plan_cycle",
    "read_config",
    "run_agent",
]
