"""``poolctl merge --name`` and ``merges``: merges on the machine of the pool."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Literal

from aggregators import Recipe, find_method
from aggregators.methods import RecipeInput, RecipeMethod
from cli.frame.errors import CliError, ExitCode, Outcome, UsageError
from cli.frame.options import Argument, LimitOption, Option, command, single
from cli.frame.output import Invocation, Reply, TableText, listing
from cli.merge import replaying
from cli.options.merging import MergeOptions, PoolMergeOptions
from cli.options.versions import NewVersionOptions, question_label_keys
from pool_server.wire.merges import MergeJobResponse
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.names import ModelAddress
from site_agent.pool.client import PoolClient, parse_address
from site_agent.pool.rebuilding import (
    Family,
    RebuildPlan,
    RecipeSources,
    Step,
    carry_out_elsewhere,
    plan_rebuild,
    plan_replay,
)
from site_agent.tasks.model_files import SUFFIX_OF_FORMAT, is_address, whole_id
from site_agent.tasks.uploading import model_address
from site_agent.wording import count_words

app = single()

_MERGE_ID = re.compile(r"^[0-9a-f]{16}$")


def merge_on_pool(
    invocation: Invocation,
    arguments: Sequence[str],
    how: MergeOptions,
    options: PoolMergeOptions,
    version: NewVersionOptions,
    *,
    dry_run: bool,
) -> Reply:
    """Ask the pool for a merge, after those of its inputs that must be made again."""
    description = version.read()
    if how.replay and arguments:
        raise UsageError("--replay takes method and inputs from the recipe")
    with invocation.pool() as pool:
        target = parse_address(model_address(pool, options.name))
        if description["labels"]:
            near_keys = pool.models.vocabulary().near_keys(description["labels"])
            question_label_keys(invocation, near_keys)
        order = Order(target, description, wait=options.wait)
        if how.replay:
            plan_again(invocation, pool, order, how.replay, how.without)
        else:
            order.plan = plan_replay(_recipe_of_words(pool, arguments, how))
        if dry_run:
            return order.planned()
        order.send(invocation, pool)
        for job in order.jobs:
            if job.version is not None:
                note_unsigned(invocation, pool, pool.version(job.version))
    return order.reply()


@command(
    app,
    "merges",
    "merges --state running",
    "merges 4f1d2c3b4a596877",
    "merges 4f1d2c3b4a596877 --cancel",
)
def merges(
    invocation: Invocation,
    merge_id: Annotated[str, Argument("Show this merge only.", "[MERGE]")] = "",
    *,
    cancel: Annotated[bool, Option("Cancel the merge. A finished one does not change.")] = False,
    state: Annotated[
        Literal["queued", "running", "finished", "failed", "cancelled"] | None,
        Option("Only merges in this state."),
    ] = None,
    limit: LimitOption = 50,
) -> Reply:
    """List the merges on the pool that your site started, newest first; show or cancel one.

    'poolctl merge --name NAME' starts a merge.
    """
    if cancel and not merge_id:
        raise UsageError("--cancel needs the MERGE")
    with invocation.pool() as pool:
        if merge_id and not _MERGE_ID.fullmatch(merge_id):
            known = (job.merge_id for job in pool.merges.list())
            merge_id = whole_id(merge_id, known, "merge", "poolctl merges")
        if cancel:
            job = pool.merges.cancel(merge_id)
            ended = f"is {job.state}" if job.ended_at else "ends within seconds"
            return Reply(job, f"merge {merge_id} {ended}", [job.merge_id])
        if merge_id:
            job = pool.merges.get(merge_id)
            return Reply(job, _description(job), [job.merge_id])
        jobs = invocation.first_of(pool.merges.list(state or ""), limit)
    return listing(
        jobs,
        ["merge", "state", "method", "models", "name", "asked", "result"],
        _row,
        keep=("state", "name", "result", "method"),
        empty="no merges found",
    )


def note_unsigned(invocation: Invocation, pool: PoolClient, made: ModelVersionResponse) -> None:
    """Print the steps left until others can see and trust a model of the pool."""
    address = made.address
    if made.signed_by is None and pool.signatures.signing_key(made.site) is not None:
        publish = " --publish" if made.state == "draft" else ""
        invocation.note(
            f"your site signs its versions, but the pool cannot: make the same bytes at home "
            f"(poolctl merge --replay {address}), then: poolctl models sign {address}{publish}"
        )
    elif made.state == "draft":
        invocation.note(
            f"only your site and curators see {address} until: poolctl models publish {address}"
        )


def _recipe_of_words(pool: PoolClient, arguments: Sequence[str], how: MergeOptions) -> Recipe:
    """Return the recipe of a command's arguments; inputs have their present digests."""
    if len(arguments) < 2:
        raise UsageError(
            "expected METHOD ADDRESS..., for example: wba-cascade site-a/face-68 site-b/face-68"
        )
    method = find_method(arguments[0])
    for word in arguments[1:]:
        if not is_address(word):
            raise UsageError(
                f"{word}: expected an address in the pool such as site-a/face-68@2; "
                "files are merged at home, without --name"
            )
    weights = how.weights() or [1.0] * (len(arguments) - 1)
    if len(weights) != len(arguments) - 1:
        raise UsageError(f"--weight: {len(weights)} numbers for {len(arguments) - 1} models")
    versions = [pool.version(word) for word in arguments[1:]]
    return Recipe(
        method=RecipeMethod(name=method.name, version=method.version),
        options=how.options(),
        inputs=tuple(
            RecipeInput(
                digest=version.digest,
                weight=weight,
                address=version.address,
                file_name=version.file_name,
            )
            for version, weight in zip(versions, weights, strict=True)
        ),
    )


