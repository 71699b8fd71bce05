"""The inputs of a merge, with checked weights, in a fixed order for sums."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from aggregators import models as model_types
from aggregators.errors import IncompatibleModelsError, WeightError, WrongKindError

ModelT = TypeVar("ModelT", bound=model_types.MergeInput)
ModelT_co = TypeVar("ModelT_co", bound=model_types.MergeInput, covariant=True)

_METHODS_FOR: dict[type, str] = {
    model_types.FhogDetector: "mwma",
    model_types.ShapePredictor: "wba-cascade or wba-final",
    model_types.ForestEnsemble: "wba-final",
    model_types.StateDict: "fedavg",
    model_types.LeafContribution: "leaf-refit, with the model contributed to",
    model_types.NetworkContribution: "fedavg or fedadam, with the network contributed to",
    model_types.OptimiserState: "the method that made it, with the network made with it",
}


@dataclass(frozen=True, eq=False)
class SubModel(Generic[ModelT_co]):
    """One distinct input."""

    model: ModelT_co
    digest: str
    """SHA-256 of its file; for a model in memory, of its file in the default format."""
    name: str
    """For messages."""
    weight: float = 1.0
    """Sum over its copies."""
    copies: int = 1


@dataclass(frozen=True, eq=False)
class SubModels(Generic[ModelT_co]):
    """The distinct inputs of a merge."""

    in_given_order: tuple[SubModel[ModelT_co], ...]
    in_sum_order: tuple[SubModel[ModelT_co], ...]
    """Sorted by digest, so that sums do not depend on the order given."""
    total_weight: float

    @property
    def first(self) -> SubModel[ModelT_co]:
        """The first input given."""
        return self.in_given_order[0]

    @property
    def only(self) -> SubModel[ModelT_co] | None:
        """The input, if there is only one distinct input."""
        return self.in_given_order[0] if len(self.in_given_order) == 1 else None

    def narrow(self, *types: type[ModelT]) -> "SubModels[ModelT]":
        """Return the same inputs, or raise `WrongKindError` if one is not of these types."""
        for sub_model in self.in_given_order:
            if not isinstance(sub_model.model, types):
                kind = type(sub_model.model)
                raise WrongKindError(
                    sub_model.name,
                    model_types.KIND_WORDS[kind],
                    [model_types.KIND_WORDS[expected] for expected in types],
                    hint=f"a {model_types.KIND_WORDS[kind]} is merged by {_METHODS_FOR[kind]}",
                )
        return self  # type: ignore[return-value]


def require_equal(
    inputs: Sequence[SubModel[ModelT]],
    describe: Callable[[ModelT], Mapping[str, str]],
    hint: str = "",
) -> None:
    """Raise `IncompatibleModelsError` for the first field that differs from the first input's."""
    first = inputs[0]
    expected = describe(first.model)
    for other in inputs[1:]:
        for field, value in describe(other.model).items():
            if value != expected[field]:
                raise IncompatibleModelsError(
                    field,
                    expected[field],
                    value,
                    first_name=first.name,
                    other_name=other.name,
                    hint=hint,
                )


def collect_sub_models(
    models: Sequence[model_types.MergeInput],
    digests: Sequence[str],
    names: Sequence[str],
    weights: Sequence[float] | None = None,
) -> SubModels[model_types.MergeInput]:
    """Check the weights, join copies, and sort by digest.

    Weights are scaled by a power of two, which is exact and prevents overflow.
    """
    # Ratios alone count. Near the limits of float64, sums and products of unscaled weights would
    # overflow or vanish.
    checked = _scale(check_weights(weights, names))
    if min(checked) == 0:
        raise WeightError(
            f"weight {checked.index(0) + 1} ({names[checked.index(0)]}) is too small compared with "
            "the largest: leave that model out"
        )
    by_digest: dict[str, SubModel[model_types.MergeInput]] = {}
    weights_of: dict[str, list[float]] = {}
    for model, digest, name, weight in zip(models, digests, names, checked, strict=True):
        weights_of.setdefault(digest, []).append(weight)
        by_digest.setdefault(digest, SubModel(model, digest, name))
    # Scaled before the sums, which might overflow, and again after them.
    joined = _scale([math.fsum(copies) for copies in weights_of.values()])
    distinct = tuple(
        replace(sub_model, weight=weight, copies=len(weights_of[digest]))
        for (digest, sub_model), weight in zip(by_digest.items(), joined, strict=True)
    )
    return SubModels(
        in_given_order=distinct,
        # Rounding depends on the order of a sum. By digest it is the same at every site, whatever
        # order the files were given in.
        in_sum_order=tuple(sorted(distinct, key=lambda sub_model: sub_model.digest)),
        total_weight=math.fsum(sub_model.weight for sub_model in distinct),
    )


def _scale(weights: Sequence[float]) -> list[float]:
    """Scale by a power of two so that the largest is at least 1 and below 2."""
    exponent = math.frexp(max(weights))[1] - 1
    return [math.ldexp(weight, -exponent) for weight in weights]


def check_weights(weights: Sequence[float] | None, names: Sequence[str]) -> tuple[float, ...]:
    """Return one finite positive weight for each input, by default 1.0, or raise `WeightError`."""
    if not names:
        raise WeightError("no inputs: give at least one model")
    if weights is None:
        return (1.0,) * len(names)
    if len(weights) != len(names):
        raise WeightError(
            f"{len(weights)} weights for {len(names)} models: give one for each, in their order"
        )
    checked = []
    for number, (weight, name) in enumerate(zip(weights, names, strict=True), start=1):
        try:
            value = float(weight)
        except (TypeError, ValueError) as error:
            raise WeightError(f"weight {number} ({name}) is {weight!r}, not a number") from error
        if not (math.isfinite(value) and value > 0):
            raise WeightError(
                f"weight {number} ({name}) is {value:g}: weights must be finite and above zero"
            )
        checked.append(value)
    return tuple(checked)


def cap_samples(samples: Sequence[int], cap: float) -> float:
    """Return the most samples that one site counts with.

    `samples`: as the sites of a round state them. `cap`: multiple of their median; of an even
    number, of the lower middle, so that of two sites the smaller one decides.
    """
    return cap * sorted(samples)[(len(samples) - 1) // 2]
