"""The agent's cycles: one for cron, or one after the other, through outages of the pool.

`plan_cycle` describes the next cycle without downloading, writing or sending anything.
"""

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from aggregators.errors import AggregatorError
from site_agent.agent.choosing import choose, list_versions, read_own_models, today
from site_agent.agent.config import AgentConfig, MergeGoal
from site_agent.agent.invitations import RoundsRun, invitations, refusal_condition
from site_agent.agent.merging import GoalRun
from site_agent.agent.publishing import Scorer
from site_agent.agent.workspace import AgentState, CycleContext, Journal, Workspace
from site_agent.errors import AgentError, NotLoggedInError, PoolUnreachableError, SiteAgentError
from site_agent.pool.client import PoolClient
from site_agent.training_record import installed_version

_LONGEST_WAIT_S = 3600.0


class Stopped(BaseException):
    """The agent was asked to end; raised wherever it is at work, and caught by nobody there."""


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
    login to use instead of that of the configuration.
    """
    workspace = Workspace(config.workspace)
    with workspace.held():
        state = workspace.load()
        workspace.clear_outgoing(state)
        agent = _Agent(config, journal, workspace, state, profile or config.profile)
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
                pause_s = max(0.0, self.config.interval_s - (time.monotonic() - started_s))
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
        context = CycleContext(
            pool, site, self.workspace, self.state, self.journal, self.config.threads
        )
        for goal in self.config.merge:
            with self._collect_failures(report, goal.name):
                report.uploads += GoalRun(goal, context).run()
        if self.config.rounds is not None:
            rounds = RoundsRun(self.config.rounds, context)
            with self._collect_failures(report, "rounds"):
                rounds.run()
            report.contributions = rounds.contributions
            for subject, error in rounds.failures:
                self._note_failure(report, subject, error)

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

    def _pause_s(self, silent_times: int) -> float:
        longest_s = max(self.config.interval_s, _LONGEST_WAIT_S)
        pause_s = self.config.retry_after_s * 2.0 ** min(silent_times - 1, 30)
        # Agents of several sites should not all come back at once.
        return float(min(pause_s, longest_s) * random.uniform(0.8, 1.2))


@dataclass(frozen=True)
class PlannedModel:
    """A model that would be merged or left out.

    `model`: address, or file of the site; `action`: ``merge``, ``fetch and merge``, ``leave out``.
    """

    model: str
    action: str
    reason: str = ""


@dataclass(frozen=True)
class PlannedMerge:
    """The plan for one ``[[merge]]`` table."""

    name: str
    method: str
    metric: str
    models: tuple[PlannedModel, ...]
    waiting_upload: bool


@dataclass(frozen=True)
class PlannedRound:
    """The plan for a round."""

    round: str
    base: str
    action: str
    reason: str = ""


@dataclass(frozen=True)
class AgentPlan:
    """The work of the next cycle."""

    site: str
    pool: str
    role: str
    merges: tuple[PlannedMerge, ...]
    rounds: tuple[PlannedRound, ...]
    warnings: tuple[str, ...]


def plan_cycle(config: AgentConfig, *, profile: str = "") -> AgentPlan:
    """Describe the work of the next cycle, as far as the pool's answers show it."""
    workspace = Workspace(config.workspace)
    state = workspace.load()
    with PoolClient(profile=profile or config.profile or None, cache=workspace.cache) as pool:
        who = pool.whoami()
        merges = tuple(
            _plan_merge(goal, CycleContext(pool, who.site, workspace, state, Journal(None)))
            for goal in config.merge
        )
        rounds = tuple(_plan_rounds(config, pool, who.site, state))
        warnings = _warnings(config, who.role)
        return AgentPlan(who.site, pool.endpoint, who.role, merges, rounds, tuple(warnings))


def _plan_merge(goal: MergeGoal, context: CycleContext) -> PlannedMerge:
    remembered = context.state.goal(goal.name)
    scorer = Scorer(goal, context)
    scorer.require_faces()
    own_models = read_own_models(goal)
    versions = list_versions(context.pool, goal)
    choice = choose(
        goal, context.site, own_models, versions, remembered, conditions=(scorer.condition, today())
    )
    models = [PlannedModel(str(model.path), "merge") for model in own_models]
    for version in choice.chosen:
        here = context.workspace.cache.find(version.digest) is not None
        models.append(PlannedModel(version.address, "merge" if here else "fetch and merge"))
    chosen = {version.digest for version in choice.chosen}
    models += [
        PlannedModel(refusal.address, "leave out", refusal.reason)
        for digest, refusal in {**remembered.refused, **choice.refused}.items()
        if digest not in chosen
    ]
    return PlannedMerge(
        goal.name,
        goal.method_name,
        goal.metric_name,
        tuple(models),
        remembered.outgoing is not None,
    )


def _plan_rounds(
    config: AgentConfig, pool: PoolClient, site: str, state: AgentState
) -> Sequence[PlannedRound]:
    if config.rounds is None:
        return []
    condition = refusal_condition(config.rounds)
    planned = []
    for invitation in invitations(pool, site, config.rounds):
        round_ = invitation.round
        note = state.rounds.get(round_.round_id)
        refused = note is not None and note.data in {"", condition}
        reason = invitation.obstacle or (note.reason if note is not None and refused else "")
        action = "leave out" if reason else "contribute"
        planned.append(PlannedRound(round_.round_id, round_.base, action, reason))
    return planned


def _warnings(config: AgentConfig, role: str) -> list[str]:
    warnings = []
    if role == "viewer" and (config.rounds or any(goal.upload for goal in config.merge)):
        warnings.append("the token is a viewer's: it can neither upload nor contribute")
    for goal in config.merge:
        if not goal.own_models and not goal.upload:
            warnings.append(
                f"{goal.name}: without own models and upload = false, nothing is shared"
            )
    return warnings
