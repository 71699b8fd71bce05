"""Making merges again without something that is somewhere in them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregators.formats import file_digest, write_model
from aggregators.methods import Recipe, RecipeInput, RecipeMethod, RecipeOutput, merge, read_recipe
from site_agent.errors import InvalidInputError
from site_agent.pool.rebuilding import Family, Rebuilt, RecipeSources, carry_out, plan_rebuild
from tests.aggregators.small_models import make_detector


class Workshop:
    """Merges in one folder; models are called by their file's stem."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.svm"

    def digest(self, name: str) -> str:
        return file_digest(self.path(name))

    def trained(self, *names: str) -> None:
        for name in names:
            write_model(make_detector(ord(name[0])), self.path(name))

    def merged(self, name: str, *inputs: str, weights: Sequence[float] | None = None) -> None:
        merge("mwma", [self.path(each) for each in inputs], weights=weights, output=self.path(name))

    def find(self, digest: str) -> Path:
        for path in self.folder.glob("*.svm"):
            if file_digest(path) == digest:
                return path
        raise LookupError(digest)

    def rebuild(self, name: str, *without: str) -> list[Rebuilt]:
        root = read_recipe(self.folder / f"{name}.svm.recipe.json")
        family = Family.collect(root, RecipeSources([self.folder]))
        plan = plan_rebuild(family, [self.digest(each) for each in without])
        numbers = itertools.count(1)
        return carry_out(
            plan,
            self.find,
            self.folder / "new.svm",
            name_of=lambda _step: self.folder / f"new-{next(numbers)}.svm",
        )


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    shop = Workshop(tmp_path)
    shop.trained("a", "b", "c", "d")
    return shop


def test_what_remains_is_what_a_merge_of_the_rest_gives(workshop: Workshop) -> None:
    workshop.merged("m", "a", "b", "c", weights=[5, 2, 1])
    [made] = workshop.rebuild("m", "a")
    workshop.merged("expected", "b", "c", weights=[2, 1])
    assert made.merged.digest == workshop.digest("expected")
    assert [entry.weight for entry in made.merged.recipe.inputs] == [2, 1]
    claim = read_recipe(made.recipe_file).successor_of
    assert claim is not None
    assert claim.digest == workshop.digest("m")
    assert [each.file_name for each in claim.without] == ["a.svm"]


@given(st.data())
def test_nothing_of_it_is_left_however_deep_it_was(data: st.DataObject) -> None:
    """The rebuilt recipes never reach what was left out, and keep everything else."""
    trained = [f"{number:x}" * 64 for number in range(1, 6)]
    sources = RecipeSources()
    recipes: dict[str, Recipe] = {}
    known = list(trained)
    for number in range(data.draw(st.integers(1, 6), label="merges")):
        inputs = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
        digest = f"{number:064x}"
        recipes[digest] = Recipe(
            method=RecipeMethod(name="mwma", version=1),
            inputs=tuple(RecipeInput(digest=each) for each in inputs),
            output=RecipeOutput(digest=digest, format="dlib-fhog-detector"),
        )
        sources.add(recipes[digest])
        known.append(digest)
    root = recipes[known[-1]]
    family = Family.collect(root, sources)
    left_out = data.draw(st.sampled_from(sorted(family.entries())))
    try:
        plan = plan_rebuild(family, [left_out])
    except InvalidInputError:
        assert leaves_without(root, recipes, left_out) == set()
        return
    assert {each.old for each in plan.steps} <= set(recipes)
    rebuilt: dict[str, set[str]] = {}
    for step in plan.steps:
        assert left_out not in step.kept
        rebuilt[step.old] = set().union(
            *(leaves_of(digest, recipes) for digest in step.kept),
            *(rebuilt[digest] for digest in step.rebuilt),
        )
    assert rebuilt[known[-1]] == leaves_without(root, recipes, left_out)


def leaves_of(digest: str, recipes: dict[str, Recipe]) -> set[str]:
    """Return the trained models that a file was made from, in the end."""
    if digest not in recipes:
        return {digest}
    return set().union(*(leaves_of(each, recipes) for each in recipes[digest].input_digests))


def leaves_without(root: Recipe, recipes: dict[str, Recipe], left_out: str) -> set[str]:
    """Return the same for a recipe, passing over one file wherever it occurs."""
    found: set[str] = set()
    for digest in root.input_digests:
        if digest == left_out:
            continue
        if digest in recipes:
            found |= leaves_without(recipes[digest], recipes, left_out)
        else:
            found.add(digest)
    return found
