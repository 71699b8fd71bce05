"""`aggregators.merge`: names, outputs, recipes, progress and refusals."""

import json
import os
from pathlib import Path

import pytest

from aggregators import file_digest, merge, read_model, recipe_path, write_model
from aggregators.errors import (
    ConversionError,
    IncompatibleModelsError,
    OptionError,
    RecipeError,
    UnknownMethodError,
)
from aggregators.formats import encode_model
from aggregators.methods import parse_recipe, read_recipe, replay
from tests.aggregators.small_models import make_detector, make_predictor


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    result = [tmp_path / f"site-{seed}.dat" for seed in range(3)]
    for seed, path in enumerate(result):
        write_model(make_predictor(seed), path)
    return result


def test_unknown_methods_are_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownMethodError, match="'mean', expected one of mwma, wba-final"):
        merge("mean", [make_detector(1)])


def test_a_wrong_suffix_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    missing = tmp_path / "missing.svm"
    with pytest.raises(ConversionError, match=r"merged\.dat .* use dlib-fhog-detector \(\.svm\)"):
        merge("mwma", [missing], output=tmp_path / "merged.dat")


@pytest.mark.parametrize("output", ["site-1.dat", "./site-1.dat", "link.dat"])
def test_inputs_are_not_overwritten(paths: list[Path], tmp_path: Path, output: str) -> None:
    (tmp_path / "link.dat").hardlink_to(paths[1])
    before = paths[1].read_bytes()
    with pytest.raises(OptionError, match="is one of the inputs"):
        merge("wba-cascade", paths, output=tmp_path / output)
    assert paths[1].read_bytes() == before


def test_a_failed_merge_leaves_nothing(paths: list[Path], tmp_path: Path) -> None:
    write_model(make_predictor(4, parts=6), tmp_path / "other.dat")
    before = set(tmp_path.iterdir())
    with pytest.raises(Exception, match="parts 5 against 6"):
        merge("wba-cascade", [*paths, tmp_path / "other.dat"], output=tmp_path / "merged.dat")
    assert set(tmp_path.iterdir()) == before


