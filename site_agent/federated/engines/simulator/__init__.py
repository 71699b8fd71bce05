"""Rounds on one machine, with a process for each site: the way to choose a method."""

from __future__ import annotations

from site_agent.federated.engines.simulator.data import DividedData, Holdout, divide
from site_agent.federated.engines.simulator.engine import simulate
from site_agent.federated.engines.simulator.folder import RunFolder, open_run
from site_agent.federated.engines.simulator.history import History, Round
from site_agent.federated.engines.simulator.scoring import PersonErrors, score_constant
from site_agent.federated.engines.simulator.site_process import SiteProcesses

__all__ = [
    "DividedData",
    "History",
    "Holdout",
    "PersonErrors",
    "Round",
    "RunFolder",
    "SiteProcesses",
    "divide",
    "open_run",
    "score_constant",
    "simulate",
]
