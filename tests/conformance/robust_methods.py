"""The laws of methods that count sites and stand hostile ones, as tests.

They add to those of `AggregationMethodLaws` and replace two of them: weights do not matter.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from aggregators import encode_model, merge
from aggregators.errors import IncompatibleModelsError
from aggregators.models import StateDict, TensorInfo
from tests.aggregators.small_models import make_network
from tests.conformance.aggregation_methods import AggregationMethodLaws


def one_row(values: Sequence[float] | np.ndarray[Any, Any]) -> StateDict:
    """Make a network with one float64 entry ``w``."""
    row = np.array(values, dtype=np.float64)
    return StateDict({"w": row}, {"w": TensorInfo("F64", row.shape)})


class RobustMethodLaws(AggregationMethodLaws):
    """Subclasses are called ``Test...`` and set the attributes."""

    make_model = staticmethod(make_network)
    make_alike = staticmethod(make_network)
    hostile_options: ClassVar[dict[str, Any]] = {}
    """Options with which 3 of 10 sites may be hostile."""
    moves_with_inputs: ClassVar[bool] = True
    """True if a constant added to all inputs is added to the result."""

    @staticmethod
    def make_incompatible() -> tuple[StateDict, str]:
        return make_network(9, hidden=5), "entry 'body.weight'"

    def row_of(self, rows: np.ndarray[Any, Any], **options: Any) -> np.ndarray[Any, Any]:
        model = merge(self.method_name, [one_row(row) for row in rows], options=options).model
        assert isinstance(model, StateDict)
        return np.asarray(model.tensors["w"])

    def sites(self, seed: int = 0) -> np.ndarray[Any, Any]:
        return np.random.default_rng(seed).normal(size=(10, 500))

    def test_weights_make_a_difference(self) -> None:
        models = [make_network(seed) for seed in range(5)]
        plain = merge(self.method_name, models)
        weighted = merge(self.method_name, models, weights=[1, 1, 1, 1, 1e6])
        assert encode_model(weighted.model) == encode_model(plain.model)
        assert plain.warnings == ()
        assert weighted.warnings == (
            f"{self.method_name} counts sites: the weights change nothing",
        )

    def test_a_copy_is_twice_the_weight(self) -> None:
        rows = self.sites()[:5]
        copies = rows[[0, 1, 2, 3, 4, 4, 4]]
        almost = copies + 1e-9 * self.sites(1)[:7]
        for options in self.all_options():
            # Two votes of equal files count as those of two files that hardly differ.
            np.testing.assert_allclose(
                self.row_of(copies, **options), self.row_of(almost, **options), atol=1e-7
            )

    def test_a_scale_of_all_inputs_is_that_of_the_result(self) -> None:
        rows = self.sites()
        for options in (*self.all_options(), self.hostile_options):
            result = self.row_of(rows, **options)
            np.testing.assert_allclose(self.row_of(-3 * rows, **options), -3 * result, rtol=1e-12)
            if self.moves_with_inputs:
                moved = self.row_of(rows + 5, **options)
                np.testing.assert_allclose(moved, result + 5, rtol=1e-12)

    def test_hostile_sites_do_not_move_the_result_far(self) -> None:
        rows = self.sites()
        honest = rows[3:]
        for attack in (50 * rows[:3], rows[:3] + 1e6, np.full((3, 500), -1e300)):
            result = self.row_of(np.concatenate([attack, honest]), **self.hostile_options)
            assert np.linalg.norm(result) <= 1.001 * np.linalg.norm(honest, axis=1).max()

    def test_updates_that_are_not_finite_are_left_out_with_a_warning(self) -> None:
        rows = self.sites()
        rows[4, 7], rows[6, 0] = np.nan, np.inf
        merged = merge(
            self.method_name, [one_row(row) for row in rows], options=self.hostile_options
        )
        assert sorted(merged.warnings) == [
            f"model {number} holds infinities or NaN and was left out" for number in (5, 7)
        ]
        assert isinstance(merged.model, StateDict)
        assert np.isfinite(merged.model.tensors["w"]).all()
        with pytest.raises(IncompatibleModelsError, match="every input"):
            self.row_of(np.full((5, 2), np.nan))
