"""The laws of `aggregators.methods.contract.AggregationMethod`, as tests.

A method's tests are a subclass that names the method and makes sample models::

    class TestMwma(AggregationMethodLaws):
        method_name = "mwma"
        make_model = staticmethod(make_detector)
        ...
"""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from aggregators import encode_model, find_method, fingerprint, merge, read_model, write_model
from aggregators.errors import (
    ConversionError,
    IncompatibleModelsError,
    OptionError,
    RecipeInputMissingError,
    WeightError,
)
from aggregators.formats import FORMATS, file_digest
from aggregators.methods import merge_keys, read_recipe, recipe_path, replay
from aggregators.models import Model


class AggregationMethodLaws:
    """Subclasses are called ``Test...`` and set the attributes."""

    method_name: ClassVar[str]
    make_model: ClassVar[Callable[..., Model]]
    """A sample sub-model by seed; all can be merged with one another without warnings."""
    make_alike: ClassVar[Callable[..., Model]]
    """As `make_model`, but with equal initial shapes where the kind of model has one."""
    make_incompatible: ClassVar[Callable[[], tuple[Model, str]]]
    """A model that cannot be merged with the samples, and the first field that differs."""
    other_options: ClassVar[Sequence[dict[str, Any]]] = ()
    """Options other than the defaults with which laws 3 to 6 hold too."""

    fewest_inputs: ClassVar[int] = 1
    """The method refuses fewer inputs; copies count."""

    def all_options(self) -> list[dict[str, Any]]:
        return [{}, *self.other_options]

    def merged_bytes(
        self,
        models: Sequence[Model],
        weights: Sequence[float] | None = None,
        options: dict[str, Any] | None = None,
    ) -> bytes:
        merged = merge(self.method_name, models, weights=weights, options=options)
        return encode_model(merged.model)

    @pytest.mark.parametrize("weight", [1.0, 0.1, 1e-300, 1e300])
    def test_one_input_is_returned(self, weight: float) -> None:
        model = self.make_model(1)
        count = self.fewest_inputs
        assert self.merged_bytes([model] * count, [weight] * count) == encode_model(model)

    def test_equal_inputs_give_that_input(self) -> None:
        copies = [self.make_model(1) for _ in range(3)]
        assert self.merged_bytes(copies, [0.1, 0.7, 123.0]) == encode_model(copies[0])

    def test_the_order_of_the_inputs_does_not_matter(self) -> None:
        weighted = [(self.make_model(seed), weight) for seed, weight in enumerate((0.1, 3.0, 0.7))]
        for options in self.all_options():
            results = {
                self.merged_bytes([model for model, _ in order], [x for _, x in order], options)
                for order in itertools.permutations(weighted)
            }
            assert len(results) == 1

    @pytest.mark.parametrize("factor", [0.125, 2.0**900, 2.0**-900])
    def test_only_the_ratios_of_the_weights_matter(self, factor: float) -> None:
        models, weights = [self.make_model(seed) for seed in range(3)], [0.3, 1.0, 2.5]
        scaled = [weight * factor for weight in weights]
        for options in self.all_options():
            assert self.merged_bytes(models, weights, options) == self.merged_bytes(
                models, scaled, options
            )

    def test_a_copy_is_twice_the_weight(self) -> None:
        first, second = self.make_alike(1), self.make_alike(2)
        for options in self.all_options():
            assert self.merged_bytes([first, second, first], None, options) == self.merged_bytes(
                [first, second], [2, 1], options
            )

    def test_weights_make_a_difference(self) -> None:
        models = [self.make_model(1), self.make_model(2)]
        assert self.merged_bytes(models, [1, 3]) != self.merged_bytes(models, [3, 1])

    @pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "much"])
    def test_bad_weights_are_refused_by_name(self, bad: float, tmp_path: Path) -> None:
        paths = self.write_samples(tmp_path)
        with pytest.raises(WeightError, match=rf"weight 2 \({paths[1].name}\)"):
            merge(self.method_name, paths, weights=[1, bad, *[1] * (len(paths) - 2)])

    def test_a_weight_for_each_input_is_required(self) -> None:
        with pytest.raises(WeightError, match="2 weights for 3 models"):
            self.merged_bytes([self.make_model(seed) for seed in range(3)], [1, 2])

    def test_no_input_is_refused(self) -> None:
        with pytest.raises(WeightError, match="at least one"):
            self.merged_bytes([])

    def test_other_models_are_refused_with_the_differing_field(self) -> None:
        incompatible, field = self.make_incompatible()
        for models in ([self.make_model(1), incompatible], [incompatible, self.make_model(1)]):
            with pytest.raises(IncompatibleModelsError) as caught:
                self.merged_bytes(models)
            assert caught.value.field == field
            assert caught.value.first != caught.value.other
            assert {caught.value.first_name, caught.value.other_name} == {"model 1", "model 2"}

    def test_models_with_equal_merge_keys_can_be_merged(self) -> None:
        keys = [merge_keys(fingerprint(self.make_model(seed)))[self.method_name] for seed in (1, 2)]
        incompatible, _ = self.make_incompatible()
        assert keys[0] == keys[1]
        assert merge_keys(fingerprint(incompatible)).get(self.method_name) != keys[0]

    def test_a_result_can_be_merged_with_the_samples_again(self) -> None:
        models = self.make_samples()
        merged = merge(self.method_name, models).model
        keys = [merge_keys(fingerprint(m))[self.method_name] for m in (merged, models[0])]
        assert keys[0] == keys[1]
        self.merged_bytes([merged, *models[1:]])

    def test_unknown_options_are_refused(self) -> None:
        with pytest.raises(OptionError, match="has no option 'colour'"):
            merge(self.method_name, [self.make_model(1)], options={"colour": "red"})

    def test_every_output_format_holds_the_result(self, tmp_path: Path) -> None:
        models = self.make_samples()
        for format_name in find_method(self.method_name).output_formats:
            output = tmp_path / f"merged-{format_name}"
            merge(self.method_name, models, output=output, output_format=format_name)
            read_model(output)

    def test_other_formats_are_refused(self, tmp_path: Path) -> None:
        for format_name in set(FORMATS).difference(find_method(self.method_name).output_formats):
            with pytest.raises(ConversionError, match="cannot hold"):
                merge(
                    self.method_name,
                    [self.make_model(1), self.make_model(2)],
                    output=tmp_path / "merged",
                    output_format=format_name,
                )
        assert list(tmp_path.iterdir()) == []

    def test_the_recipe_gives_the_same_bytes_again(self, tmp_path: Path) -> None:
        paths = self.write_samples(tmp_path)
        by_digest = {file_digest(path): path for path in paths}
        for options in self.all_options():
            output, again = tmp_path / "merged", tmp_path / "again"
            merged = merge(
                self.method_name,
                paths,
                weights=[1, 2.5, 0.1, 3][: len(paths)],
                options=options,
                output=output,
            )
            assert merged.digest == file_digest(output)
            recipe = read_recipe(recipe_path(output))
            assert recipe == merged.recipe
            replayed = replay(recipe, by_digest.__getitem__, again)
            assert again.read_bytes() == output.read_bytes()
            assert replayed.recipe == recipe
            assert recipe_path(again).read_bytes() == recipe_path(output).read_bytes()

    def test_an_input_can_be_left_out(self, tmp_path: Path) -> None:
        paths = self.write_samples(tmp_path)
        by_digest = {file_digest(path): path for path in paths}
        weights = [1, 2, 3, 4][: len(paths)]
        merged = merge(self.method_name, paths, weights=weights, output=tmp_path / "merged")
        left_out = file_digest(paths[1])
        replay(merged.recipe, by_digest.__getitem__, tmp_path / "without", without=left_out)
        direct = tmp_path / "direct"
        del paths[1], weights[1]
        merge(self.method_name, paths, weights=weights, output=direct)
        assert (tmp_path / "without").read_bytes() == direct.read_bytes()

    def test_a_missing_input_is_named(self, tmp_path: Path) -> None:
        paths = self.write_samples(tmp_path)
        by_digest = {file_digest(path): path for path in paths}
        merged = merge(self.method_name, paths, output=tmp_path / "merged")
        del by_digest[file_digest(paths[2])]
        with pytest.raises(
            RecipeInputMissingError, match=f"input 3 of {len(paths)} .*{paths[2].name}.* is missing"
        ):
            replay(merged.recipe, by_digest.__getitem__, tmp_path / "again")
        assert not (tmp_path / "again").exists()

    def write_samples(self, folder: Path) -> list[Path]:
        count = max(3, self.fewest_inputs + 1)
        paths = [folder / f"sub-model-{seed}" for seed in range(count)]
        for seed, path in enumerate(paths):
            write_model(self.make_model(seed), path)
        return paths

    def make_samples(self) -> list[Model]:
        return [self.make_model(seed) for seed in range(max(2, self.fewest_inputs))]
