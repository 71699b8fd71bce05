"""``poolctl merge``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.addresses import SUFFIX_OF_FORMAT, ModelFile, known_version, model_files, size_words
from cli.errors import OutputExistsError, UsageError
from cli.merge_inputs import InputFinder, digests_to_leave_out, weights_from_label
from cli.options import DryRunOption, ForceOption, command, key_value_pairs, numbers, single
from cli.output import Invocation, Reply
from cli.terms import PurposeOption, check_terms, read_purposes

if TYPE_CHECKING:
    from aggregators import Merged

app = single()


@command(
    app,
    "merge",
    examples=[
        "merge mwma siteA.svm siteB.svm --weight-by images -o merged.svm",
        "merge wba-cascade siteA.dat pool://site-b/face-68@2 --weight 1.5,1 --step 1.1",
        "merge wba-final siteA.dat siteB.dat -o merged.forest",
        "merge --replay merged.dat.recipe.json --without site-b/face-68@2 -o successor.dat",
    ],
)
def merge(
    invocation: Invocation,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD INPUT",
            help="mwma, wba-cascade, wba-final, leaf-refit or fedavg; then files or addresses. "
            "With --replay only files or addresses in which to look for inputs.",
            show_default=False,
        ),
    ] = None,
    *,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="merged.SUFFIX when left out."),
    ] = None,
    weight: Annotated[
        str, typer.Option(metavar="NUMBERS", help="One an input: 1.5,1,1. Equal when left out.")
    ] = "",
    weight_by: Annotated[
        str, typer.Option(metavar="LABEL", help="Weights from a label, for example images.")
    ] = "",
    step: Annotated[
        float | None, typer.Option(help="wba-cascade: factor on every update (1.1 is good).")
    ] = None,
    thin: Annotated[
        int | None, typer.Option(help="wba-cascade: keep so many trees a level.")
    ] = None,
    option: Annotated[
        list[str], typer.Option(metavar="KEY=VALUE", help="Any other option of the method.")
    ] = [],  # noqa: B006 (typer wants the default itself)
    output_format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="By the suffix when left out.")
    ] = "",
    recipe: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write the recipe; beside the output."),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="RECIPE", help="Make the same bytes again from this recipe."),
    ] = None,
    without: Annotated[
        list[str],
        typer.Option(metavar="DIGEST|ADDRESS", help="With --replay: leave this input out."),
    ] = [],  # noqa: B006
    purpose: PurposeOption = [],  # noqa: B006
    despite_terms: Annotated[
        bool,
        typer.Option(
            "--despite-terms", help="Merge what terms of use forbid; the pool takes no result."
        ),
    ] = False,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Merge models of several sites into one, at home.

    The recipe written beside the result holds method, options, weights and the digests of the
    inputs; --replay makes the same bytes again from it, with inputs found among the files given,
    beside the recipe, in the cache and in the pool.
    """
    if replay is not None:
        settings = [weight, weight_by, step, thin, option, output_format]
        if any(setting not in (None, "", []) for setting in settings):
            raise UsageError("--replay takes method, weights and options from the recipe")
        return _replay(
            invocation,
            replay,
            words or [],
            without=without,
            output=output,
            recipe=recipe,
            force=force,
            dry_run=dry_run,
        )
    if without:
        raise UsageError("--without goes with --replay RECIPE")
    if weight and weight_by:
        raise UsageError("--weight and --weight-by cannot both be given")
    if not words or len(words) < 2:
        raise UsageError("expected METHOD INPUT..., for example: mwma siteA.svm siteB.svm")
    method, inputs = words[0], words[1:]
    from aggregators import find_method
    from aggregators import merge as merge_models

    chosen = find_method(method)
    format_name = output_format or chosen.output_formats[0]
    target = _target(output, format_name, force=force)
    files = model_files(invocation, inputs)
    check_terms(invocation, files, read_purposes(purpose), despite=despite_terms)
    weights = numbers(weight, "--weight") if weight else None
    if weight_by:
        weights = weights_from_label(invocation, files, weight_by)
    options = method_options(option, step=step, thin=thin)
    if dry_run:
        plan = {"method": method, "inputs": inputs, "weights": weights, "options": options}
        return Reply(plan | {"output": target}, f"would merge {len(files)} models into {target}")
    with invocation.progress(f"merge {method}") as report:
        merged = merge_models(
            method,
            [file.path for file in files],
            weights=weights,
            options=options,
            output=target,
            output_format=output_format or None,
            **_origins(files),
            progress=report,
        )
    return _reply(invocation, merged, target, recipe)


