"""Rounds of several sites on one machine: the way to choose a method."""

from __future__ import annotations

from site_agent.federated.engines.simulator.data import DividedData, Holdout, divide
from site_agent.federated.engines.simulator.engine import simulate, simulator_workers
from site_agent.federated.engines.simulator.folder import RunFolder, open_run
from site_agent.federated.engines.simulator.history import History, Round
from site_agent.federated.engines.simulator.scoring import PersonErrors, score_constant

__all__ = [
    "DividedData",
    "History",
    "Holdout",
    "PersonErrors",
    "Round",
    "RunFolder",
    "divide",
    "open_run",
    "score_constant",
    "simulate",
    "simulator_workers",
]
