"""``poolctl merge``: merge models, or replay a merge from its recipe."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from cli.frame.errors import UsageError
from cli.frame.existing_files import require_free
from cli.frame.options import Argument, command, single
from cli.frame.output import Invocation, Reply
from cli.options.merging import MergeHere, MergeOptions, PoolMergeOptions
from cli.options.versions import NewVersionOptions

app = single()


@command(
    app,
    "merge",
    "merge mwma siteA.svm siteB.svm --weight images -o merged.svm",
    "merge wba-cascade siteA.dat site-b/face-68@2 --weight 1.5,1 --option step=1.1",
    "merge wba-final siteA.dat siteB.dat -o merged.forest",
    "merge --replay merged.dat.recipe.json --without site-b/face-68@2 -o successor.dat",
    "merge wba-cascade site-a/face-68@2 site-b/face-68 --name merged-68",
)
def merge(
    invocation: Invocation,
    arguments: Annotated[
        list[str] | None,
        Argument(
            "A method, for example mwma, wba-cascade, fedavg or median; then files or "
            "addresses. With --replay: files or addresses to search for inputs.",
            "METHOD INPUT",
        ),
    ] = None,
    *,
    how: MergeOptions,
    here: MergeHere,
    place: PoolMergeOptions,
    version: NewVersionOptions,
) -> Reply:
    """Merge models of several sites into one, on this machine or on the pool.

    A recipe next to the result records the method, options, weights and digests of the inputs.
    --replay makes the same bytes again from a recipe; inputs are searched among the given files,
    next to the recipe, in the cache and in the pool. --without leaves a model out; inputs that
    contain it are made again first. The new recipe names the model that the result replaces, and
    the pool links the two after the upload.

    With --name, the pool merges; nothing is downloaded. The result has the same bytes, and is
    published with its recipe and lineage, described by --label, --description, --term, --draft and
    --visibility. 'poolctl merges' shows the progress.
    """
    how.require_consistent()
    _require_fitting(how, here, place, version)
    from cli.merge.central import merge_on_pool
    from cli.merge.replaying import replay_merge

    if place.name:
        return merge_on_pool(invocation, arguments or [], how, place, version)
    if how.replay:
        if here.output_format:
            raise UsageError("--replay takes method, weights and options from the recipe")
        return replay_merge(
            invocation, arguments or [], how, here, despite_withdrawal=version.despite_withdrawal
        )
    return _merge_here(invocation, arguments or [], how, here, version)


def _require_fitting(
    how: MergeOptions, here: MergeHere, place: PoolMergeOptions, version: NewVersionOptions
) -> None:
    """Refuse options of the other place."""
    if place.name and here != MergeHere():
        raise UsageError("--output, --format and --force are not for a pool that merges")
    if place.name and how.replay:
        raise UsageError(
            "--replay merges at home, without --name; 'poolctl upload' sends the result"
        )
    described = replace(version, despite_withdrawal=False)
    if not place.name and (place != PoolMergeOptions() or described != NewVersionOptions()):
        raise UsageError(
            "--wait, --label, --description, --term, --draft and --visibility need --name, by "
            "which the pool merges; to describe a file, give them to 'poolctl upload'"
        )


def _merge_here(
    invocation: Invocation,
    arguments: Sequence[str],
    how: MergeOptions,
    here: MergeHere,
    version: NewVersionOptions,
) -> Reply:
    from aggregators import find_method
    from cli.merge.replaying import choose_target, merged_reply
    from site_agent.tasks.merging import plan_merge

    if len(arguments) < 2:
        raise UsageError("expected METHOD INPUT..., for example: mwma siteA.svm siteB.svm")
    method, *inputs = arguments
    target = choose_target(here.output, here.output_format or find_method(method).output_formats[0])
    require_free(target, force=here.force)
    plan = plan_merge(
        invocation,
        method,
        inputs,
        target,
        weights=how.weight if how.weighs_by_label else how.weights(),
        options=how.options(),
        despite_withdrawal=version.despite_withdrawal,
    )
    merged = plan.carry_out(invocation, target, here.output_format)
    return merged_reply(invocation, merged, target)
