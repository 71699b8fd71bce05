"""Making a merged model again from its recipe, exactly, or without some of its inputs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from aggregators.errors import OptionError, RecipeError, RecipeInputMissingError
from aggregators.formats import file_digest
from aggregators.methods.merging import Merged, merge, refuse_overwriting_inputs, require_place_for
from aggregators.methods.recipe import (
    LeftOut,
    Recipe,
    RecipeInput,
    Succession,
    recipe_path,
    write_recipe,
)
from aggregators.methods.registry import find_method


def replay(
    recipe: Recipe,
    find: Callable[[str], Path],
    output: Path | str,
    *,
    without: str | Collection[str] = (),
    rebuilt: Mapping[str, RecipeInput] | None = None,
    left_out: Sequence[LeftOut] = (),
    progress: Callable[[float, str], None] | None = None,
) -> Merged:
    """Repeat a merge.

    Weights stay as the recipe gives them: only their ratios count, so those of what remains make
    up for what is left out.

    Parameters
    ----------
    find : callable
        Gives the file of a digest; raises `LookupError` or `OSError` when it has none.
    output : path
        Written only when the bytes are those that the recipe promises.
    without : str or collection of str, optional
        Digests of inputs to leave out. The result is then a new model with its own recipe, which
        names what it replaces, and there is no digest to compare with.
    rebuilt : mapping, optional
        Inputs that were made again themselves: what to take in place of each, by its digest. The
        weights are those of the inputs that they replace.
    left_out : sequence of LeftOut, optional
        What the new recipe says was left out; the inputs in `without` when empty.
    progress : callable, optional
        As in `merge`.

    Raises
    ------
    OptionError
        The output is one of the inputs, `without` leaves none, or names an input of `rebuilt`.
    RecipeInputMissingError
        An input was not found.
    RecipeError
        An input has other bytes, `without` or `rebuilt` names no input, the method's version is
        another, or the result has another digest.
    """
    absent = frozenset([without] if isinstance(without, str) else without)
    changed = dict(rebuilt or {})
    target = Path(output)
    require_place_for(target)
    _require_same_version(recipe)
    kept = _kept_inputs(recipe, absent, changed)
    files = {entry.digest: _found_file(kept, entry, find) for entry in kept}
    refuse_overwriting_inputs(target, files.values())
    with tempfile.TemporaryDirectory(prefix=".replay-", dir=target.parent) as folder:
        attempt = Path(folder) / target.name
        merged = merge(
            recipe.method.name,
            [files[entry.digest] for entry in kept],
            weights=[entry.weight for entry in kept],
            options=recipe.options,
            output=attempt,
            output_format=recipe.output.format if recipe.output else None,
            addresses=[entry.address for entry in kept],
            progress=progress,
        )
        # The original names are worth more than those of wherever `find` keeps its files.
        facts = {"inputs": kept, "successor_of": recipe.successor_of}
        if absent or changed:
            facts["successor_of"] = _succession(recipe, absent, left_out)
        merged = replace(merged, recipe=merged.recipe.model_copy(update=facts))
        if not (absent or changed):
            _require_promised_digest(recipe, merged)
        attempt.replace(target)
    write_recipe(merged.recipe, recipe_path(target))
    return merged


def recipe_without(
    recipe: Recipe,
    without: str | Collection[str] = (),
    *,
    rebuilt: Mapping[str, RecipeInput] | None = None,
    left_out: Sequence[LeftOut] = (),
) -> Recipe:
    """Return the recipe that `replay` carries out with these arguments, for others to carry out.

    Its output is open. Without anything to leave out or to take rebuilt it is the recipe itself.

    Raises
    ------
    OptionError, RecipeError
        As `replay`.
    """
    absent = frozenset([without] if isinstance(without, str) else without)
    changed = dict(rebuilt or {})
    if not absent and not changed:
        return recipe
    facts = {
        "inputs": _kept_inputs(recipe, absent, changed),
        "output": None,
        "successor_of": _succession(recipe, absent, left_out),
    }
    return recipe.model_copy(update=facts)


def _require_same_version(recipe: Recipe) -> None:
    here = find_method(recipe.method.name).version
    if recipe.method.version != here:
        raise RecipeError(
            f"the recipe was made with version {recipe.method.version} of {recipe.method.name}, "
            f"this program has version {here} and would give other bytes; merge the inputs anew, "
            "or install the poolctl that wrote the recipe"
        )


def _kept_inputs(
    recipe: Recipe, absent: frozenset[str], changed: Mapping[str, RecipeInput]
) -> tuple[RecipeInput, ...]:
    """Return the inputs that are merged, those that were rebuilt in the place of the old ones."""
    unknown = sorted({*absent, *changed}.difference(recipe.input_digests))
    if unknown:
        raise RecipeError(
            f"{unknown[0]} is none of the recipe's {len(recipe.input_digests)} inputs, "
            "so it cannot be left out"
        )
    both = sorted(absent.intersection(changed))
    if both:
        raise OptionError(f"{both[0]} is to be left out and yet to be taken rebuilt")
    kept = tuple(
        changed[entry.digest].model_copy(update={"weight": entry.weight})
        if entry.digest in changed
        else entry
        for entry in recipe.inputs
        if entry.digest not in absent
    )
    if not kept:
        raise OptionError("no input is left to merge: every one of the recipe's is left out")
    return kept


def _succession(
    recipe: Recipe, absent: frozenset[str], left_out: Sequence[LeftOut]
) -> Succession | None:
    """Return what the new recipe says of the one that it was made from."""
    if recipe.output is None:
        return None
    entries = {entry.digest: entry for entry in recipe.inputs if entry.digest in absent}
    named = tuple(left_out) or tuple(
        LeftOut(digest=entry.digest, address=entry.address, file_name=entry.file_name)
        for entry in entries.values()
    )
    return Succession(digest=recipe.output.digest, without=named)


def _found_file(
    inputs: Sequence[RecipeInput], entry: RecipeInput, find: Callable[[str], Path]
) -> Path:
    number = inputs.index(entry) + 1
    known_as = entry.address or entry.file_name
    label = f"input {number} of {len(inputs)} (sha256 {entry.digest}" + (
        f", {known_as})" if known_as else ")"
    )
    try:
        path = Path(find(entry.digest))
        digest = file_digest(path)
    except (LookupError, OSError) as error:
        raise RecipeInputMissingError(f"{label} is missing: {error}") from error
    if digest != entry.digest:
        raise RecipeError(f"{label}: {path} has other bytes, its sha256 is {digest}")
    return path


def _require_promised_digest(recipe: Recipe, merged: Merged) -> None:
    if recipe.output is not None and merged.digest != recipe.output.digest:
        raise RecipeError(
            f"the merge gave sha256 {merged.digest}, the recipe promises {recipe.output.digest}: "
            "the recipe was changed, or its model was not made from these inputs"
        )
