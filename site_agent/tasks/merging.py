"""Merges of models on this machine: find, check and weigh the inputs, and merge them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggregators import Merged, find_method, merge
from aggregators.formats import file_digest
from aggregators.methods.merging import refuse_overwriting_inputs
from pool_server.wire.data_use_rules import TermsOf
from site_agent.errors import (
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    NotLoggedInError,
    PoolUnreachableError,
    WithdrawnError,
)
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import PoolClient
from site_agent.pool.profiles import is_offline
from site_agent.pool.rebuilding import Family, RecipeSources
from site_agent.pool.restrictions import (
    LocalFile,
    check_files,
    read_terms_file,
    require_mergeable,
    terms_of_version,
)
from site_agent.pool.sidecars import Sidecars, find_terms_file
from site_agent.tasks.caller import Caller
from site_agent.tasks.model_files import ModelFile, fetch, known_version, model_files
from site_agent.training_record import metadata_path


@dataclass(frozen=True)
class MergePlan:
    """A merge that is permitted: its inputs are at hand, and weighed."""

    method: str
    files: Sequence[ModelFile]
    weights: list[float] | None
    """None: all weigh the same."""
    options: Mapping[str, Any]

    def carry_out(self, caller: Caller, output: Path, output_format: str = "") -> Merged:
        """Write the merged model, and its recipe next to it, with the addresses of the inputs."""
        versions = [known_version(file) for file in self.files]
        with caller.progress(f"merge {self.method}") as report:
            merged = merge(
                self.method,
                [file.path for file in self.files],
                weights=self.weights,
                options=dict(self.options),
                output=output,
                output_format=output_format or None,
                addresses=[None if version is None else version.address for version in versions],
                file_names=[None if version is None else version.file_name for version in versions],
                progress=report,
            )
        if len(merged.recipe.inputs) == 1:
            caller.warn("a merge of only one model gives the same model")
        return merged


def plan_merge(
    caller: Caller,
    method: str,
    inputs: Sequence[str],
    target: Path,
    *,
    weights: Sequence[float] | str | None = None,
    options: Mapping[str, Any] | None = None,
    despite_withdrawal: bool = False,
) -> MergePlan:
    """Fetch the inputs of a merge, and refuse it if the pool, terms or withdrawals forbid it.

    `weights`: A number for each input, or the label by which they weigh.
    """
    find_method(method)
    files = model_files(caller, inputs, to_merge=True)
    check_terms(caller, files)
    require_not_withdrawn(caller, local_copies(files), despite=despite_withdrawal)
    refuse_overwriting_inputs(target, [file.path for file in files])
    numbers = weights_from_label(caller, files, weights) if isinstance(weights, str) else weights
    return MergePlan(method, files, None if numbers is None else list(numbers), options or {})


def check_terms(caller: Caller, files: Sequence[ModelFile]) -> None:
    """Refuse a merge that the terms of its inputs forbid, and note conditions for people to judge.

    Known are the terms of versions in the pool, of local files that were downloaded from it, and
    those in the sidecar files of a model.
    """
    inputs = []
    for file in files:
        version = known_version(file)
        terms = {} if version is None else dict.fromkeys(terms_of_version(version))
        beside = None if file.version is not None else find_terms_file(file.path)
        if beside is not None:
            terms |= dict.fromkeys(read_terms_file(beside))
        if version is not None or beside is not None:
            inputs.append(TermsOf(file.word, tuple(terms)))
    for notice in require_mergeable(inputs):
        caller.note(f"terms: {notice}")


def weights_from_label(caller: Caller, files: Sequence[ModelFile], label: str) -> list[float]:
    """Return one weight an input from a label that all of them have.

    The labels of a model from the pool are those it has there, also when it is at hand as a file;
    those of any other file are in its training file.
    """
    weights = []
    for file in files:
        version = known_version(file)
        if version is not None:
            labels, source = version.labels, version.address
        else:
            labels = Sidecars.read(file.path, file_digest(file.path)).labels
            source = str(metadata_path(file.path))
        if label not in labels:
            known = ", ".join(sorted(labels)) or "none"
            raise InvalidInputError(
                f"--weight {label}: {file.word} has no such label "
                f"({source} has: {known}); give the weights as numbers"
            )
        weights.append(_positive(labels[label], label, file.word))
    text = ", ".join(f"{weight:g}" for weight in weights)
    caller.note(f"weights by {label}: {text}")
    return weights


def local_copies(files: Sequence[ModelFile]) -> list[LocalFile]:
    """Return the local files; `fetch` has already warned of the downloaded ones."""
    copies = [file.path for file in files if file.version is None]
    sources = RecipeSources({path.parent for path in copies})
    digests = {path: file_digest(path) for path in copies}
    return [LocalFile(path, digests[path], sources.holdings(digests[path])) for path in copies]


def require_not_withdrawn(caller: Caller, files: Sequence[LocalFile], *, despite: bool) -> None:
    """Ask the pool about the inputs of a merge, wherever their bytes come from.

    An input is refused if its withdrawal stops downloads, unless `despite`; the user is warned of
    other withdrawn inputs, and of those containing a withdrawn model. Without a login
    nobody can be asked.
    """
    if is_offline():
        caller.note("offline: whether an input was withdrawn is not known")
        return
    try:
        with caller.pool() as pool:
            withdrawn = check_files(pool.withdrawals, files)
    except NotLoggedInError:
        return
    except PoolUnreachableError as error:
        caller.warn(f"whether an input was withdrawn is not known: {error}")
        return
    for file in withdrawn:
        refused = any(withdrawal.effect == "refuse" for withdrawal in file.withdrawn)
        if refused and not despite:
            raise WithdrawnError(
                f"{file.path}: {file.words}",
                hint="leave it out (of a recipe by --without), and delete your copies; "
                "--despite-withdrawal merges it nevertheless",
                code="version_withdrawn",
            )
        caller.warn(f"{file.path}: {file.words}")


class InputFinder:
    """Finds inputs of recipes: among given files, next to the recipe, in the cache, in the pool."""

    def __init__(
        self,
        caller: Caller,
        folder: Path,
        names: Sequence[str],
        family: Family,
        *,
        sources: RecipeSources,
        pool: PoolClient,
    ) -> None:
        self._caller = caller
        self._folder = folder
        self._mentions = family.entries()
        self._merged = family.root.output
        self._words = names
        self._sources = sources
        self._pool = pool
        self._given: dict[str, Path] | None = None

    def find(self, digest: str) -> Path:
        """Return a file with this digest.

        Raises `LookupError`, naming the searched places and the owners.
        """
        path = self._at_hand(digest)
        if path is not None:
            return path
        refusal: Exception | None = None
        for address in self._addresses(digest):
            try:
                version = self._pool.version(f"{address.split('@')[0]}@sha256:{digest}")
                self._pool.require_merge_right(version)
                return fetch(self._caller, self._pool, version).path
            except (NotFoundError, ForbiddenError, NotLoggedInError, WithdrawnError) as error:
                refusal = refusal or error
        raise LookupError(self._why_missing(digest, refusal)) from refusal

    def _at_hand(self, digest: str) -> Path | None:
        path = self._given_files().get(digest)
        return path or self._beside_recipe(digest) or ModelCache().find(digest)

    def _addresses(self, digest: str) -> list[str]:
        named = [mention.address for mention in self._mentions.get(digest, []) if mention.address]
        return list(dict.fromkeys([*named, *self._sources.addresses_of(digest)]))

    def _why_missing(self, digest: str, refusal: Exception | None) -> str:
        """Return the searched places and the owners of a missing file."""
        makers = [] if self._merged is None else self._sources.addresses_of(self._merged.digest)
        if what := self._sources.round_file(digest):
            made = f"; it did: poolctl download {makers[0]}" if makers else ""
            return (
                f"it is {what}, which the pool keeps and gives to nobody: "
                f"only the pool could combine it{made}"
            )
        names = [
            mention.file_name for mention in self._mentions.get(digest, []) if mention.file_name
        ]
        is_contribution = any(Path(name).suffix == ".contribution" for name in names)
        if is_contribution and (self._folder.parent / ".study").is_dir():
            return (
                "it is a part's contribution, which the study deleted when it was combined; the "
                f"command in {self._folder.parent / 'study.json'} makes the model again"
            )
        reason = f"not among the {len(self._words)} files given, next to the recipe or in the cache"
        if refusal is not None:
            return f"{reason}, and from the pool: {refusal}"
        if self._sources.silence:
            reason += f", and the pool cannot be asked: {self._sources.silence}"
        else:
            reason += ", and the pool does not have it or does not show it to your site"
        site = makers[0].removeprefix("pool://").split("/")[0] if makers else ""
        whom = f"{site}, which published {makers[0]}," if makers else "whoever made the recipe"
        what = "the contributions next to the model" if is_contribution else (names or ["it"])[0]
        return f"{reason}; ask {whom} for {what}, and name it after the options"

    def _beside_recipe(self, digest: str) -> Path | None:
        """Return the file of that name next to the recipe, if it has the digest."""
        folders = [self._folder, *sorted(self._folder.glob("*.contributions"))]
        for entry in self._mentions.get(digest, []):
            for folder in folders if entry.file_name else []:
                path = folder / Path(entry.file_name or "").name
                if path.is_file() and file_digest(path) == digest:
                    return path
        return None

    def _given_files(self) -> dict[str, Path]:
        if self._given is None:
            files = model_files(self._caller, list(self._words))
            self._given = {file_digest(file.path): file.path for file in files}
        return self._given


def _positive(text: str, label: str, word: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise InvalidInputError(
            f"--weight {label}: {word} has {label}={text!r}; expected a positive number"
        )
    return value