def _row(job: MergeJobResponse) -> list[str]:
    state = f"{job.state} {job.progress:.0%}" if job.state == "running" else job.state
    return [
        job.merge_id,
        state,
        job.recipe["method"]["name"],
        str(len(job.recipe["inputs"])),
        f"{job.site}/{job.name}",
        f"{job.created_at:%Y-%m-%d %H:%M}",
        job.version or "",
    ]


def _description(job: MergeJobResponse) -> list[TableText]:
    rows = [
        ["merge", job.merge_id],
        ["state", job.state],
        ["method", job.recipe["method"]["name"]],
        ["name", f"{job.site}/{job.name}"],
        ["asked", f"{job.created_at:%Y-%m-%d %H:%M} UTC by {job.created_by}"],
    ]
    if job.state == "running":
        rows.append(["progress", f"{job.progress:.0%} {job.activity}"])
    if job.refusal is not None:
        rows.append(["failed", job.refusal.message])
    if job.version is not None:
        rows += [["result", job.version], ["sha256", job.digest or ""]]
    inputs = [
        [entry.get("address") or "", f"{entry['weight']:g}", entry["digest"][:16]]
        for entry in job.recipe["inputs"]
    ]
    return [TableText(["what", "value"], rows), TableText(["input", "weight", "digest"], inputs)]


# ``poolctl merge --name``: the merges to request, their order and their names.
_LONGEST_NAME = 64
_OF_EVERY_STEP = ("draft", "despite_withdrawal")
"""Fields that also describe intermediate models."""


