"""Making a merged model again without one of the models in it, however deep.

The excluded model may be an input of the recipe, or stand in the recipe of an input, or further
down. Every merged input that holds it is then made again first, from its own recipe, and takes
the old one's place with the old one's weight; an input that held nothing else is left out, too.

Contributions to a round fit only the base that they were computed from. If the base of a round is
made again, the round's result is therefore replaced by the new base.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from aggregators import methods
from aggregators.errors import RecipeError
from aggregators.methods.registry import list_round_methods
from pool_server.wire.models import ROUND_FILES
from site_agent import errors
from site_agent.work import Progress

if TYPE_CHECKING:
    from site_agent.pool.resources.models import Models


class RecipeSources:
    """Finds the recipe of a merged file by the file's digest.

    The ``*.recipe.json`` files of `folders` are read once; other files are ignored. If no folder
    has a recipe, the pool is asked through `models`; an unreachable pool counts as no pool.
    """

    def __init__(self, folders: Iterable[Path] = (), models: "Models | None" = None) -> None:
        self._recipes: dict[str, methods.Recipe | None] = {}
        self._addresses: dict[str, list[str]] = {}
        self._round_files: dict[str, str] = {}
        self._models = models
        self.silence = "" if models is not None else "no pool was asked"
        """Reason why the pool is not asked; empty while it answers."""
        for folder in dict.fromkeys(folders):
            for recipe in _recipes_in(folder):
                self.add(recipe)

    def add(self, recipe: methods.Recipe) -> None:
        """Add a recipe; the first that makes a file counts."""
        if recipe.output is not None:
            self._recipes.setdefault(recipe.output.digest, recipe)

    def recipe_of(self, digest: str) -> methods.Recipe | None:
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
        """Return the kind of a file that a round keeps to itself; empty for other files."""
        self.addresses_of(digest)
        return self._round_files.get(digest, "")

    def trace(self, digest: str) -> None:
        """Ask the pool for a file's whole family with all recipes, in one request."""
        if self._models is None or self.silence:
            return
        try:
            family = self._models.lineage_of_digest(digest, recipes=True)
        except errors.NotFoundError:
            return
        except (
            errors.ForbiddenError,
            errors.NotLoggedInError,
            errors.PoolUnreachableError,
        ) as error:
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
            self._recipes.setdefault(node.digest, methods.parse_recipe(json.dumps(node.recipe)))

    def holdings(self, digest: str) -> dict[str, str]:
        """Return the digests of all ancestors of a file, each with a name to show."""
        names: dict[str, str] = {}
        waiting = [digest]
        while waiting:
            recipe = self.recipe_of(waiting.pop())
            for entry in recipe.inputs if recipe is not None else ():
                if entry.digest not in names and entry.digest != digest:
                    names[entry.digest] = entry.address or entry.file_name or entry.digest[:12]
                    waiting.append(entry.digest)
        return names


def _recipes_in(folder: Path) -> Iterator[methods.Recipe]:
    for path in sorted(folder.glob(f"*{methods.RECIPE_SUFFIX}")):
        try:
            yield methods.read_recipe(path)
        except RecipeError:
            continue


_CONTRIBUTION = ".contribution"


@dataclass(frozen=True)
class Step:
    """One merge that is made again in place of the file with the digest `old`.

    Inputs in `dropped` have no place in the new one; those in `rebuilt` are taken as an earlier
    step made them.
    """

    old: str
    recipe: methods.Recipe
    dropped: tuple[str, ...]
    rebuilt: tuple[str, ...]

    @property
    def kept(self) -> tuple[str, ...]:
        """The inputs that stay as they are."""
        changed = {*self.dropped, *self.rebuilt}
        return tuple(digest for digest in self.recipe.input_digests if digest not in changed)


@dataclass(frozen=True)
class RebuildPlan:
    """The merges to make again, in this order; the last one is the model that was asked for.

    Of the results of rounds in `unrefined`, which are digests, only the base is made again.
    """

    steps: tuple[Step, ...]
    left_out: tuple[methods.LeftOut, ...]
    unrefined: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rebuilt:
    """A merge that was made again."""

    step: Step
    path: Path
    recipe_file: Path
    merged: methods.Merged


@dataclass
class Family:
    """All recipes behind one merge, by the digest of their output; without the root's.

    `round_files` has the digests of contributions and optimiser's states.
    """

    root: methods.Recipe
    recipes: dict[str, methods.Recipe] = field(default_factory=dict)
    round_files: set[str] = field(default_factory=set)

    @classmethod
    def collect(cls, root: methods.Recipe, sources: RecipeSources) -> "Family":
        """Find the recipes of all inputs, of their inputs, and so on."""
        if root.output is not None:
            # One request answers for the whole family, if the pool has the model.
            sources.trace(root.output.digest)
        family = cls(root)
        waiting, seen = list(root.input_digests), set(root.input_digests)
        while waiting:
            digest = waiting.pop()
            recipe = sources.recipe_of(digest)
            if recipe is None and sources.round_file(digest):
                family.round_files.add(digest)
            if recipe is None:
                continue
            family.recipes[digest] = recipe
            waiting += [digest for digest in recipe.input_digests if digest not in seen]
            seen.update(recipe.input_digests)
        return family

    def entries(self) -> dict[str, list[methods.RecipeInput]]:
        """Return every mention of a file in any of the recipes, by digest."""
        heirs: dict[str, list[methods.RecipeInput]] = {}
        for recipe in (self.root, *self.recipes.values()):
            for entry in recipe.inputs:
                heirs.setdefault(entry.digest, []).append(entry)
        return heirs

    def holders(self, digests: Collection[str]) -> set[str]:
        """Return all files that hold one of these, themselves among them."""
        heirs: dict[str, list[str]] = {}
        for digest, recipe in self.recipes.items():
            for entry in recipe.input_digests:
                heirs.setdefault(entry, []).append(digest)
        reached, waiting = set(digests), list(digests)
        while waiting:
            fresh = [item for item in heirs.get(waiting.pop(), []) if item not in reached]
            reached.update(fresh)
            waiting += fresh
        return reached


