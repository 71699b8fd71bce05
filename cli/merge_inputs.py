"""Where the inputs of a merge are, and what weighs them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from cli import sidecars
from cli.addresses import ModelFile, fetch, is_address, known_version, model_files
from cli.errors import UsageError
from cli.output import Invocation

if TYPE_CHECKING:
    from aggregators import Recipe
    from site_agent.pool_client import PoolClient


def weights_from_label(
    invocation: Invocation, files: Sequence[ModelFile], label: str
) -> list[float]:
    """Return one weight an input from a label that all of them have.

    The labels of a model from the pool are those it has there, also when it is at hand as a file;
    those of any other file stand in the training file beside it.

    Raises
    ------
    UsageError
        Naming the input that has no such label, or one that is no positive number.
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


def digests_to_leave_out(invocation: Invocation, recipe: Recipe, words: Sequence[str]) -> list[str]:
    """Return the digests that ``--without`` means: the start of one, or an input's address."""
    left_out: list[str] = []
    for word in words:
        text = word.removeprefix("sha256:")
        address = word if word.startswith("pool://") else f"pool://{word}"
        matching = {entry.digest for entry in recipe.inputs if entry.digest.startswith(text)}
        matching = matching if len(text) >= 4 else set()
        matching |= {entry.digest for entry in recipe.inputs if entry.address == address}
        if not matching and is_address(word):
            with invocation.pool() as pool:
                matching = {pool.version(word).digest} & set(recipe.input_digests)
        if len(matching) != 1:
            known = ", ".join(entry.address or entry.digest[:12] for entry in recipe.inputs)
            raise UsageError(
                f"--without {word}: {'several' if matching else 'none'} of the recipe's inputs "
                f"are meant; there are: {known}"
            )
        left_out.extend(matching)
    return left_out


class InputFinder:
    """Finds the inputs of a recipe: among given files, beside it, in the cache, in the pool."""

    def __init__(
        self, invocation: Invocation, recipe_file: Path, recipe: Recipe, words: Sequence[str]
    ) -> None:
        self._invocation = invocation
        self._folder = recipe_file.parent
        self._addresses = {entry.digest: entry.address for entry in recipe.inputs}
        self._file_names = {entry.digest: entry.file_name for entry in recipe.inputs}
        self._words = words
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
        """Return a file with this digest.

        Raises
        ------
        LookupError
            Where it was looked for in vain.
        """
        from site_agent.cache import ModelCache
        from site_agent.errors import ForbiddenError, NotFoundError, NotLoggedInError

        given = self._given_files()
        path = given.get(digest) or self._beside_recipe(digest) or ModelCache().find(digest)
        if path is not None:
            return path
        address = self._addresses.get(digest)
        searched = f"not among the {len(given)} files given, not beside the recipe or in the cache"
        if not address:
            raise LookupError(
                f"{searched}, and the recipe knows no address of it in a pool; "
                "name the file after the options"
            )
        try:
            return self._from_pool(address.split("@")[0] + f"@sha256:{digest}")
        except (NotFoundError, ForbiddenError, NotLoggedInError) as error:
            raise LookupError(f"{searched}, and from the pool: {error}") from error

    def _from_pool(self, address: str) -> Path:
        if self._pool is None:
            self._pool = self._stack.enter_context(self._invocation.pool())
        return fetch(self._invocation, self._pool, self._pool.version(address)).path

    def _beside_recipe(self, digest: str) -> Path | None:
        """Return the file of that name in the recipe's folder, if it has the digest."""
        from aggregators.formats import file_digest

        name = self._file_names.get(digest)
        path = self._folder / Path(name).name if name else None
        if path is None or not path.is_file():
            return None
        return path if file_digest(path) == digest else None

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
