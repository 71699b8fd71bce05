"""Which step comes next, what waits for what, and what cannot be made any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from site_agent.studies.steps import Contribute, Merge, Score, Step, Train, title

State = Literal["kept", "done", "failed", "left out", "waiting", "running", "not needed"]

_ENDED: frozenset[State] = frozenset({"kept", "done", "failed", "left out", "not needed"})
_THERE: frozenset[State] = frozenset({"kept", "done"})


@dataclass
class Schedule:
    """The steps of a study in their states.

    Attributes
    ----------
    steps : sequence of Step
        Each after those that it needs.
    kept : collection of str
        Keys of those whose results are there from before.
    costs : mapping of str to float
        How long each step takes, in any unit.
    """

    steps: Sequence[Step]
    kept: frozenset[str]
    costs: Mapping[str, float]
    states: dict[str, State] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    _by_key: dict[str, Step] = field(default_factory=dict)
    _urgency: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_key = {step.key: step for step in self.steps}
        needed = self._needed()
        for step in self.steps:
            wanted: State = "waiting" if step.key in needed else "not needed"
            self.states[step.key] = "kept" if step.key in self.kept else wanted
        # What the longest chain of steps hangs on goes first.
        for step in reversed(self.steps):
            own = self._urgency.get(step.key, 0.0) + self.costs[step.key]
            self._urgency[step.key] = own
            for key in step.inputs:
                self._urgency[key] = max(self._urgency.get(key, 0.0), own)

    def next_step(self) -> Step | None:
        """Return the most urgent step that can begin, and count it as begun."""
        ready = [
            step
            for step in self.steps
            if self.states[step.key] == "waiting"
            and all(self.states[key] in _THERE for key in step.inputs)
        ]
        if not ready:
            return None
        chosen = max(ready, key=lambda step: self._urgency[step.key])
        self.states[chosen.key] = "running"
        return chosen

    def finish(self, step: Step) -> None:
        """Note that a step has succeeded."""
        self.states[step.key] = "done"

    def fail(self, step: Step, reason: str) -> list[Step]:
        """Note that a step has failed, and return those that cannot be made without it."""
        self.states[step.key] = "failed"
        self.reasons[step.key] = reason
        lost: list[Step] = []
        gone = {step.key}
        for other in self.steps:
            missing = [key for key in other.inputs if key in gone]
            if missing and self.states[other.key] == "waiting":
                self.states[other.key] = "left out"
                cause = title(self._by_key[missing[0]])
                self.reasons[other.key] = f"needs the result of: {cause}"
                gone.add(other.key)
                lost.append(other)
        return lost

    def is_used_up(self, key: str) -> bool:
        """Tell whether no step will take the result of this one any more."""
        return all(self.states[step.key] in _ENDED for step in self.steps if key in step.inputs)

    @property
    def to_do(self) -> list[Step]:
        """Steps that are not there, as long as nothing has begun."""
        return [step for step in self.steps if self.states[step.key] == "waiting"]

    def count(self, *states: State) -> int:
        """Return how many steps are in these states."""
        return sum(state in states for state in self.states.values())

    @property
    def share(self) -> float:
        """Return the part of the work of this run that is done, 0 to 1."""
        at_hand = {key: state for key, state in self.states.items() if state != "kept"}
        total = sum(self.costs[key] for key, state in at_hand.items() if state != "not needed")
        done = 0.0
        for key, state in at_hand.items():
            part = self.shares.get(key, 0.0) if state == "running" else float(state in _ENDED)
            done += part * self.costs[key] * (state != "not needed")
        return done / total if total else 1.0

    def _needed(self) -> set[str]:
        """Keys of the steps that have to be done so that every row has its scores.

        What parts sent in a round is deleted when it is combined, and is not wanted again.
        """
        needed: set[str] = set()
        for step in reversed(self.steps):
            lasting = not isinstance(step, Contribute)
            if step.key not in self.kept and (lasting or step.key in needed):
                needed.add(step.key)
                needed.update(key for key in step.inputs if key not in self.kept)
        return needed


def step_cost(step: Step, faces: Mapping[str, int]) -> float:
    """Return about how long a step takes beside others, in faces trained on."""
    count = float(sum(faces[part] for part in step.parts))
    if isinstance(step, Train):
        return count + 5
    if isinstance(step, Contribute):
        return 0.2 * count + 1
    if isinstance(step, Score):
        return 0.02 * count + 1
    assert isinstance(step, Merge)
    return 0.5 + 0.5 * len(step.inputs)
