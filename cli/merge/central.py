"""``poolctl merges``: merges that the pool makes, for sites that would rather not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.frame.addresses import is_address
from cli.frame.errors import UsageError
from cli.frame.options import (
    DryRunOption,
    LimitOption,
    command,
    group,
)
from cli.frame.output import Invocation, Reply, TableText, listing
from cli.merge.central_order import Order, plan_again
from cli.options.methods import MergeOptions
from cli.options.versions import NewVersionOptions, model_address, question_label_keys

if TYPE_CHECKING:
    from aggregators import Recipe
    from pool_server.wire.merges import MergeJobResponse
    from pool_server.wire.models import ModelVersionResponse
    from site_agent.pool.client import PoolClient

app = group("Merge models on the pool, in the background.")

_MergeArgument = Annotated[
    str, typer.Argument(metavar="MERGE", help="As 'poolctl merges ls' shows it.")
]
_MERGE_ID = re.compile(r"^[0-9a-f]{16}$")


@command(
    app,
    "start",
    examples=[
        "merges start wba-cascade site-a/face-68@2 site-b/face-68 --name merged-68 --step 1.1",
        "merges start --replay merged.dat.recipe.json --name site-a/merged-68 --wait",
        "merges start --replay site-a/merged-68@1 --without site-b/face-68@2 --name merged-68",
    ],
)
def start(
    invocation: Invocation,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD ADDRESS",
            help="A method, for example wba-cascade or median; then addresses in the pool.",
            show_default=False,
        ),
    ] = None,
    *,
    name: Annotated[
        str,
        typer.Option(metavar="[SITE/]NAME", help="Name of the merged model.", show_default=False),
    ],
    how: MergeOptions,
    version: NewVersionOptions,
    wait: Annotated[bool, typer.Option(help="Wait for the result.")] = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Merge models on the pool; the result has the same bytes as that of 'poolctl merge'.

    The merge runs on the pool's machine, in the background; nothing is downloaded. The merged model
    is published with its recipe and lineage. With --without, inputs that contain the model left out
    are made again first; the pool links each new model with the one it replaces.
    """
    from site_agent.pool.client import parse_address
    from site_agent.pool.rebuilding import plan_replay

    given = version.read()
    how.require_consistent()
    if how.replay and words:
        raise UsageError("--replay takes method and inputs from the recipe")
    with invocation.pool() as pool:
        target = parse_address(model_address(pool, name))
        if given["labels"]:
            question_label_keys(invocation, pool.models.vocabulary(), given["labels"])
        order = Order(target, given, wait=wait)
        if how.replay:
            plan_again(invocation, pool, order, how.replay, how.without)
        else:
            order.plan = plan_replay(_recipe_of_words(pool, words or [], how))
        if dry_run:
            return order.planned()
        order.send(invocation, pool)
        for job in order.jobs:
            if job.version is not None:
                note_unsigned(invocation, pool, pool.version(job.version))
    return order.reply()


@command(app, "ls", examples=["merges ls", "merges ls --state running"])
def ls(
    invocation: Invocation,
    *,
    state: Annotated[
        Literal["queued", "running", "finished", "failed", "cancelled"] | None,
        typer.Option(help="Only merges in this state."),
    ] = None,
    limit: LimitOption = 50,
) -> Reply:
    """List the merges that your site started, newest first."""
    with invocation.pool() as pool:
        found = invocation.first_of(pool.merges.list(state or ""), limit)
    return listing(
        found,
        ["merge", "state", "method", "models", "name", "asked", "result"],
        _row,
        empty="no merges found",
    )


@command(app, "info", examples=["merges info 4f1d2c3b4a596877"])
def info(invocation: Invocation, merge_id: _MergeArgument) -> Reply:
    """Show the progress, result or error of a merge."""
    with invocation.pool() as pool:
        found = pool.merges.get(_checked_id(merge_id))
    return Reply(found, _description(found), [found.merge_id])


