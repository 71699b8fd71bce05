"""Repeating a merge from its recipe, exactly or without some of its inputs."""

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aggregators.errors import OptionError, RecipeError, RecipeInputMissingError
from aggregators.formats import file_digest
from aggregators.methods import merging, registry
from aggregators.methods import recipe as recipes
from aggregators.methods.networks.round_files import state_path
from aggregators.whole_file import made_apart


def replay(
    recipe: recipes.Recipe,
    find: Callable[[str], Path],
    output: Path | str,
    *,
    without: str | Collection[str] = (),
    rebuilt: Mapping[str, recipes.RecipeInput] | None = None,
    left_out: Sequence[recipes.LeftOut] = (),
    progress: Callable[[float, str], None] | None = None,
) -> merging.Merged:
    """Repeat a merge. Weights stay as in the recipe, as only their ratios matter.

    Parameters
    ----------
    find : callable
        Returns the file with a digest, or raises `LookupError` or `OSError`.
    output : path
        Written only if its digest is the one in the recipe.
    without : str or collection of str, optional
        Digests of inputs to leave out. The result is then a new model, and its recipe names the
        one that it replaces.
    rebuilt : mapping, optional
        Replacements of inputs, by the inputs' digests; the inputs' weights are kept.
    left_out : sequence of LeftOut, optional
        Entries of the new recipe for the inputs left out; by default those in `without`.
    progress : callable, optional
        As in `merge`.

    Raises
    ------
    OptionError
        The output is an input, or no input is left.
    RecipeInputMissingError
        Inputs were not found; names all of them.
    RecipeError
        An input or the result has another digest, `without` or `rebuilt` names no input, or the
        method has another version.
    """
    absent = frozenset([without] if isinstance(without, str) else without)
    changed = dict(rebuilt or {})
    target = Path(output)
    merging.require_place_for(target)
    _require_same_version(recipe)
    kept = _keep_inputs(recipe, absent, changed)
    files = _find_files(kept, find)
    merging.refuse_overwriting_inputs(target, files.values())
    # Next to the target, so that the result is moved, not copied, once its digest is right.
    unsettled = tempfile.TemporaryDirectory(prefix=".replay-", dir=target.parent)
    with made_apart(target), unsettled as folder:
        attempt = Path(folder) / target.name
        merged = merging.merge(
            recipe.method.name,
            [files[entry.digest] for entry in kept],
            weights=[entry.weight for entry in kept],
            options=recipe.options,
            output=attempt,
            output_format=recipe.output.format if recipe.output else None,
            addresses=[entry.address for entry in kept],
            progress=progress,
        )
        # Keep the recipe's file names instead of those of the copies that `find` returned.
        facts = {"inputs": kept, "successor_of": recipe.successor_of}
        if absent or changed:
            facts["successor_of"] = _describe_succession(recipe, absent, left_out)
        merged = replace(merged, recipe=merged.recipe.model_copy(update=facts))
        if not (absent or changed):
            _require_same_digest(recipe, merged)
        attempt.replace(target)
        if merged.state is not None:
            state_path(attempt).replace(state_path(target))
    recipes.write_recipe(merged.recipe, recipes.recipe_path(target))
    return merged


def _require_same_version(recipe: recipes.Recipe) -> None:
    here = registry.find_method(recipe.method.name).version
    # Another version makes other bytes from the same inputs, as a changed recipe would.
    if recipe.method.version != here:
        raise RecipeError(
            f"the recipe needs version {recipe.method.version} of {recipe.method.name}, but this "
            f"program has version {here}; merge the inputs again, or install the poolctl that "
            "wrote the recipe"
        )


def _keep_inputs(
    recipe: recipes.Recipe, absent: frozenset[str], changed: Mapping[str, recipes.RecipeInput]
) -> tuple[recipes.RecipeInput, ...]:
    """Return the inputs to merge, with replacements for those that were rebuilt."""
    unknown = sorted({*absent, *changed}.difference(recipe.input_digests))
    if unknown:
        raise RecipeError(
            f"{unknown[0]} is not among the recipe's {len(recipe.input_digests)} inputs"
        )
    kept = tuple(
        changed[entry.digest].model_copy(update={"weight": entry.weight})
        if entry.digest in changed
        else entry
        for entry in recipe.inputs
        if entry.digest not in absent
    )
    if not kept:
        raise OptionError("no input is left to merge")
    return kept


def _describe_succession(
    recipe: recipes.Recipe, absent: frozenset[str], left_out: Sequence[recipes.LeftOut]
) -> recipes.Succession | None:
    """Return the new recipe's entry for the model that it replaces."""
    if recipe.output is None:
        return None
    entries = {entry.digest: entry for entry in recipe.inputs if entry.digest in absent}
    named = tuple(left_out) or tuple(
        recipes.LeftOut(digest=entry.digest, address=entry.address, file_name=entry.file_name)
        for entry in entries.values()
    )
    return recipes.Succession(digest=recipe.output.digest, without=named)


def _find_files(
    inputs: Sequence[recipes.RecipeInput], find: Callable[[str], Path]
) -> dict[str, Path]:
    files: dict[str, Path] = {}
    missing: dict[str, str] = {}
    for entry in inputs:
        if entry.digest in files or entry.digest in missing:
            continue
        try:
            files[entry.digest] = _find_file(inputs, entry, find)
        except RecipeInputMissingError as error:
            missing[entry.digest] = str(error)
    if missing:
        raise RecipeInputMissingError("\n".join(missing.values()))
    return files


def _find_file(
    inputs: Sequence[recipes.RecipeInput], entry: recipes.RecipeInput, find: Callable[[str], Path]
) -> Path:
    number = inputs.index(entry) + 1
    known_as = entry.address or entry.file_name
    label = f"input {number} of {len(inputs)} (sha256 {entry.digest}" + (
        f", {known_as})" if known_as else ")"
    )
    try:
        path = Path(find(entry.digest))
        # `find` may be a folder of files that were renamed or changed since.
        digest = file_digest(path)
    except (LookupError, OSError) as error:
        raise RecipeInputMissingError(f"{label} is missing: {error}") from error
    if digest != entry.digest:
        raise RecipeError(f"{label}: {path} has another sha256: {digest}")
    return path


def _require_same_digest(recipe: recipes.Recipe, merged: merging.Merged) -> None:
    expected_output, made = recipe.output, merged.recipe.output
    if expected_output is None or made is None:
        return
    for what, actual, expected in (
        ("merge", made.digest, expected_output.digest),
        ("optimiser's state", made.state, expected_output.state),
    ):
        if actual != expected:
            raise RecipeError(
                f"the {what} gave sha256 {actual}, but the recipe has {expected}: "
                "the recipe was changed, or its model was not made from these inputs"
            )