def test_the_recipe_lists_inputs_and_output(paths: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "merged.dat"
    merged = merge(
        "wba-cascade",
        paths,
        weights=[3, 1, 2],
        options={"step": "1.1"},
        output=output,
        addresses=["pool://a/b@1", None, None],
    )
    assert merged.digest == file_digest(output)
    content = json.loads(recipe_path(output).read_text(encoding="utf-8"))
    assert content == {
        "schema": "poolctl-recipe/1",
        "method": {"name": "wba-cascade", "version": 1},
        "options": {"step": 1.1, "thin": None},
        "inputs": [
            {
                "digest": file_digest(path),
                "weight": weight,
                "address": address,
                "file_name": path.name,
            }
            for path, weight, address in zip(
                paths, (3.0, 1.0, 2.0), ("pool://a/b@1", None, None), strict=True
            )
        ],
        "output": {"digest": merged.digest, "format": "dlib-shape-predictor"},
    }


def test_a_file_name_that_is_not_unicode_is_replaced(paths: list[Path], tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9.dat")
    odd.write_bytes(paths[0].read_bytes())
    merged = merge("wba-cascade", [odd, paths[1]], output=tmp_path / "merged.dat")
    assert merged.recipe.inputs[0].file_name == "caf\ufffd.dat"


def test_a_model_given_twice_is_warned_of(paths: list[Path]) -> None:
    assert merge("wba-cascade", paths).warnings == ()
    [warning] = merge("wba-cascade", [paths[0], paths[1], paths[0]]).warnings
    assert warning.endswith("is given 2 times and counts with the sum of its weights")
    assert paths[0].name in warning


def test_in_memory_models_have_the_digest_of_their_file(paths: list[Path]) -> None:
    by_path = merge("wba-cascade", paths)
    in_memory = merge("wba-cascade", [read_model(path) for path in paths])
    assert [entry.digest for entry in in_memory.recipe.inputs] == [
        entry.digest for entry in by_path.recipe.inputs
    ]
    assert encode_model(in_memory.model) == encode_model(by_path.model)
    assert in_memory.digest is None
    assert in_memory.recipe.output is None


def test_progress_rises_to_one(paths: list[Path], tmp_path: Path) -> None:
    reports: list[tuple[float, str]] = []
    merge(
        "wba-cascade",
        paths,
        output=tmp_path / "merged.dat",
        progress=lambda fraction, what: reports.append((fraction, what)),
    )
    fractions = [fraction for fraction, _ in reports]
    assert fractions == sorted(fractions)
    assert fractions[0] == 0
    assert fractions[-1] == 1
    assert "reading site-0.dat" in [what for _, what in reports]


def test_cached_inputs_are_named_by_address(tmp_path: Path) -> None:
    cached, wide = tmp_path / "0123abcd", tmp_path / "wide.svm"
    write_model(make_detector(1), cached, format_name="dlib-fhog-detector")
    write_model(make_detector(2, window_px=96), wide)
    origin = {"addresses": ["pool://a/face@1", None], "file_names": ["face.svm", None]}
    with pytest.raises(IncompatibleModelsError, match=r"\(pool://a/face@1 against wide.svm\)"):
        merge("mwma", [cached, wide], **origin)
    recipe = merge("mwma", [cached, cached], addresses=None, file_names=["face.svm", None]).recipe
    assert [entry.file_name for entry in recipe.inputs] == ["face.svm", "0123abcd"]


class TestReplay:
    def test_altered_inputs_are_refused(self, paths: list[Path], tmp_path: Path) -> None:
        merged = merge("wba-cascade", paths, output=tmp_path / "merged.dat")
        write_model(make_predictor(7), paths[0])
        digests = dict(zip((e.digest for e in merged.recipe.inputs), paths, strict=True))
        with pytest.raises(RecipeError, match=r"input 1 of 3 .* has another sha256"):
            replay(merged.recipe, digests.__getitem__, tmp_path / "again.dat")

    def test_another_result_is_refused_and_not_kept(
        self, paths: list[Path], tmp_path: Path
    ) -> None:
        merged = merge("wba-cascade", paths, output=tmp_path / "merged.dat")
        recipe = merged.recipe.model_copy(update={"options": {"step": 1.5}})
        by_digest = {file_digest(path): path for path in paths}
        before = set(tmp_path.iterdir())
        with pytest.raises(RecipeError, match="but the recipe has"):
            replay(recipe, by_digest.__getitem__, tmp_path / "again.dat")
        assert set(tmp_path.iterdir()) == before

    def test_another_version_of_the_method_is_refused(
        self, paths: list[Path], tmp_path: Path
    ) -> None:
        recipe = merge("wba-cascade", paths).recipe
        newer = recipe.model_copy(
            update={"method": recipe.method.model_copy(update={"version": 99})}
        )
        with pytest.raises(RecipeError, match="version 99 of wba-cascade"):
            replay(newer, lambda digest: paths[0], tmp_path / "again.dat")

    def test_leaving_out_other_models_is_refused(self, paths: list[Path], tmp_path: Path) -> None:
        recipe = merge("wba-cascade", paths).recipe
        with pytest.raises(RecipeError, match="not among the recipe's 3 inputs"):
            replay(recipe, lambda digest: paths[0], tmp_path / "again.dat", without="0" * 64)
        with pytest.raises(OptionError, match="no input is left"):
            replay(
                recipe,
                lambda digest: paths[0],
                tmp_path / "again.dat",
                without=recipe.input_digests,
            )

    def test_file_names_of_the_recipe_are_kept(self, paths: list[Path], tmp_path: Path) -> None:
        merged = merge("wba-cascade", paths, output=tmp_path / "merged.dat")
        stored = {}
        for path in paths:
            digest = file_digest(path)
            stored[digest] = path.rename(tmp_path / digest)
        replay(merged.recipe, stored.__getitem__, tmp_path / "again.dat")
        assert read_recipe(recipe_path(tmp_path / "again.dat")) == merged.recipe


class TestRecipeFiles:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"schema": "poolctl-recipe/2"}, "schema: "),
            ({"inputs": [{"digest": "0" * 64, "weight": -1}]}, r"inputs\.0\.weight: "),
            ({"colour": "red"}, "colour: "),
        ],
    )
    def test_the_first_wrong_field_is_named(self, change: dict[str, object], message: str) -> None:
        content = json.loads(merge("mwma", [make_detector(1)]).recipe.to_json()) | change
        with pytest.raises(RecipeError, match=f"^mine is not a poolctl recipe: {message}"):
            parse_recipe(json.dumps(content), subject="mine")

    @pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe"])
    def test_other_files_are_refused(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "recipe.json"
        path.write_bytes(content)
        with pytest.raises(RecipeError, match=r"recipe\.json is not a poolctl recipe"):
            read_recipe(path)

    def test_reading_back_gives_the_same_bytes(self) -> None:
        recipe = merge("mwma", [make_detector(1), make_detector(2)], weights=[0.1, 3]).recipe
        assert parse_recipe(recipe.to_json()) == recipe
        assert parse_recipe(recipe.to_json()).to_json() == recipe.to_json()