def plan_rebuild(family: Family, without: Collection[str]) -> RebuildPlan:
    """Find the merges to make again so that nothing of `without` is left."""
    entries = family.entries()
    unknown = sorted(set(without) - set(entries))
    if unknown:
        raise errors.InvalidInputError(
            f"{unknown[0]} is neither an input of the recipe nor in any of its inputs",
            hint="poolctl models lineage ADDRESS lists the ancestors of a model",
        )
    touched = family.holders(without)
    changed = touched - set(without)
    gone: set[str] = set(without)
    steps: list[Step] = []
    for digest in _inputs_first(family, changed):
        recipe = _without_rounds(family, family.recipes[digest], changed)
        step = _step(digest, recipe, gone, touched)
        if step.kept or step.rebuilt:
            steps.append(step)
        else:
            gone.add(digest)
    old = family.root.output.digest if family.root.output is not None else ""
    last = _step(old, _without_rounds(family, family.root, changed), gone, touched)
    if not last.kept and not last.rebuilt:
        raise errors.InvalidInputError(
            "nothing is left to merge: every input of the recipe is excluded, or consists of "
            "excluded models",
            hint="there is no successor to make; withdraw the model itself",
        )
    needed = (*_find_needed(steps, last), last)
    recipes = {**family.recipes, old: family.root}
    return RebuildPlan(
        steps=needed,
        left_out=tuple(
            _name_left_out(digest, entries[digest]) for digest in dict.fromkeys(without)
        ),
        unrefined=tuple(s.old for s in needed if s.recipe.inputs != recipes[s.old].inputs),
    )


def carry_out(
    plan: RebuildPlan,
    find: Callable[[str], Path],
    target: Path,
    *,
    name_of: Callable[[Step], Path],
    progress: Progress | None = None,
) -> list[Rebuilt]:
    """Make everything that a plan names, inputs first; the model that was asked for at `target`.

    `find` gives the file of a digest that stays as it is; raises `LookupError` where it has none.
    """
    made: list[Rebuilt] = []
    inputs: dict[str, methods.RecipeInput] = {}
    files: dict[str, Path] = {}

    def find_any(digest: str) -> Path:
        return files.get(digest) or find(digest)

    # Inputs come first, so each step finds what the steps before it made.
    for step in plan.steps:
        path = target if step is plan.steps[-1] else name_of(step)
        merged = methods.replay(
            step.recipe,
            find_any,
            path,
            without=step.dropped,
            rebuilt={digest: inputs[digest] for digest in step.rebuilt},
            left_out=plan.left_out,
            progress=progress,
        )
        assert merged.digest is not None, "what is written has a digest"
        files[merged.digest] = path
        inputs[step.old] = methods.RecipeInput(digest=merged.digest, file_name=path.name)
        made.append(Rebuilt(step, path, methods.recipe_path(path), merged))
    return made


def _without_rounds(
    family: Family, recipe: methods.Recipe, changed: Collection[str]
) -> methods.Recipe:
    """Replace the recipe of a round's result by that of its base if the base changes."""
    while recipe.method.name in list_round_methods() and any(
        entry.digest in family.round_files or (entry.file_name or "").endswith(_CONTRIBUTION)
        for entry in recipe.inputs
    ):
        bases = [digest for digest in recipe.input_digests if digest in changed]
        if not bases:
            break
        recipe = family.recipes[bases[0]].model_copy(update={"output": recipe.output})
    return recipe


def _step(
    digest: str, recipe: methods.Recipe, gone: Collection[str], touched: Collection[str]
) -> Step:
    return Step(
        old=digest,
        recipe=recipe,
        dropped=tuple(digest for digest in recipe.input_digests if digest in gone),
        rebuilt=tuple(
            digest for digest in recipe.input_digests if digest in touched and digest not in gone
        ),
    )


def _inputs_first(family: Family, touched: Collection[str]) -> list[str]:
    waiting = {
        digest: {digest for digest in family.recipes[digest].input_digests if digest in touched}
        for digest in touched
        if digest in family.recipes
    }
    order: list[str] = []
    while waiting:
        ready = sorted(digest for digest, inputs in waiting.items() if not inputs)
        if not ready:
            raise errors.InvalidInputError(f"the recipe of {min(waiting)} leads back to itself")
        order += ready
        for digest in ready:
            del waiting[digest]
        for inputs in waiting.values():
            inputs.difference_update(ready)
    return order


def _find_needed(steps: Sequence[Step], last: Step) -> list[Step]:
    expected = set(last.rebuilt)
    needed = []
    for step in reversed(steps):
        if step.old in expected:
            needed.append(step)
            expected.update(step.rebuilt)
    return needed[::-1]


def _name_left_out(digest: str, mentions: Sequence[methods.RecipeInput]) -> methods.LeftOut:
    """Return the entry of the new recipe for something that was left out."""
    named = methods.LeftOut(digest=digest)
    for entry in mentions:
        named = methods.LeftOut(
            digest=digest,
            address=named.address or entry.address,
            file_name=named.file_name or entry.file_name,
        )
    return named
