"""What becomes of the sessions of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from site_agent.eyeblink.study.record import SessionRecord

State = Literal["done", "failed", "skipped", "pending"]


@dataclass(frozen=True)
class SessionOutcome:
    """What became of a session.

    State `skipped`: finished before, and left as it is; `pending`: the batch was ended before.
    """

    session: str
    state: State
    reason: str = ""
    took_s: float = 0.0
    record: SessionRecord | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.record.warnings if self.record else ()


@dataclass(frozen=True)
class BatchResult:
    """What became of all sessions, in the order of the batch."""

    study: Path
    outcomes: tuple[SessionOutcome, ...]
    workers: int

    def count(self, state: State) -> int:
        return sum(outcome.state == state for outcome in self.outcomes)

    @property
    def records(self) -> tuple[SessionRecord, ...]:
        return tuple(outcome.record for outcome in self.outcomes if outcome.record is not None)
