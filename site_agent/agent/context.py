"""What every part of a cycle works with."""

from __future__ import annotations

from dataclasses import dataclass

from site_agent.agent.journal import Journal
from site_agent.agent.workspace import AgentState, Workspace
from site_agent.pool.client import PoolClient


@dataclass(frozen=True)
class CycleContext:
    """One cycle of one agent.

    Attributes
    ----------
    threads : int
        0: as many as processors.
    """

    pool: PoolClient
    site: str
    workspace: Workspace
    state: AgentState
    journal: Journal
    threads: int = 0

    def save(self) -> None:
        """Have the workspace remember what was found out so far."""
        self.workspace.save(self.state)
