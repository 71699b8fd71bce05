"""``poolctl merge --name`` and ``merges``: merges on the machine of the pool."""

import re
from collections.abc import Sequence
from typing import Annotated

from aggregators import Recipe, find_method
from aggregators.methods import RecipeInput, RecipeMethod
from cli.frame.errors import CliError, ExitCode, Outcome, UsageError
from cli.frame.options import Argument, LimitOption, Option, command, single
from cli.frame.output import Invocation, Reply, TableText, listing
from cli.options.merging import MergeOptions, PoolMergeOptions
from cli.options.versions import NewVersionOptions, question_label_keys, until_published
from pool_server.wire.merges import MERGE_KEY_PATTERN, MergeJobResponse, MergeJobState
from pool_server.wire.models import ModelVersionResponse
from site_agent.pool.client import PoolClient, parse_address
from site_agent.tasks.model_files import SUFFIX_OF_FORMAT, is_address, whole_id
from site_agent.tasks.uploading import model_address

app = single()


def merge_on_pool(
    invocation: Invocation,
    arguments: Sequence[str],
    how: MergeOptions,
    options: PoolMergeOptions,
    version: NewVersionOptions,
) -> Reply:
    """Ask the pool for a merge."""
    description = version.read()
    with invocation.pool() as pool:
        target = parse_address(model_address(pool, options.name))
        if description["labels"]:
            near_keys = pool.models.vocabulary().near_keys(description["labels"])
            question_label_keys(invocation, near_keys)
        recipe = _recipe_of_words(pool, arguments, how)
        document = recipe.model_dump(mode="json", by_alias=True)
        suffix = SUFFIX_OF_FORMAT.get(find_method(recipe.method.name).output_formats[0], "")
        job = pool.merges.request(
            target, document, file_name=f"{target.name}{suffix}", **description
        )
        if options.wait:
            with invocation.progress(f"merge {recipe.method.name}") as report:
                job = pool.merges.wait(job.merge_id, progress=report)
        if job.state == "failed" and job.refusal is not None:
            raise CliError(
                f"merge {job.merge_id} of {job.site}/{job.name} failed: {job.refusal.message}",
                Outcome(ExitCode.INCOMPATIBLE, "merge_failed"),
            )
        if job.version is None:
            line = (
                f"merge {job.merge_id} is {job.state}; see it with: poolctl merges {job.merge_id}"
            )
            return Reply(job, line, [job.merge_id])
        note_unsigned(invocation, pool, pool.version(job.version))
        return Reply(job, [f"made {job.version}", f"sha256 {job.digest}"], [job.version])


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
    state: Annotated[MergeJobState | None, Option("Only merges in this state.")] = None,
    limit: LimitOption = 50,
) -> Reply:
    """List the merges on the pool that your site started, newest first; show or cancel one.

    'poolctl merge --name NAME' starts a merge.
    """
    if cancel and not merge_id:
        raise UsageError("--cancel needs the MERGE")
    with invocation.pool() as pool:
        if merge_id and not re.fullmatch(MERGE_KEY_PATTERN, merge_id):
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
        ["merge", "state", "name", "result", "method", "models", "asked"],
        _row,
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
        invocation.note(f"only your site and curators see {address} {until_published(address)}")


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
        f"{job.site}/{job.name}",
        job.version or "",
        job.recipe["method"]["name"],
        str(len(job.recipe["inputs"])),
        f"{job.created_at:%Y-%m-%d %H:%M}",
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
