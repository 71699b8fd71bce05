"""Merging models and files, with a recipe that gives the same bytes again.

`read_input` and `encode_input` read and write all that methods combine: models, contributions of
rounds, and states of optimisers.
"""

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from aggregators import models as model_types
from aggregators.errors import ConversionError, OptionError
from aggregators.formats import decode_model, encode_model, file_digest, read_model, write_model
from aggregators.formats.dlib_stream import Buffer
from aggregators.formats.registry import (
    HEAD_BYTES,
    decode_named,
    format_of_suffix,
    list_formats,
    load_bytes,
)
from aggregators.formats.safetensors_file import recognises_safetensors
from aggregators.methods import contract, registry
from aggregators.methods import recipe as recipes
from aggregators.methods.networks import round_files
from aggregators.methods.refitting import contribution_file
from aggregators.methods.sub_models import SubModels, check_weights, collect_sub_models

_DECODERS: Mapping[str, Callable[[Buffer], model_types.MergeInput]] = {
    contribution_file.LEAF_CONTRIBUTION: contribution_file.decode_contribution,
    round_files.NETWORK_CONTRIBUTION: round_files.decode_network_contribution,
    round_files.OPTIMISER_STATE: round_files.decode_optimiser_state,
}
"""By the ``format`` in the metadata of a safetensors file."""


def read_input(path: Path) -> model_types.MergeInput:
    """Read a model file, a contribution or an optimiser state."""
    if not path.is_file():
        return read_model(path)
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        decode = _find_decoder(head)
        if decode is None:
            return read_model(path)
        data = load_bytes(file)
    return decode_named(decode, data, path)


def encode_input(item: model_types.MergeInput) -> bytes:
    """Return the bytes of an input's file in its default format."""
    if isinstance(item, model_types.LeafContribution):
        return contribution_file.encode_contribution(item)
    if isinstance(item, model_types.NetworkContribution):
        return encode_model(round_files.contribution_as_network(item))
    if isinstance(item, model_types.OptimiserState):
        return encode_model(round_files.state_as_network(item))
    return encode_model(item)


def digest_input(item: model_types.MergeInput) -> str:
    """Return the SHA-256 of an input's file in its default format."""
    return sha256(encode_input(item)).hexdigest()


def _find_decoder(head: bytes) -> Callable[[Buffer], model_types.MergeInput] | None:
    if not recognises_safetensors(head):
        return None
    return next(
        (decode for name, decode in _DECODERS.items() if f'"format":"{name}"'.encode() in head),
        None,
    )


_READ, _COMBINED, _WRITTEN = 0.6, 0.7, 0.85
"""Fractions done when inputs are read, the result is computed, and the model is written."""


@dataclass(frozen=True, eq=False)
class Merged:
    """The result of a merge."""

    model: model_types.Model
    recipe: recipes.Recipe = field(repr=False)
    warnings: tuple[str, ...]
    digest: str | None
    """SHA-256 of the written file; None when nothing was written."""
    state: model_types.OptimiserState | None = None
    """The server optimiser's input in the next round; written at `state_path`."""


@dataclass(frozen=True, eq=False)
class _LoadedInputs:
    models: tuple[model_types.MergeInput, ...]
    digests: tuple[str, ...]
    names: tuple[str, ...]
    file_names: tuple[str | None, ...]


