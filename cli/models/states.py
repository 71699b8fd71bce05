"""``poolctl models queue|publish|quarantine|rm``: from draft to published and away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.errors import UsageError
from cli.frame.options import (
    DryRunOption,
    LimitOption,
    UndoOption,
    YesOption,
    command,
    single,
)
from cli.frame.output import Invocation, Reply, listing
from cli.frame.quantities import count_words
from cli.models.records import state_words

if TYPE_CHECKING:
    from pool_server.wire.models import DeletionResponse, ModelVersionResponse

app = single()

VersionArgument = Annotated[
    str,
    typer.Argument(metavar="ADDRESS", help="[SITE/]NAME[@VERSION]. Default: the newest one."),
]


@command(app, "queue", examples=["models queue", "models queue -q"])
def queue(
    invocation: Invocation,
    *,
    limit: LimitOption = 50,
) -> Reply:
    """List drafts and quarantined versions that wait for a curator."""
    with invocation.pool() as pool:
        found = invocation.first_of(pool.models.queue(), limit)
    return listing(
        found,
        ["address", "kind", "uploaded by", "on", "state"],
        lambda version: [
            version.address,
            version.kind,
            version.created_by,
            f"{version.created_at:%Y-%m-%d}",
            state_words(version),
        ],
        empty="nothing waits",
    )


@command(app, "publish", examples=["models publish site-a/face-68@3"])
def publish(invocation: Invocation, address: VersionArgument) -> Reply:
    """Publish a draft to everyone who may see its model.

    In a curated pool only curators of the pool can do this; in others, everyone who may upload to
    the site.
    """
    with invocation.pool() as pool:
        return _reply(pool.models.publish(address))


@command(
    app,
    "quarantine",
    examples=[
        "models quarantine site-a/face-68@3 --reason 'Landmarks of one eye are swapped'",
        "models quarantine site-a/face-68@3 --undo",
    ],
)
def quarantine(
    invocation: Invocation,
    address: VersionArgument,
    *,
    reason: Annotated[str, typer.Option(help="The reason.", show_default=False)] = "",
    undo: UndoOption = False,
) -> Reply:
    """Hide a version from other sites until it is checked, or release it (curators only)."""
    if undo == bool(reason):
        raise UsageError("give the --reason of a quarantine, or --undo to end one")
    with invocation.pool() as pool:
        if undo:
            return _reply(pool.models.release(address))
        return _reply(pool.models.quarantine(address, reason))


@command(
    app,
    "rm",
    examples=["models rm site-a/face-68@2", "models rm site-a/tryout --all-versions -y"],
)
def rm(
    invocation: Invocation,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="[SITE/]NAME@VERSION.")],
    *,
    all_versions: Annotated[
        bool,
        typer.Option(help="Delete the whole model; give ADDRESS without a version."),
    ] = False,
    despite_descendants: Annotated[
        bool,
        typer.Option(help="Delete it although other models were made from it."),
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Delete a version of your own, or a model with all its versions, permanently.

    Names and version numbers are never reused. To warn everyone who uses it, withdraw it instead: a
    withdrawal follows the model through all merges.
    """
    from site_agent.pool.client import ModelQuery, parse_address

    where = parse_address(address)
    if all_versions and where.reference:
        raise UsageError(f"{address}: --all-versions deletes the model; leave @... out")
    if not all_versions and not where.reference:
        raise UsageError(f"{address}: name the version (@...), or give --all-versions")
    with invocation.pool() as pool:
        if all_versions:
            query = ModelQuery(site=where.site, name=where.name, state="any")
            versions = list(pool.models.find(query))
            what = f"{where.site}/{where.name} with {count_words(len(versions), 'version')}"
        else:
            versions = [pool.version(where)]
            what = versions[0].address
        if dry_run:
            data = {"deleted": [], "would_delete": [version.address for version in versions]}
            return Reply(data, f"would delete {what}")
        invocation.confirm(f"Delete {what} permanently?", assume_yes=yes)
        if all_versions:
            done = pool.models.delete_model(where, force=despite_descendants)
        else:
            done = pool.models.delete_version(versions[0].address, force=despite_descendants)
    return Reply(done, _deletion_lines(done), done.deleted)


def _deletion_lines(done: DeletionResponse) -> list[str]:
    lines = [f"deleted {address}" for address in done.deleted]
    if done.descendants:
        lines.append(f"{len(done.descendants)} files made from it stay, with their family trees")
    if done.file_remains:
        lines.append("its file stays: another version has the same bytes")
    return lines or ["there was no version to delete; the name is gone"]


def _reply(version: ModelVersionResponse) -> Reply:
    return Reply(version, f"{version.address} is {state_words(version)}", [version.address])
