"""What a cycle would do, without doing it: nothing is downloaded, written or sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from site_agent.agent.choosing import choose, list_versions, read_own_models, today
from site_agent.agent.config import AgentConfig, MergeGoal
from site_agent.agent.context import CycleContext
from site_agent.agent.invitations import invitations, refusal_condition
from site_agent.agent.journal import Journal
from site_agent.agent.scoring import Scorer
from site_agent.agent.workspace import AgentState, Workspace
from site_agent.pool.client import PoolClient


@dataclass(frozen=True)
class PlannedModel:
    """A model that would be merged or left out.

    Attributes
    ----------
    model : str
        Address, or file of the site.
    action : str
        ``merge``, ``fetch and merge``, ``leave out``.
    """

    model: str
    action: str
    reason: str = ""


@dataclass(frozen=True)
class PlannedMerge:
    """What would be done for one ``[[merge]]`` table."""

    name: str
    method: str
    metric: str
    models: tuple[PlannedModel, ...]
    waiting_upload: bool


@dataclass(frozen=True)
class PlannedRound:
    """What would be done about a round."""

    round: str
    base: str
    action: str
    reason: str = ""


@dataclass(frozen=True)
class AgentPlan:
    """What a cycle would do."""

    site: str
    pool: str
    role: str
    merges: tuple[PlannedMerge, ...]
    rounds: tuple[PlannedRound, ...]
    warnings: tuple[str, ...]


def plan_cycle(config: AgentConfig, *, profile: str = "") -> AgentPlan:
    """Say what the next cycle would do, as far as the pool's answers tell.

    Raises
    ------
    PoolClientError
        The pool cannot be asked.
    AgentError
        What the agent remembers cannot be read.
    SiteAgentError, AggregatorError, OSError
        Own models that cannot be read.
    """
    workspace = Workspace(config.workspace)
    state = workspace.load()
    with PoolClient(profile=profile or config.profile or None, cache=workspace.cache) as pool:
        who = pool.whoami()
        merges = tuple(
            _planned_merge(goal, CycleContext(pool, who.site, workspace, state, Journal(None)))
            for goal in config.merge
        )
        rounds = tuple(_planned_rounds(config, pool, who.site, state))
        warnings = _warnings(config, who.role)
        return AgentPlan(who.site, pool.endpoint, who.role, merges, rounds, tuple(warnings))


def _planned_merge(goal: MergeGoal, context: CycleContext) -> PlannedMerge:
    remembered = context.state.goal(goal.name)
    scorer = Scorer(goal, context)
    scorer.require_faces()
    own = read_own_models(goal)
    versions = list_versions(context.pool, goal)
    choice = choose(
        goal, context.site, own, versions, remembered, conditions=(scorer.condition, today())
    )
    models = [PlannedModel(str(model.path), "merge") for model in own]
    for version in choice.taken:
        here = context.workspace.cache.find(version.digest) is not None
        models.append(PlannedModel(version.address, "merge" if here else "fetch and merge"))
    taken = {version.digest for version in choice.taken}
    models += [
        PlannedModel(refusal.address, "leave out", refusal.reason)
        for digest, refusal in {**remembered.refused, **choice.refused}.items()
        if digest not in taken
    ]
    return PlannedMerge(
        goal.name,
        goal.method_name,
        goal.metric_name,
        tuple(models),
        remembered.outgoing is not None,
    )


def _planned_rounds(
    config: AgentConfig, pool: PoolClient, site: str, state: AgentState
) -> Sequence[PlannedRound]:
    if config.rounds is None:
        return []
    condition = refusal_condition(config.rounds)
    planned = []
    for invitation in invitations(pool, site, config.rounds):
        found = invitation.round
        note = state.rounds.get(found.round_id)
        refused = note is not None and note.data in {"", condition}
        reason = invitation.obstacle or (note.reason if note is not None and refused else "")
        action = "leave out" if reason else "contribute"
        planned.append(PlannedRound(found.round_id, found.base, action, reason))
    return planned


def _warnings(config: AgentConfig, role: str) -> list[str]:
    found = []
    if role == "viewer" and (config.rounds or any(goal.upload for goal in config.merge)):
        found.append("the token is a viewer's: it can neither upload nor contribute")
    for goal in config.merge:
        if not goal.own and not goal.upload:
            found.append(f"{goal.name}: without own models and upload = false, nothing is shared")
    return found