def merge(
    method: str,
    inputs: Sequence[Path | str | model_types.MergeInput],
    *,
    weights: Sequence[float] | None = None,
    options: Mapping[str, Any] | None = None,
    output: Path | str | None = None,
    output_format: str | None = None,
    addresses: Sequence[str | None] | None = None,
    file_names: Sequence[str | None] | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Merged:
    """Make one model out of several.

    Parameters
    ----------
    method : str
        A name of `METHODS`.
    inputs : sequence of paths or models
        One or more. Parts that cannot be averaged come from the first.
    weights : sequence of float, optional
        Finite and positive, one for each input; equal by default.
    options : mapping, optional
        By name.
    output : path, optional
        Written atomically, together with ``<output>.recipe.json``, and ``<output>.state`` if the
        method is a server optimiser.
    output_format : str, optional
        By default that of the suffix of `output`, else the method's first.
    addresses : sequence of str or None, optional
        Address of each input in a pool, for the recipe.
    file_names : sequence of str or None, optional
        File name of each input in the recipe, if other than that of its path (a cached copy).
    progress : callable, optional
        Called with the fraction done and the current step.

    Raises
    ------
    UnknownMethodError, OptionError, WeightError
        Invalid arguments; nothing has been read yet.
    FormatError
        An input is not a valid model file.
    IncompatibleModelsError
        The inputs cannot be merged; names the first differing field.
    ConversionError
        The output format cannot hold the result.

    Examples
    --------
    >>> merged = merge("mwma", ["a.svm", "b.svm"], weights=[300, 120], output="merged.svm")
    >>> merged.recipe.method.name
    'mwma'
    """
    if isinstance(inputs, str | Path):
        raise TypeError("inputs must be a list of models or files, not one file name")
    chosen = registry.find_method(method)
    checked_options = contract.check_options(chosen.options_type, options or {}, chosen.name)
    report = progress or contract.no_progress
    known_addresses = _require_one_each(addresses, len(inputs), "addresses")
    known_file_names = _require_one_each(file_names, len(inputs), "file names")
    names = _name_inputs(inputs, known_addresses, known_file_names)
    checked_weights = check_weights(weights, names)
    target = None if output is None else Path(output)
    format_name = choose_output_format(chosen, target, output_format)
    if target is not None:
        require_place_for(target)
        refuse_overwriting_inputs(target, inputs)

    loaded = _load(inputs, names, known_file_names, report)
    sub_models = collect_sub_models(loaded.models, loaded.digests, loaded.names, checked_weights)
    combined = chosen.combine(
        sub_models,
        checked_options,
        lambda fraction, what: report(_READ + fraction * (_COMBINED - _READ), what),
    )
    warnings = (*_describe_copies(sub_models), *combined.warnings)
    recipe = _describe_merge(chosen, checked_options, loaded, checked_weights, known_addresses)
    if target is None:
        report(1.0, "merged")
        if combined.state is None:
            return Merged(combined.model, recipe, warnings, None)
        model, made = _compute_entries(combined.model, combined.state)
        return Merged(model, recipe, warnings, None, made)
    report(_COMBINED, f"writing {target.name}")
    digest = write_model(combined.model, target, format_name=format_name)
    written = recipes.RecipeOutput(digest=digest, format=format_name)
    state = combined.state
    if state is not None:
        report(_WRITTEN, f"writing {round_files.state_path(target).name}")
        state = replace(state, network_digest=digest)
        state_network = round_files.state_as_network(state)
        state_digest = write_model(
            state_network, round_files.state_path(target), format_name="safetensors"
        )
        written = written.model_copy(update={"state": state_digest})
    # Written last: a recipe that is there describes a model that is there.
    recipe = recipe.model_copy(update={"output": written})
    recipes.write_recipe(recipe, recipes.recipe_path(target))
    report(1.0, f"wrote {target.name}")
    return Merged(combined.model, recipe, warnings, digest, state)


def _compute_entries(
    model: model_types.Model, state: model_types.OptimiserState
) -> tuple[model_types.Model, model_types.OptimiserState]:
    """Return a network and a state that do not compute their entries from the inputs again.

    Otherwise each round would compute all earlier ones.
    """
    encoded = encode_model(model)
    named = replace(state, network_digest=sha256(encoded).hexdigest())
    return decode_model(encoded), round_files.decode_optimiser_state(encode_input(named))


def _describe_copies(sub_models: SubModels[model_types.MergeInput]) -> tuple[str, ...]:
    return tuple(
        f"{sub_model.name} is given {sub_model.copies} times and counts with the sum of its weights"
        for sub_model in sub_models.in_given_order
        if sub_model.copies > 1 and _shares_something(sub_model.model)
    )


def _shares_something(model: model_types.MergeInput) -> bool:
    """Return False for updates that keep all numbers at home, which are equal by design."""
    if not isinstance(model, model_types.NetworkContribution) or not model.shared:
        return True
    return len(model.shared) < len(model.network.infos) or any(
        mask.any() for mask in model.shared.values()
    )


def choose_output_format(
    method: contract.AggregationMethod[Any], output: Path | None, output_format: str | None
) -> str:
    """Return the format to write: the one asked for, else by suffix, else the method's first."""
    if output_format is not None:
        format_name, because = output_format, f"the format {output_format!r}"
    elif output is not None and (by_suffix := format_of_suffix(output)) is not None:
        format_name, because = by_suffix, f"{output.name} (by its suffix {by_suffix})"
    else:
        return method.output_formats[0]
    if format_name in method.output_formats:
        return format_name
    possible = list_formats(*method.output_formats)
    hint = f"; {method.format_hint}" if method.format_hint else ""
    raise ConversionError(f"{because} cannot hold a result of {method.name}: use {possible}{hint}")


def _require_one_each(
    texts: Sequence[str | None] | None, count: int, what: str
) -> tuple[str | None, ...]:
    if texts is None:
        return (None,) * count
    if len(texts) != count:
        raise OptionError(f"{len(texts)} {what} for {count} models: give one for each")
    return tuple(texts)


def _name_inputs(
    inputs: Sequence[Path | str | model_types.MergeInput],
    addresses: Sequence[str | None],
    known_file_names: Sequence[str | None],
) -> tuple[str, ...]:
    """Return the name of each input in messages.

    A file's name, its path if names repeat, its address if it is a copy with another name.
    """
    paths = [Path(entry) if isinstance(entry, Path | str) else None for entry in inputs]
    file_names = [path.name for path in paths if path is not None]
    names = []
    origins = zip(paths, addresses, known_file_names, strict=True)
    for number, (path, address, known) in enumerate(origins, start=1):
        if path is None:
            names.append(address or f"model {number}")
        elif address and known and known != path.name:
            names.append(address)
        else:
            names.append(path.name if file_names.count(path.name) == 1 else str(path))
    return tuple(names)


def require_place_for(output: Path) -> None:
    """Raise `OSError` if the output cannot be written: no folder, or a read-only one."""
    if output.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(output))
    if not output.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(output.parent))
    if not os.access(output.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(output.parent))


