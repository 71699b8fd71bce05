"""An agent's workspace: its state, downloads and models, held by one agent at a time.

::

    state.json          the agent's memory; replaced as a whole
    best/NAME.dat       the best version of each merged model, with its recipe if merged
    cache/              downloads, and contributions under way
    work/               files under way; emptied at every start
    lock

The agent's journal is on standard output: one line an event, of JSON or for people. Every line of
JSON has ``time`` (UTC, ISO 8601), ``level`` (``info``, ``warning``, ``error``), ``event`` and
``cycle`` (0 before the first one). Its other keys depend on the event.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TextIO

from pydantic import BaseModel, ConfigDict, ValidationError

from aggregators.whole_file import write_whole
from site_agent.errors import AgentError, BusyError
from site_agent.plain_json import plain
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import PoolClient
from site_agent.work.locks import locked

Level = Literal["info", "warning", "error"]

SENTENCES: dict[str, str] = {
    "agent_started": "the agent has started with {config}; the pool is {pool}",
    "agent_stopped": "stopped: {reason}",
    "cycle_started": "cycle {cycle} begins for {site}",
    "cycle_finished": "cycle {cycle} took {took_s:.0f} s; uploads: {uploads}, "
    "contributions: {contributions}, failures: {failures}",
    "waiting": "waiting {seconds:.0f} s for the next cycle",
    "pool_unreachable": "the pool cannot be used now: {error}",
    "models_found": "{name}: found {found}, taken {taken}",
    "model_fetched": "{name}: downloaded {address}",
    "model_refused": "{name}: left out {address}: {reason}",
    "merged": "{name}: merged by {method}, inputs: {inputs}",
    "evaluated": "{name}: {what} {model}: {metric} {value:.4g}",
    "up_to_date": "{name}: nothing is new",
    "not_better": "{name}: not uploaded: {metric} {value:.4g} is not better by {margin_pct} % than "
    "{best:.4g} of {best_model}",
    "best_changed": "{name}: the best is now {what} {model}, {metric} {value:.4g}: {file}",
    "uploading": "{name}: uploading {size_bytes:,} bytes",
    "uploaded": "{name}: uploaded as {address}, {metric} {value:.4g}",
    "contributing": "round {round}: contributing to {base}; the deadline is {deadline:%F %R} UTC",
    "contributed": "round {round}: sent {sent_bytes:,} bytes",
    "round_refused": "round {round}: not taken part in: {reason}",
    "round_finished": "round {round}: finished as {result}",
    "failed": "{subject} failed: {error} ({hint})",
}
"""The events, for people; braces name keys of the line of JSON."""

_LEVELS: dict[str, Level] = {
    **dict.fromkeys(("pool_unreachable", "model_refused", "round_refused"), "warning"),
    "failed": "error",
}


@dataclass
class Journal:
    """Writes events.

    `for_people`: write sentences instead of JSON.
    """

    stream: TextIO | None
    least: Level = "info"
    for_people: bool = False
    cycle: int = 0

    def write(self, event: str, **values: Any) -> None:
        """Write one event, of those in `SENTENCES`."""
        level = _LEVELS.get(event, "info")
        order = ("info", "warning", "error")
        if self.stream is None or order.index(level) < order.index(self.least):
            return
        if self.for_people:
            line = self._sentence(event, level, values)
        else:
            line = self._json(event, level, values)
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def _json(self, event: str, level: Level, values: dict[str, Any]) -> str:
        line = {
            "time": _utc(datetime.now(UTC), "milliseconds"),
            "level": level,
            "event": event,
            "cycle": self.cycle,
            **{
                key: _utc(value, "seconds") if isinstance(value, datetime) else plain(value)
                for key, value in values.items()
            },
        }
        return json.dumps(line, ensure_ascii=False, allow_nan=False)

    def _sentence(self, event: str, level: Level, values: dict[str, Any]) -> str:
        said = SENTENCES[event].format(cycle=self.cycle, **values).removesuffix(" ()")
        # A name from the pool must not write on the terminal.
        shown = "".join(character if character.isprintable() else " " for character in said)
        mark = "" if level == "info" else f"{level.capitalize()}: "
        return f"{datetime.now():%H:%M:%S}  {mark}{shown}"


def _utc(moment: datetime, precision: str) -> str:
    return moment.astimezone(UTC).isoformat(timespec=precision).replace("+00:00", "Z")


_MOST_REMEMBERED = 2000


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RoundNote(_Part):
    """The outcome of a round."""

    reason: str
    """The reason for the refusal; empty of a contribution."""
    condition: str = ""
    """The data and rules of the refusal: others may let the round pass."""


class AgentState(_Part):
    """The memory of an agent."""

    version: int = 2
    cycle: int = 0
    finished: dict[str, str] = {}
    """By merged model, the digest of the inputs and settings of the last finished work."""
    scores: dict[str, dict[str, float]] = {}
    """Metrics by model and validation faces: ``DIGEST:FACES``."""
    rounds: dict[str, RoundNote] = {}

    def forget_old(self) -> None:
        """Keep the memory from growing without end: the oldest entries go first."""
        tables: tuple[dict[str, Any], ...] = (self.scores, self.rounds)
        for table in tables:
            for key in list(table)[: max(0, len(table) - _MOST_REMEMBERED)]:
                del table[key]


class Workspace:
    """The folder of an agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.best = folder / "best"
        self.work = folder / "work"
        self.cache = ModelCache(folder / "cache")
        self._state_file = folder / "state.json"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the workspace; the lock ends with this process."""
        with contextlib.ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                busy = BusyError(f"{self.folder}: another agent is at work here")
                stack.enter_context(locked(self.folder / "lock", busy=busy))
                # Under the lock: files in it belong to an agent that is gone.
                shutil.rmtree(self.work, ignore_errors=True)
                for folder in (self.best, self.work):
                    folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise self._unwritable(error) from error
            yield

    def load(self) -> AgentState:
        """Return the saved state; an empty one where there is no file yet."""
        try:
            return AgentState.model_validate_json(self._state_file.read_bytes())
        except FileNotFoundError:
            return AgentState()
        except (OSError, ValidationError) as error:
            first = str(error).splitlines()[0]
            raise AgentError(
                f"{self._state_file}: cannot be read: {first}; remove it, and the agent starts "
                "from scratch: nothing is uploaded twice"
            ) from error

    def save(self, state: AgentState) -> None:
        """Replace the saved state as a whole."""
        try:
            write_whole(self._state_file, state.model_dump_json(indent=1) + "\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> AgentError:
        where = error.filename or self.folder
        return AgentError(f"{where}: cannot be written: {error.strerror or error}")


@dataclass(frozen=True)
class CycleContext:
    """One cycle of one agent."""

    pool: PoolClient
    site: str
    workspace: Workspace
    state: AgentState
    journal: Journal
    threads: int = 0
    """0: as many as processors."""

    def save(self) -> None:
        """Save the state in the workspace."""
        self.workspace.save(self.state)
