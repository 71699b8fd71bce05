"""Making merges again without something that is somewhere in them."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregators.formats import file_digest, read_model, write_model
from aggregators.methods import Recipe, RecipeInput, RecipeMethod, RecipeOutput, merge, read_recipe
from aggregators.methods.refitting import RefitSettings, contribute, write_contribution
from aggregators.models import ShapePredictor
from site_agent.errors import InvalidInputError
from site_agent.pool.rebuilding import Family, Rebuilt, RecipeSources, carry_out, plan_rebuild
from tests.aggregators.methods.refitting.small_sites import make_base, make_faces
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
        merge(
            "mwma", [self.path(entry) for entry in inputs], weights=weights, output=self.path(name)
        )

    def find(self, digest: str) -> Path:
        for path in self.folder.glob("*.svm"):
            if file_digest(path) == digest:
                return path
        raise LookupError(digest)

    def rebuild(self, name: str, *without: str) -> list[Rebuilt]:
        root = read_recipe(self.folder / f"{name}.svm.recipe.json")
        family = Family.collect(root, RecipeSources([self.folder]))
        plan = plan_rebuild(family, [self.digest(item) for item in without])
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
    assert [item.file_name for item in claim.without] == ["a.svm"]


def test_merges_of_merges_are_made_again_from_the_inside(workshop: Workshop) -> None:
    workshop.merged("inner", "a", "b", weights=[1, 3])
    workshop.merged("middle", "inner", "c")
    workshop.merged("side", "inner", "d")
    workshop.merged("m", "middle", "side", "b", weights=[2, 1, 1])
    made = workshop.rebuild("m", "a")
    replaced = [outcome.step.old for outcome in made]
    assert replaced[0] == workshop.digest("inner"), "made once, though two merges hold it"
    assert set(replaced[1:3]) == {workshop.digest("middle"), workshop.digest("side")}
    assert replaced[3] == workshop.digest("m")
    workshop.merged("middle-2", "b", "c")
    workshop.merged("side-2", "b", "d")
    workshop.merged("expected", "middle-2", "side-2", "b", weights=[2, 1, 1])
    assert made[-1].merged.digest == workshop.digest("expected")


def test_an_input_of_which_nothing_is_left_is_left_out(workshop: Workshop) -> None:
    workshop.merged("inner", "a", "b")
    workshop.merged("m", "inner", "c", "d")
    made = workshop.rebuild("m", "a", "b")
    workshop.merged("expected", "c", "d")
    assert [outcome.merged.digest for outcome in made] == [workshop.digest("expected")]
    assert made[0].step.dropped == (workshop.digest("inner"),)


def test_nothing_is_written_where_nothing_is_left(workshop: Workshop) -> None:
    workshop.merged("m", "a", "b")
    before = set(workshop.folder.iterdir())
    with pytest.raises(InvalidInputError, match="nothing is left"):
        workshop.rebuild("m", "a", "b")
    with pytest.raises(InvalidInputError, match="neither an input"):
        workshop.rebuild("m", "d")
    assert set(workshop.folder.iterdir()) == before


def test_recipes_that_lead_back_to_themselves_end(workshop: Workshop) -> None:
    def recipe(output: str, *inputs: str) -> Recipe:
        return Recipe(
            method=RecipeMethod(name="mwma", version=1),
            inputs=tuple(RecipeInput(digest=entry * 64) for entry in inputs),
            output=RecipeOutput(digest=output * 64, format="dlib-fhog-detector"),
        )

    sources = RecipeSources()
    for item in (recipe("1", "2", "a"), recipe("2", "1", "b")):
        sources.add(item)
    family = Family.collect(recipe("3", "1"), sources)
    with pytest.raises(InvalidInputError, match="back to itself"):
        plan_rebuild(family, ["a" * 64])


def test_contributions_of_a_round_fit_their_base_only(tmp_path: Path) -> None:
    for seed, name in ((1, "good"), (2, "bad")):
        write_model(make_base(seed), tmp_path / f"{name}.dat")
    merge(
        "wba-cascade", [tmp_path / "good.dat", tmp_path / "bad.dat"], output=tmp_path / "base.dat"
    )
    merged_base = read_model(tmp_path / "base.dat")
    assert isinstance(merged_base, ShapePredictor)
    contributions = []
    for seed in (1, 2):
        path = tmp_path / f"site-{seed}.contribution"
        contribution = contribute(merged_base, make_faces(seed), RefitSettings(starts=2))
        write_contribution(contribution, path)
        contributions.append(path)
    merge("leaf-refit", [tmp_path / "base.dat", *contributions], output=tmp_path / "refined.dat")

    def find(digest: str) -> Path:
        return next(path for path in tmp_path.iterdir() if file_digest(path) == digest)

    def rebuild(without: Path) -> list[Rebuilt]:
        family = Family.collect(
            read_recipe(tmp_path / "refined.dat.recipe.json"), RecipeSources([tmp_path])
        )
        plan = plan_rebuild(family, [file_digest(without)])
        return carry_out(
            plan, find, tmp_path / "new.dat", name_of=lambda _step: tmp_path / "new-base.dat"
        )

    [made] = rebuild(contributions[0])
    expected = merge(
        "leaf-refit", [tmp_path / "base.dat", contributions[1]], output=tmp_path / "expected.dat"
    )
    assert made.merged.digest == expected.digest
    # Without a part of the base there is a new base, which the sites can refine again.
    for path in contributions:
        path.unlink()
    [made] = rebuild(tmp_path / "bad.dat")
    merge("wba-cascade", [tmp_path / "good.dat"], output=tmp_path / "only-good.dat")
    assert made.merged.digest == file_digest(tmp_path / "only-good.dat")
    assert made.merged.recipe.successor_of is not None
    assert made.merged.recipe.successor_of.digest == file_digest(tmp_path / "refined.dat")


@given(st.data())
def test_nothing_of_it_is_left_however_deep_it_was(data: st.DataObject) -> None:
    """The rebuilt recipes never reach the excluded model, and keep everything else."""
    trained = [f"{number:x}" * 64 for number in range(1, 6)]
    sources = RecipeSources()
    recipes: dict[str, Recipe] = {}
    known = list(trained)
    for number in range(data.draw(st.integers(1, 6), label="merges")):
        inputs = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
        digest = f"{number:064x}"
        recipes[digest] = Recipe(
            method=RecipeMethod(name="mwma", version=1),
            inputs=tuple(RecipeInput(digest=entry) for entry in inputs),
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
    assert {step.old for step in plan.steps} <= set(recipes)
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
    return set().union(*(leaves_of(digest, recipes) for digest in recipes[digest].input_digests))


def leaves_without(root: Recipe, recipes: dict[str, Recipe], left_out: str) -> set[str]:
    """Return the same for a recipe, passing over one file wherever it occurs."""
    leaves: set[str] = set()
    for digest in root.input_digests:
        if digest == left_out:
            continue
        if digest in recipes:
            leaves |= leaves_without(recipes[digest], recipes, left_out)
        else:
            leaves.add(digest)
    return leaves
