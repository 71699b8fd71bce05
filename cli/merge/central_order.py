"""``poolctl merges start``: what the pool is asked to make, in which order, under which names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cli.frame.addresses import SUFFIX_OF_FORMAT
from cli.frame.errors import MergeFailedError
from cli.frame.output import Invocation, Reply
from cli.frame.quantities import count_words
from cli.merge.replaying import digests_to_leave_out, find_recipe, refinement_lines

if TYPE_CHECKING:
    from aggregators import Recipe
    from aggregators.methods import RecipeInput
    from pool_server.wire.merges import MergeJobResponse
    from pool_server.wire.names import ModelAddress
    from site_agent.pool.client import PoolClient
    from site_agent.pool.rebuilding import RebuildPlan, Step
    from site_agent.pool.recipe_sources import RecipeSources

_LONGEST_NAME = 64
_OF_EVERY_STEP = ("intended_use", "draft", "despite_withdrawal")
"""What is said of models that have to be made again on the way, too."""


@dataclass
class Order:
    """Merges that are asked for one after another."""

    target: ModelAddress
    given: Mapping[str, Any]
    wait: bool
    plan: RebuildPlan = field(init=False)
    sources: RecipeSources | None = None
    jobs: list[MergeJobResponse] = field(default_factory=list)

    def send(self, invocation: Invocation, pool: PoolClient) -> None:
        """Ask for the merges; nothing that needs one is asked for when that one fails."""
        from site_agent.pool.rebuilding import carry_out_elsewhere

        def make(step: Step, recipe: Recipe) -> RecipeInput | None:
            return self._ask(invocation, pool, step, recipe)

        carry_out_elsewhere(self.plan, make)

    def planned(self) -> Reply:
        """Return what would be asked for."""
        last = self.plan.steps[-1]
        data: dict[str, Any] = {"name": f"{self.target.site}/{self.target.name}"}
        if not self.plan.left_out:
            data["recipe"] = last.recipe.model_dump(mode="json", by_alias=True)
            count = len(last.recipe.inputs)
            return Reply(
                data, f"would have {count_words(count, 'model')} merged into {self.target}"
            )
        data["left_out"] = [each.digest for each in self.plan.left_out]
        data["steps"] = [
            {
                "replaces": step.old,
                "name": self._name_of(step),
                "method": step.recipe.method.name,
                "kept": list(step.kept),
                "dropped": list(step.dropped),
                "rebuilt": list(step.rebuilt),
            }
            for step in self.plan.steps
        ]
        lines = [
            f"would have {count_words(len(step.kept) + len(step.rebuilt), 'model')} merged into "
            f"pool://{self.target.site}/{self._name_of(step)}, in place of {self._old_name(step)}"
            for step in self.plan.steps
        ]
        return Reply(data, [*lines, *refinement_lines(self.plan)])

    def reply(self) -> Reply:
        """Tell what became of it."""
        job = self.jobs[-1]
        if job.state == "failed" and job.refusal is not None:
            raise MergeFailedError(
                f"merge {job.merge_id} of {job.site}/{job.name} failed: {job.refusal.message}"
            )
        data = job.model_dump(mode="json")
        lines: list[str] = []
        if self.plan.left_out:
            data["made"] = [each.model_dump(mode="json") for each in self.jobs]
            data["left_out"] = [each.model_dump(mode="json") for each in self.plan.left_out]
            named = [each.address or each.file_name or each.digest for each in self.plan.left_out]
            lines.append(f"without {', '.join(named)}")
        for each, step in zip(self.jobs, self.plan.steps, strict=False):
            lines += self._lines(each, step)
        lines += refinement_lines(self.plan)
        return Reply(data, lines, [each.version or each.merge_id for each in self.jobs])

    def _ask(
        self, invocation: Invocation, pool: PoolClient, step: Step, recipe: Recipe
    ) -> RecipeInput | None:
        from aggregators.methods import RecipeInput
        from pool_server.wire.names import ModelAddress

        is_last = step is self.plan.steps[-1]
        old = step.recipe.output
        output_format = old.format if old is not None else ""
        name = self._name_of(step)
        job = pool.merges.request(
            ModelAddress(self.target.site, name),
            json.loads(recipe.to_json()),
            output_format=output_format or None,
            file_name=f"{name}{SUFFIX_OF_FORMAT.get(output_format or _own_format(recipe), '')}",
            **(self.given if is_last else {key: self.given[key] for key in _OF_EVERY_STEP}),
        )
        self.jobs.append(job)
        if self.wait or not is_last:
            with invocation.progress(f"merge {recipe.method.name}") as report:
                job = pool.merges.wait(job.merge_id, progress=report)
            self.jobs[-1] = job
        if job.version is None or job.digest is None:
            return None
        return RecipeInput(digest=job.digest, address=job.version)

    def _name_of(self, step: Step) -> str:
        """Return what to call the result: as the model that it replaces, where that is ours."""
        if step is self.plan.steps[-1]:
            return self.target.name
        known = [] if self.sources is None else self.sources.addresses_of(step.old)
        addresses = [_parsed(each) for each in known]
        for each in addresses:
            if each.site == self.target.site:
                return each.name
        stem = addresses[0].name if addresses else step.old[:12]
        return f"{self.target.name}--{stem}"[:_LONGEST_NAME]

    def _old_name(self, step: Step) -> str:
        known = [] if self.sources is None else self.sources.addresses_of(step.old)
        return known[0] if known else f"sha256:{step.old[:12]}..."

    def _lines(self, job: MergeJobResponse, step: Step) -> list[str]:
        if job.version is None:
            return [
                f"merge {job.merge_id} is {job.state}; see it with: "
                f"poolctl merges info {job.merge_id}"
            ]
        instead = f" in place of {self._old_name(step)}" if self.plan.left_out else ""
        return [f"made {job.version}{instead}", f"sha256 {job.digest}"]


def plan_again(
    invocation: Invocation, pool: PoolClient, order: Order, word: str, without: Sequence[str]
) -> None:
    """Give an order the plan of ``--replay``: a recipe as it is, or without something."""
    from site_agent.pool.rebuilding import Family, plan_rebuild, plan_replay
    from site_agent.pool.recipe_sources import RecipeSources

    recipe, folder = find_recipe(pool, word)
    if not without:
        order.plan = plan_replay(recipe)
        return
    order.sources = RecipeSources([folder], pool.models)
    family = Family.collect(recipe, order.sources)
    left_out = digests_to_leave_out(family, order.sources, pool, without)
    order.plan = plan_rebuild(family, left_out)
    if order.sources.silence:
        invocation.note(f"only recipes on this machine were used: {order.sources.silence}")


def _own_format(recipe: Recipe) -> str:
    from aggregators import find_method

    formats: tuple[str, ...] = find_method(recipe.method.name).output_formats
    return formats[0]


def _parsed(address: str) -> ModelAddress:
    from pool_server.wire.names import ModelAddress

    return ModelAddress.parse(address)