def refuse_overwriting_inputs(
    output: Path, inputs: Iterable[Path | str | model_types.MergeInput]
) -> None:
    """Raise `OptionError` if the output, its recipe or its state would replace an input."""
    # Inputs are read while the output is written (networks, block by block).
    outputs = (output, recipes.recipe_path(output), round_files.state_path(output))
    for entry in inputs:
        if isinstance(entry, Path | str) and any(_same_file(Path(entry), path) for path in outputs):
            raise OptionError(f"the output {output} is one of the inputs: choose another name")


def _same_file(one: Path, other: Path) -> bool:
    if one.absolute() == other.absolute():
        return True
    return one.exists() and other.exists() and one.samefile(other)


def _load(
    inputs: Sequence[Path | str | model_types.MergeInput],
    names: tuple[str, ...],
    file_names: Sequence[str | None],
    report: contract.Progress,
) -> _LoadedInputs:
    """Read the files, each distinct one once."""
    models: dict[str, model_types.MergeInput] = {}
    digests = []
    background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-models")
    try:
        # The next file is hashed while this one is decoded.
        coming = {
            number: background.submit(file_digest, Path(entry))
            for number, entry in enumerate(inputs)
            if isinstance(entry, Path | str)
        }
        for number, (entry, name) in enumerate(zip(inputs, names, strict=True)):
            report(_READ * number / len(inputs), f"reading {name}")
            if isinstance(entry, Path | str):
                digest = coming[number].result()
                if digest not in models:
                    models[digest] = read_input(Path(entry))
            else:
                digest = digest_input(entry)
                models.setdefault(digest, entry)
            digests.append(digest)
    finally:
        background.shutdown(cancel_futures=True)
    return _LoadedInputs(
        models=tuple(models[digest] for digest in digests),
        digests=tuple(digests),
        names=names,
        file_names=tuple(
            known or (_name_in_unicode(Path(entry)) if isinstance(entry, Path | str) else None)
            for entry, known in zip(inputs, file_names, strict=True)
        ),
    )


def _describe_merge(
    method: contract.AggregationMethod[Any],
    options: contract.MethodOptions,
    loaded: _LoadedInputs,
    weights: Sequence[float],
    addresses: Sequence[str | None],
) -> recipes.Recipe:
    inputs = zip(loaded.digests, weights, addresses, loaded.file_names, strict=True)
    return recipes.Recipe(
        method=recipes.RecipeMethod(name=method.name, version=method.version),
        options=options.model_dump(mode="json"),
        inputs=tuple(
            recipes.RecipeInput(digest=digest, weight=weight, address=address, file_name=file_name)
            for digest, weight, address, file_name in inputs
        ),
    )


def _name_in_unicode(path: Path) -> str:
    # A recipe is UTF-8; a file from an old archive may have a name that is not.
    return os.fsencode(path.name).decode("utf-8", "replace")
