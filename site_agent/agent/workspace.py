"""An agent's workspace: its state, downloads and models, held by one agent at a time.

::

    state.json          what the agent remembers; replaced as a whole
    best/NAME.dat       the best model known for each [[merge]] table, with its recipe if merged
    outgoing/<digest>/  a merged model that is to be uploaded, with its recipe
    cache/              downloads, and contributions under way
    work/               files under way; emptied at every start
    lock
"""

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from aggregators.whole_file import write_whole
from site_agent.agent.journal import Journal
from site_agent.errors import AgentError, BusyError
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import PoolClient
from site_agent.runs.files import locked

_MOST_REMEMBERED = 2000


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Refusal(_Part):
    """A model that is left out, and why.

    `against`: under which condition, where it was not refused for itself: it is looked at again
    when that changes.
    """

    address: str
    reason: str
    against: str = ""


class Outgoing(_Part):
    """A merged model that was found better and is not in the pool yet."""

    digest: str
    file_name: str
    metrics: dict[str, float]
    labels: dict[str, str] = {}


class GoalState(_Part):
    """The memory of one ``[[merge]]`` table.

    Attributes
    ----------
    scores : dict
        Metrics by model and validation data: ``DIGEST:EVALUATION``.
    merged : dict of str to str
        Digest of what came out, by what was merged and how; empty where it failed.
    checked : list of str
        Digests of downloaded models that can be read and merged.
    best : str
        Digest of the model in ``best/``.
    """

    scores: dict[str, dict[str, float]] = {}
    merged: dict[str, str] = {}
    refused: dict[str, Refusal] = {}
    checked: list[str] = []
    uploaded: list[str] = []
    outgoing: Outgoing | None = None
    best: str = ""

    def forget_old(self) -> None:
        """Keep what is remembered from growing without end: the oldest goes first."""
        for table in (self.scores, self.merged, self.refused):
            for key in list(table)[: max(0, len(table) - _MOST_REMEMBERED)]:
                del table[key]
        del self.checked[:-_MOST_REMEMBERED]
        del self.uploaded[:-_MOST_REMEMBERED]


class RoundNote(_Part):
    """The outcome of a round: ``contributed`` or ``refused``, and why."""

    outcome: str
    reason: str = ""
    data: str = ""


class AgentState(_Part):
    """The memory of an agent."""

    version: int = 1
    cycle: int = 0
    goals: dict[str, GoalState] = {}
    rounds: dict[str, RoundNote] = {}

    def goal(self, name: str) -> GoalState:
        """Return what is remembered for a ``[[merge]]`` table."""
        return self.goals.setdefault(name, GoalState())


class Workspace:
    """The folder of an agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.best = folder / "best"
        self.outgoing = folder / "outgoing"
        self.work = folder / "work"
        self.cache = ModelCache(folder / "cache")
        self._state_file = folder / "state.json"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other agents away; the system lets go of the lock when this process dies."""
        with contextlib.ExitStack() as stack:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                busy = BusyError(f"{self.folder}: another agent is at work here")
                stack.enter_context(locked(self.folder / "lock", busy=busy))
                # Under the lock: files in it belong to an agent that is gone.
                shutil.rmtree(self.work, ignore_errors=True)
                for folder in (self.best, self.outgoing, self.work):
                    folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise self._unwritable(error) from error
            yield

    def load(self) -> AgentState:
        """Return what was remembered; nothing where there is no file yet."""
        try:
            return AgentState.model_validate_json(self._state_file.read_bytes())
        except FileNotFoundError:
            return AgentState()
        except (OSError, ValidationError) as error:
            first = str(error).splitlines()[0]
            raise AgentError(
                f"{self._state_file}: cannot be read: {first}; remove it, and the agent begins "
                "anew: nothing is uploaded twice"
            ) from error

    def save(self, state: AgentState) -> None:
        """Replace what is remembered, as a whole."""
        try:
            write_whole(self._state_file, state.model_dump_json(indent=1) + "\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def clear_outgoing(self, state: AgentState) -> None:
        """Remove what was uploaded, or given up, when the process was killed."""
        wanted = {goal.outgoing.digest for goal in state.goals.values() if goal.outgoing}
        for folder in self.outgoing.iterdir():
            if folder.name not in wanted:
                shutil.rmtree(folder, ignore_errors=True)

    def new_file(self, suffix: str) -> Path:
        """Return a name for a file under way."""
        return self.work / f"{secrets.token_hex(6)}{suffix}"

    def _unwritable(self, error: OSError) -> AgentError:
        where = error.filename or self.folder
        return AgentError(f"{where}: cannot be written: {error.strerror or error}")


@dataclass(frozen=True)
class CycleContext:
    """One cycle of one agent.

    `threads`: 0: as many as processors.
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