@dataclass
class Order:
    """A sequence of merge requests to the pool."""

    target: ModelAddress
    description: Mapping[str, Any]
    wait: bool
    plan: RebuildPlan = field(init=False)
    sources: RecipeSources | None = None
    jobs: list[MergeJobResponse] = field(default_factory=list)

    def send(self, invocation: Invocation, pool: PoolClient) -> None:
        """Request the merges in order; stop at the first that fails."""
        carry_out_elsewhere(self.plan, partial(self._ask, invocation, pool))

    def planned(self) -> Reply:
        """Describe the requests of a dry run."""
        last = self.plan.steps[-1]
        data: dict[str, Any] = {"name": f"{self.target.site}/{self.target.name}"}
        if not self.plan.left_out:
            data["recipe"] = last.recipe.model_dump(mode="json", by_alias=True)
            count = len(last.recipe.inputs)
            return Reply(
                data, f"would have {count_words(count, 'model')} merged into {self.target}"
            )
        data["left_out"] = [entry.digest for entry in self.plan.left_out]
        data["steps"] = replaying.steps_data(self.plan, "name", self._name_of)
        lines = [
            f"would have {count_words(len(step.kept) + len(step.rebuilt), 'model')} merged into "
            f"pool://{self.target.site}/{self._name_of(step)}, in place of "
            f"{replaying.old_name(self.sources, step.old)}"
            for step in self.plan.steps
        ]
        return Reply(data, [*lines, *replaying.refinement_lines(self.plan)])

    def reply(self) -> Reply:
        """Describe the results."""
        job = self.jobs[-1]
        if job.state == "failed" and job.refusal is not None:
            raise CliError(
                f"merge {job.merge_id} of {job.site}/{job.name} failed: {job.refusal.message}",
                Outcome(ExitCode.INCOMPATIBLE, "merge_failed"),
            )
        data = job.model_dump(mode="json")
        lines: list[str] = []
        if self.plan.left_out:
            data["made"] = [entry.model_dump(mode="json") for entry in self.jobs]
            data["left_out"] = [entry.model_dump(mode="json") for entry in self.plan.left_out]
            named = [
                entry.address or entry.file_name or entry.digest for entry in self.plan.left_out
            ]
            lines.append(f"without {', '.join(named)}")
        for entry, step in zip(self.jobs, self.plan.steps, strict=False):
            lines += self._lines(entry, step)
        lines += replaying.refinement_lines(self.plan)
        return Reply(data, lines, [entry.version or entry.merge_id for entry in self.jobs])

    def _ask(
        self, invocation: Invocation, pool: PoolClient, step: Step, recipe: Recipe
    ) -> RecipeInput | None:
        is_last = step is self.plan.steps[-1]
        old = step.recipe.output
        output_format = (old.format or None) if old is not None else None
        written = output_format or find_method(recipe.method.name).output_formats[0]
        name = self._name_of(step)
        job = pool.merges.request(
            ModelAddress(self.target.site, name),
            json.loads(recipe.to_json()),
            format=output_format,
            file_name=f"{name}{SUFFIX_OF_FORMAT.get(written, '')}",
            **(
                self.description
                if is_last
                else {key: self.description[key] for key in _OF_EVERY_STEP}
            ),
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
        """Return the name of a result: that of the replaced model if it is ours."""
        if step is self.plan.steps[-1]:
            return self.target.name
        known = [] if self.sources is None else self.sources.addresses_of(step.old)
        addresses = [ModelAddress.parse(address) for address in known]
        for address in addresses:
            if address.site == self.target.site:
                return address.name
        stem = addresses[0].name if addresses else step.old[:12]
        return f"{self.target.name}--{stem}"[:_LONGEST_NAME]

    def _lines(self, job: MergeJobResponse, step: Step) -> list[str]:
        if job.version is None:
            return [
                f"merge {job.merge_id} is {job.state}; see it with: poolctl merges {job.merge_id}"
            ]
        instead = (
            f" in place of {replaying.old_name(self.sources, step.old)}"
            if self.plan.left_out
            else ""
        )
        return [f"made {job.version}{instead}", f"sha256 {job.digest}"]


def plan_again(
    invocation: Invocation, pool: PoolClient, order: Order, word: str, without: Sequence[str]
) -> None:
    """Give an order the plan of ``--replay``: a recipe, unchanged or without some inputs."""
    recipe, folder = replaying.find_recipe(pool, word)
    if not without:
        order.plan = plan_replay(recipe)
        return
    order.sources = RecipeSources([folder], pool.models)
    family = Family.collect(recipe, order.sources)
    left_out = replaying.digests_to_leave_out(family, order.sources, pool, without)
    order.plan = plan_rebuild(family, left_out)
    if order.sources.silence:
        invocation.note(f"only recipes on this machine were used: {order.sources.silence}")