def _replay(
    invocation: Invocation,
    recipe_file: Path,
    words: Sequence[str],
    *,
    without: Sequence[str],
    output: Path | None,
    recipe: Path | None,
    force: bool,
    dry_run: bool,
) -> Reply:
    """Make a merged model again."""
    from aggregators import read_recipe
    from aggregators import replay as replay_recipe

    old = read_recipe(recipe_file)
    promised = old.output.format if old.output else ""
    target = _target(output, promised, force=force)
    left_out = digests_to_leave_out(invocation, old, without)
    if dry_run:
        kept = [digest for digest in old.input_digests if digest not in left_out]
        plan = {"method": old.method.name, "inputs": kept, "left_out": left_out, "output": target}
        return Reply(plan, f"would merge {len(kept)} models into {target}")
    with (
        InputFinder(invocation, recipe_file, old, words) as finder,
        invocation.progress(f"replay {old.method.name}") as report,
    ):
        merged = replay_recipe(old, finder.find, target, without=left_out, progress=report)
    return _reply(invocation, merged, target, recipe)


def _reply(invocation: Invocation, merged: Merged, target: Path, recipe: Path | None) -> Reply:
    from aggregators import recipe_path

    written = recipe_path(target)
    if recipe is not None and recipe.resolve() != written.resolve():
        recipe.parent.mkdir(parents=True, exist_ok=True)
        recipe.write_bytes(merged.recipe.to_json())
        written.unlink()
        written = recipe
    for warning in merged.warnings:
        invocation.warn(warning)
    size_bytes = target.stat().st_size
    data = {
        "output": target,
        "digest": merged.digest,
        "size_bytes": size_bytes,
        "recipe_file": written,
        "recipe": merged.recipe.model_dump(mode="json", by_alias=True),
        "warnings": merged.warnings,
    }
    count = len(merged.recipe.inputs)
    text = [
        f"{target}  ({count} models by {merged.recipe.method.name}, {size_words(size_bytes)})",
        f"sha256 {merged.digest}",
        f"recipe {written}",
    ]
    return Reply(data, text, [str(target)])


def _target(output: Path | None, format_name: str, *, force: bool) -> Path:
    """Return where to write; only a name that the user did not choose may be in the way."""
    if output is not None:
        return output
    target = Path(f"merged{SUFFIX_OF_FORMAT.get(format_name, '')}")
    if target.exists() and not force:
        raise OutputExistsError(f"{target}: is there already")
    return target


def method_options(words: list[str], *, step: float | None, thin: int | None) -> dict[str, Any]:
    """Return a method's options; values are JSON where they can be (numbers, true, null)."""
    options: dict[str, Any] = {}
    for key, text in key_value_pairs(words, "--option").items():
        try:
            options[key] = json.loads(text)
        except ValueError:
            options[key] = text
    for key, value in (("step", step), ("thin", thin)):
        if value is not None:
            if key in options:
                raise UsageError(f"--option {key}=... and --{key} cannot both be given")
            options[key] = value
    return options


def _origins(files: Sequence[ModelFile]) -> dict[str, list[str | None]]:
    """Return where inputs come from and what they were called there, where a pool knows them."""
    versions = [known_version(file) for file in files]
    return {
        "addresses": [None if version is None else version.address for version in versions],
        "file_names": [None if version is None else version.file_name for version in versions],
    }