@command(app, "cancel", examples=["merges cancel 4f1d2c3b4a596877"])
def cancel(invocation: Invocation, merge_id: _MergeArgument) -> Reply:
    """Cancel a merge. A finished merge does not change."""
    with invocation.pool() as pool:
        found = pool.merges.cancel(_checked_id(merge_id))
    words = f"is {found.state}" if found.ended_at else "ends within seconds"
    return Reply(found, f"merge {merge_id} {words}", [found.merge_id])


def note_unsigned(invocation: Invocation, pool: PoolClient, made: ModelVersionResponse) -> None:
    """Say what is left to do for others to see, and trust, what the pool made."""
    address = made.address
    if made.signed_by is None and pool.signatures.signing_key(made.site) is not None:
        invocation.note(
            f"your site signs its versions, but the pool cannot: make the same bytes at home "
            f"(poolctl merge --replay {address}), then: poolctl keys sign {address}"
        )
    if made.state == "draft":
        invocation.note(
            f"only your site and curators see {address} until: poolctl models publish {address}"
        )


def _checked_id(text: str) -> str:
    if not _MERGE_ID.fullmatch(text):
        raise UsageError(f"{text!r} is not a merge; see 'poolctl merges ls'")
    return text


def _recipe_of_words(pool: PoolClient, words: list[str], how: MergeOptions) -> Recipe:
    """Return the recipe that the words mean, its inputs by digest as the pool has them now."""
    from aggregators import Recipe, find_method
    from aggregators.methods import RecipeInput, RecipeMethod

    if len(words) < 2:
        raise UsageError(
            "expected METHOD ADDRESS..., for example: wba-cascade site-a/face-68 site-b/face-68"
        )
    method = find_method(words[0])
    for word in words[1:]:
        if not is_address(word):
            raise UsageError(
                f"{word}: expected an address in the pool such as site-a/face-68@2; "
                "files are merged at home, with 'poolctl merge'"
            )
    weights = how.weights() or [1.0] * (len(words) - 1)
    if len(weights) != len(words) - 1:
        raise UsageError(f"--weight: {len(weights)} numbers for {len(words) - 1} models")
    versions = [pool.version(word) for word in words[1:]]
    return Recipe(
        method=RecipeMethod(name=method.name, version=method.version),
        options=how.options(),
        inputs=tuple(
            RecipeInput(
                digest=version.digest,
                weight=each,
                address=version.address,
                file_name=version.file_name,
            )
            for version, each in zip(versions, weights, strict=True)
        ),
    )


def _row(found: MergeJobResponse) -> list[str]:
    state = f"{found.state} {found.progress:.0%}" if found.state == "running" else found.state
    return [
        found.merge_id,
        state,
        found.recipe["method"]["name"],
        str(len(found.recipe["inputs"])),
        f"{found.site}/{found.name}",
        f"{found.created_at:%Y-%m-%d %H:%M}",
        found.version or "",
    ]


def _description(found: MergeJobResponse) -> list[TableText]:
    rows = [
        ["merge", found.merge_id],
        ["state", found.state],
        ["method", found.recipe["method"]["name"]],
        ["name", f"{found.site}/{found.name}"],
        ["asked", f"{found.created_at:%Y-%m-%d %H:%M} UTC by {found.created_by}"],
    ]
    if found.state == "running":
        rows.append(["progress", f"{found.progress:.0%} {found.activity}"])
    if found.refusal is not None:
        rows.append(["failed", found.refusal.message])
    if found.version is not None:
        rows += [["result", found.version], ["sha256", found.digest or ""]]
    inputs = [
        [each.get("address") or "", f"{each['weight']:g}", each["digest"][:16]]
        for each in found.recipe["inputs"]
    ]
    return [
        TableText(["what", "value"], rows),
        TableText(["input", "weight", "digest"], inputs),
    ]
