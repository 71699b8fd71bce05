"""Where the inputs of a merge are, and what weighs them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from cli.frame.addresses import ModelFile, fetch, known_version, model_files
from cli.frame.errors import UsageError
from cli.frame.output import Invocation
from cli.transfers import sidecars

if TYPE_CHECKING:
    from aggregators.methods import RecipeInput
    from site_agent.pool.client import PoolClient
    from site_agent.pool.recipe_sources import RecipeSources


def weights_from_label(
    invocation: Invocation, files: Sequence[ModelFile], label: str
) -> list[float]:
    """Return one weight an input from a label that all of them have.

    The labels of a model from the pool are those it has there, also when it is at hand as a file;
    those of any other file stand in the training file beside it.
    """
    from aggregators.formats import file_digest

    weights = []
    for file in files:
        version = known_version(file)
        if version is not None:
            labels, source = version.labels, version.address
        else:
            labels = sidecars.labels_beside(file.path, file_digest(file.path))
            source = str(sidecars.beside(file.path, "training"))
        if label not in labels:
            known = ", ".join(sorted(labels)) or "none"
            raise UsageError(
                f"--weight-by {label}: {file.word} has no such label "
                f"({source} has: {known}); give the weights with --weight"
            )
        weights.append(_positive(labels[label], label, file.word))
    words = ", ".join(f"{weight:g}" for weight in weights)
    invocation.note(f"weights by {label}: {words}")
    return weights


class InputFinder:
    """Finds inputs of recipes: among given files, beside the recipe, in the cache, in the pool."""

    def __init__(
        self,
        invocation: Invocation,
        folder: Path,
        words: Sequence[str],
        mentions: Mapping[str, Sequence[RecipeInput]],
        sources: RecipeSources,
    ) -> None:
        self._invocation = invocation
        self._folder = folder
        self._mentions = mentions
        self._words = words
        self._sources = sources
        self._given: dict[str, Path] | None = None
        self._pool: PoolClient | None = None
        self._stack = ExitStack()

    def __enter__(self) -> InputFinder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def find(self, digest: str) -> Path:
        """Return a file with this digest."""
        from site_agent.errors import (
            ForbiddenError,
            NotFoundError,
            NotLoggedInError,
            WithdrawnError,
        )
        from site_agent.pool.cache import ModelCache

        given = self._given_files()
        path = given.get(digest) or self._beside_recipe(digest) or ModelCache().find(digest)
        if path is not None:
            return path
        searched = f"not among the {len(given)} files given, not beside the recipe or in the cache"
        addresses = [each.address for each in self._mentions.get(digest, []) if each.address]
        addresses += self._sources.addresses_of(digest)
        if not addresses:
            raise LookupError(
                f"{searched}, and the recipe knows no address of it in a pool; "
                "name the file after the options"
            )
        try:
            return self._from_pool(addresses[0].split("@")[0] + f"@sha256:{digest}")
        except (NotFoundError, ForbiddenError, NotLoggedInError, WithdrawnError) as error:
            raise LookupError(f"{searched}, and from the pool: {error}") from error

    def _from_pool(self, address: str) -> Path:
        if self._pool is None:
            self._pool = self._stack.enter_context(self._invocation.pool())
        return fetch(self._invocation, self._pool, self._pool.version(address)).path

    def _beside_recipe(self, digest: str) -> Path | None:
        """Return the file of that name in the recipe's folder, if it has the digest."""
        from aggregators.formats import file_digest

        for entry in self._mentions.get(digest, []):
            path = self._folder / Path(entry.file_name).name if entry.file_name else None
            if path is not None and path.is_file() and file_digest(path) == digest:
                return path
        return None

    def _given_files(self) -> dict[str, Path]:
        from aggregators.formats import file_digest

        if self._given is None:
            files = model_files(self._invocation, list(self._words))
            self._given = {file_digest(file.path): file.path for file in files}
        return self._given


def _positive(text: str, label: str, word: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value <= 0:
        raise UsageError(
            f"--weight-by {label}: {word} has {label}={text!r}; expected a positive number"
        )
    return value
