"""Rounds of several sites on one machine: the way to choose a method."""

from site_agent.federated.engines.simulator.engine import simulate, simulator_workers
from site_agent.federated.engines.simulator.folder import (
    DividedData,
    History,
    Round,
    RunFolder,
    divide,
    open_run,
)

__all__ = [
    "DividedData",
    "History",
    "Round",
    "RunFolder",
    "divide",
    "open_run",
    "simulate",
    "simulator_workers",
]
