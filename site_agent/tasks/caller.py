"""The person or program that asked for a task."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from site_agent.pool.client import PoolClient

Report = Callable[[float | None, str], None]
"""Reports how far the work is: a fraction from 0 to 1 (None: not known) and a few words."""


class Caller(Protocol):
    """Receives remarks and progress, and has a login to the pool."""

    def note(self, message: str) -> None:
        """Receive a remark."""

    def warn(self, message: str) -> None:
        """Receive a warning."""

    def progress(self, title: str) -> AbstractContextManager[Report]:
        """Follow the progress of the work in the block."""

    def pool(self) -> PoolClient:
        """Return a client of the pool."""


@dataclass
class NotedCaller:
    """A caller that keeps the remarks, for programs and pages."""

    profile: str = ""
    """The login; the active one if empty."""
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    report: Report = lambda _fraction, _text: None

    def note(self, message: str) -> None:
        """Keep a remark."""
        self.notes.append(message)

    def warn(self, message: str) -> None:
        """Keep a warning."""
        self.warnings.append(message)

    @contextmanager
    def progress(self, title: str) -> Iterator[Report]:
        """Pass the progress on, beginning with the title."""
        self.report(None, title)
        yield self.report

    def pool(self) -> PoolClient:
        """Return a client of the pool that profile and environment name."""
        return PoolClient(profile=self.profile or None)
