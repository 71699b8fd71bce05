"""Sources of recipes of merged models: the folders of their files here, and the pool."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from aggregators.errors import RecipeError
from aggregators.methods import RECIPE_SUFFIX, Recipe, parse_recipe, read_recipe
from pool_server.wire.models import ROUND_FILES
from site_agent.errors import ForbiddenError, NotFoundError, NotLoggedInError, PoolUnreachableError

if TYPE_CHECKING:
    from site_agent.pool.resources.models import Models


class RecipeSources:
    """Finds the recipe that makes a file, by the file's digest.

    The ``*.recipe.json`` of `folders` are looked through, once; other files are passed over. The
    `models` of a pool are asked for what no folder has; a pool that cannot be asked is as good as
    no pool. `silence` says why it was not asked any more; empty while it answers.
    """

    def __init__(self, folders: Iterable[Path] = (), models: Models | None = None) -> None:
        self._recipes: dict[str, Recipe | None] = {}
        self._addresses: dict[str, list[str]] = {}
        self._round_files: dict[str, str] = {}
        self._models = models
        self.silence = "" if models is not None else "no pool was asked"
        for folder in dict.fromkeys(folders):
            for recipe in _recipes_in(folder):
                self.add(recipe)

    def add(self, recipe: Recipe) -> None:
        """Know a recipe from now on; the first that makes a file counts."""
        if recipe.output is not None:
            self._recipes.setdefault(recipe.output.digest, recipe)

    def recipe_of(self, digest: str) -> Recipe | None:
        """Return the recipe of a merged file; None for one that was trained, or is not known."""
        if digest not in self._recipes:
            self.trace(digest)
        return self._recipes.setdefault(digest, None)

    def addresses_of(self, digest: str) -> list[str]:
        """Return where the pool has a file; none for one that it has not, or does not show."""
        if digest not in self._addresses:
            self.trace(digest)
        return self._addresses.setdefault(digest, [])

    def round_file(self, digest: str) -> str:
        """Return what a file of a round is, which the pool keeps to itself; empty for others."""
        self.addresses_of(digest)
        return self._round_files.get(digest, "")

    def trace(self, digest: str) -> None:
        """Ask the pool for a file's whole family with all recipes, in one request."""
        if self._models is None or self.silence:
            return
        try:
            family = self._models.lineage_of_digest(digest, recipes=True)
        except NotFoundError:
            return
        except (ForbiddenError, NotLoggedInError, PoolUnreachableError) as error:
            self.silence = str(error)
            return
        for node in family.nodes:
            self._addresses[node.digest] = node.addresses
            if node.kind in ROUND_FILES:
                self._round_files[node.digest] = ROUND_FILES[node.kind]
            if node.recipe is None:
                # The pool has said all that it knows of an ancestor; nothing is asked again.
                if node.depth <= 0:
                    self._recipes.setdefault(node.digest, None)
                continue
            self._recipes.setdefault(node.digest, parse_recipe(json.dumps(node.recipe)))

    def holdings(self, digest: str) -> dict[str, str]:
        """Return the digests of all that a file was merged from, and what to call each."""
        found: dict[str, str] = {}
        waiting = [digest]
        while waiting:
            recipe = self.recipe_of(waiting.pop())
            for entry in recipe.inputs if recipe is not None else ():
                if entry.digest not in found and entry.digest != digest:
                    found[entry.digest] = entry.address or entry.file_name or entry.digest[:12]
                    waiting.append(entry.digest)
        return found


def _recipes_in(folder: Path) -> Iterator[Recipe]:
    for path in sorted(folder.glob(f"*{RECIPE_SUFFIX}")):
        try:
            yield read_recipe(path)
        except RecipeError:
            continue
