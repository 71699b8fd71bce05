"""``poolctl merge``: merge models on this machine, or replay a merge from its recipe."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from aggregators import find_method
from aggregators import merge as merge_models
from aggregators.methods.merging import refuse_overwriting_inputs
from cli.frame.addresses import ModelFile, known_version, model_files
from cli.frame.errors import UsageError
from cli.frame.existing_files import place_for_model, words_on_existing
from cli.frame.options import (
    Argument,
    DespiteWithdrawalOption,
    DryRunOption,
    ForceOption,
    FormatOption,
    Option,
    command,
    single,
)
from cli.frame.output import Invocation, Reply
from cli.merge.inputs import local_copies, require_not_withdrawn, weights_from_label
from cli.merge.replaying import ReplayRequest, choose_target, merged_reply, replay_merge
from cli.options.data import MergeOptions
from cli.options.versions import PurposeOption, check_terms, read_purposes
from site_agent.wording import count_words

app = single()


@command(
    app,
    "merge",
    "merge mwma siteA.svm siteB.svm --weight-by images -o merged.svm",
    "merge wba-cascade siteA.dat pool://site-b/face-68@2 --weight 1.5,1 --step 1.1",
    "merge wba-final siteA.dat siteB.dat -o merged.forest",
    "merge --replay merged.dat.recipe.json --without site-b/face-68@2 -o successor.dat",
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
    output: Annotated[Path | None, Option("The file to write. Default: merged.SUFFIX.")] = None,
    how: MergeOptions,
    weight_by: Annotated[
        str, Option("Take the weights from a label, for example images.", "LABEL")
    ] = "",
    output_format: FormatOption = "",
    purpose: PurposeOption = (),
    despite_terms: Annotated[
        bool, Option("Merge although terms of use forbid it; the pool refuses the result.")
    ] = False,
    despite_withdrawal: DespiteWithdrawalOption = False,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Merge models of several sites into one, on this machine.

    A recipe next to the result records the method, options, weights and digests of the inputs.
    --replay makes the same bytes again from a recipe; inputs are searched among the given files,
    next to the recipe, in the cache and in the pool. --without leaves a model out; inputs that
    contain it are made again first. The new recipe names the model that the result replaces, and
    the pool links the two after the upload.
    """
    how.require_consistent()
    if how.replay:
        if weight_by or output_format:
            raise UsageError("--replay takes method, weights and options from the recipe")
        request = ReplayRequest(
            how.replay, arguments or [], how.without, output, force, dry_run, despite_withdrawal
        )
        return replay_merge(invocation, request)
    if how.weight and weight_by:
        raise UsageError("--weight and --weight-by cannot both be given")
    if not arguments or len(arguments) < 2:
        raise UsageError("expected METHOD INPUT..., for example: mwma siteA.svm siteB.svm")
    method, inputs = arguments[0], arguments[1:]
    chosen = find_method(method)
    format_name = output_format or chosen.output_formats[0]
    target = choose_target(output, format_name)
    files = model_files(invocation, inputs, to_merge=True)
    check_terms(invocation, files, read_purposes(purpose), despite=despite_terms)
    require_not_withdrawn(invocation, local_copies(files), despite=despite_withdrawal)
    weights = how.weights()
    if weight_by:
        weights = weights_from_label(invocation, files, weight_by)
    options = how.options()
    if dry_run:
        plan = {"method": method, "inputs": inputs, "weights": weights, "options": options}
        summary = f"would merge {count_words(len(files), 'model')} into {target}"
        summary += words_on_existing(target, force=force)
        return Reply(plan | {"output": target}, summary)
    paths = [file.path for file in files]
    refuse_overwriting_inputs(target, paths)
    with (
        place_for_model(target, force=force) as place,
        invocation.progress(f"merge {method}") as report,
    ):
        merged = merge_models(
            method,
            paths,
            weights=weights,
            options=options,
            output=place,
            output_format=output_format or None,
            **_origins(files),
            progress=report,
        )
    if len(merged.recipe.inputs) == 1:
        invocation.warn("a merge of only one model gives the same model")
    return merged_reply(invocation, merged, target)


def _origins(files: Sequence[ModelFile]) -> dict[str, list[str | None]]:
    """Return the addresses and file names that the pool knows for the inputs."""
    versions = [known_version(file) for file in files]
    return {
        "addresses": [None if version is None else version.address for version in versions],
        "file_names": [None if version is None else version.file_name for version in versions],
    }
