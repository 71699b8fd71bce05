"""The agent's cycles: one for cron, or one after the other, through outages of the pool."""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from aggregators.errors import AggregatorError
from site_agent.agent.config import AgentConfig
from site_agent.agent.invitations import RoundsRun
from site_agent.agent.merging import GoalRun
from site_agent.agent.workspace import AgentState, CycleContext, Journal, Workspace
from site_agent.errors import AgentError, NotLoggedInError, PoolUnreachableError, SiteAgentError
from site_agent.pool.client import PoolClient
from site_agent.training_record import installed_version

_FIRST_WAIT_S, _LONGEST_WAIT_S = 30.0, 3600.0


@dataclass
class CycleReport:
    """The work of one cycle."""

    uploads: int = 0
    contributions: int = 0
    failures: list[tuple[str, Exception]] = field(default_factory=list)
    """Tasks to try again in the next cycle, by name; the others were completed."""


def run_agent(
    config: AgentConfig,
    journal: Journal,
    *,
    once: bool = False,
    profile: str = "",
    wait: Callable[[float], None] = time.sleep,
) -> CycleReport:
    """Run cycles until somebody stops it, or one.

    Every result of a cycle is in the workspace at once, so that the agent can be killed at any
    moment and started again.

    `once`: Run one cycle, without a second attempt when the pool does not answer. `profile`: The
    login to use; by default the active one.
    """
    workspace = Workspace(config.workspace)
    with workspace.held():
        state = workspace.load()
        agent = _Agent(config, journal, workspace, state, profile)
        journal.cycle = state.cycle
        with agent.open_pool() as pool:
            journal.write(
                "agent_started",
                config=config.path,
                workspace=config.workspace,
                pool=pool.endpoint,
                version=installed_version("poolctl"),
                once=once,
            )
            try:
                report = agent.run_once(pool) if once else agent.run_on(pool, wait)
            except BaseException as end:
                reason = "interrupted" if isinstance(end, KeyboardInterrupt) else str(end)
                journal.write("agent_stopped", reason=reason or type(end).__name__)
                raise
            journal.write("agent_stopped", reason="one cycle was asked for")
            return report


@dataclass
class _Agent:
    config: AgentConfig
    journal: Journal
    workspace: Workspace
    state: AgentState
    profile: str

    def open_pool(self) -> PoolClient:
        return PoolClient(profile=self.profile or None, cache=self.workspace.cache)

    def run_on(self, pool: PoolClient, wait: Callable[[float], None]) -> CycleReport:
        """Run cycles; after an outage of the pool wait longer and longer."""
        silent_times = 0
        while True:
            started_s = time.monotonic()
            try:
                self.run_once(pool)
            except (PoolUnreachableError, NotLoggedInError):
                silent_times += 1
                pause_s = self._pause_s(silent_times)
            else:
                silent_times = 0
                pause_s = max(0.0, self._interval_s - (time.monotonic() - started_s))
            self.journal.write("waiting", seconds=round(pause_s, 1))
            wait(pause_s)

    def run_once(self, pool: PoolClient) -> CycleReport:
        """Run one cycle."""
        started_s = time.monotonic()
        # Saved at once: a cycle that is killed has its number, too.
        self.state.cycle += 1
        self.journal.cycle = self.state.cycle
        self.workspace.save(self.state)
        report = CycleReport()
        try:
            self._work(report, pool)
        except (PoolUnreachableError, NotLoggedInError) as error:
            self.journal.write("pool_unreachable", error=str(error))
            raise
        self.journal.write(
            "cycle_finished",
            took_s=round(time.monotonic() - started_s, 3),
            uploads=report.uploads,
            contributions=report.contributions,
            failures=len(report.failures),
        )
        return report

    def _work(self, report: CycleReport, pool: PoolClient) -> None:
        site = pool.whoami().site
        self.journal.write("cycle_started", site=site)
        threads = self.config.settings.threads
        context = CycleContext(pool, site, self.workspace, self.state, self.journal, threads)
        for name, goal in self.config.goals.items():
            with self._collect_failures(report, name):
                report.uploads += GoalRun(name, goal, context).run()
        if self.config.settings.rounds.data:
            rounds = RoundsRun(self.config.settings.rounds, context)
            with self._collect_failures(report, "rounds"):
                rounds.run()
            report.contributions = rounds.contributions
            for subject, error in rounds.failures:
                self._note_failure(report, subject, error)
        self.state.forget_old()
        context.save()

    @contextlib.contextmanager
    def _collect_failures(self, report: CycleReport, subject: str) -> Iterator[None]:
        try:
            yield
        except (PoolUnreachableError, NotLoggedInError, AgentError):
            raise
        except (SiteAgentError, AggregatorError, OSError) as error:
            self._note_failure(report, subject, error)

    def _note_failure(self, report: CycleReport, subject: str, error: Exception) -> None:
        report.failures.append((subject, error))
        self.journal.write(
            "failed", subject=subject, error=str(error), hint=getattr(error, "hint", "")
        )

    @property
    def _interval_s(self) -> float:
        return 60 * self.config.settings.interval_minutes

    def _pause_s(self, silent_times: int) -> float:
        longest_s = max(self._interval_s, _LONGEST_WAIT_S)
        pause_s = _FIRST_WAIT_S * 2.0 ** min(silent_times - 1, 30)
        # Agents of several sites should not all come back at once.
        return float(min(pause_s, longest_s) * random.uniform(0.8, 1.2))
