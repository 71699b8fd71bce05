"""Leaf refinement: the sites' changes of a merged forest's leaves, averaged and added."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggregators.errors import IncompatibleModelsError
from aggregators.methods.contract import AggregationMethod, CappedOptions, Combined, Progress
from aggregators.methods.refitting import forest_digest, thin_base
from aggregators.methods.sub_models import SubModel, SubModels, cap_samples, require_equal
from aggregators.models import Float32, Float64, LeafContribution, MergeInput, ShapePredictor

_ROWS_AT_ONCE = 1 << 14


class LeafRefit(AggregationMethod[CappedOptions]):
    """``leaf + sum(n_k change_k) / sum(n_k)``, n_k the samples of site k that reach the leaf.

    The inputs are one landmark model, the base, and the contributions of sites
    (`aggregators.methods.refitting`). Contributions of several rounds can be given together:
    those fitted to the base are added first, then those fitted to that result, and so on. The
    result is an ordinary cascade with the trees of the (thinned) base.

    The base's weight is ignored; a contribution's weight multiplies its counts. No model has a
    merge key, as a contribution fits only its base.
    """

    name = "leaf-refit"
    version = 2
    summary = "a merged landmark model with its leaves fitted again by all sites"
    kind = "ert"
    contribution = "leaf-changes"
    options_type = CappedOptions
    output_formats = ("dlib-shape-predictor", "poolctl-forest", "poolctl-forest-half")

    def merge_key(self, _fingerprint: Mapping[str, Any]) -> str | None:
        return None

    def combine(
        self, sub_models: SubModels[MergeInput], options: CappedOptions, progress: Progress, /
    ) -> Combined:
        base, contributions = _split_inputs(sub_models)
        forest, name = base.model, base.name
        left = list(contributions)
        # Contributions name the base that they were fitted to, so a recipe can list those of many
        # rounds in any order: each pass adds one round.
        while left:
            digest = forest_digest(forest)
            fitting = [item for item in left if item.model.base_digest == digest]
            if not fitting:
                raise _other_base_error(left[0], digest, name)
            left = [item for item in left if item.model.base_digest != digest]
            fraction = 1 - len(left) / len(contributions)
            progress(fraction, f"{len(fitting)} contributions to {name}")
            forest = refine(forest, fitting, options.weight_cap)
            name = f"{base.name}, refined"
        return Combined(forest, _warn_of_settings(contributions))


def refine(
    base: ShapePredictor, contributions: Sequence[SubModel[LeafContribution]], weight_cap: float
) -> ShapePredictor:
    """Return the base with the weighted mean of the contributions added to its leaves.

    `contributions`: of one round, all fitted to `base`; summed in this order. `weight_cap`: the
    samples of a site, in all leaves, count up to this multiple of the median.
    """
    require_equal(
        contributions,
        lambda item: {"thin": f"{item.settings.get('thin')}"},
        hint="all sites of a round must fit the same trees",
    )
    forest = thin_base(base, contributions[0].model.settings.get("thin"))
    for item in contributions:
        shape = item.model.changes.shape
        if shape != forest.leaves.shape or item.model.counts.shape != shape[:1]:
            raise IncompatibleModelsError(
                "leaves",
                f"{forest.leaves.shape}",
                f"{shape}",
                first_name="the base",
                other_name=item.name,
            )
    stated = [int(item.model.counts.sum(dtype=np.float64)) for item in contributions]
    copies = [
        item.copies if samples else 0 for item, samples in zip(contributions, stated, strict=True)
    ]
    most = cap_samples(np.repeat(stated, copies).tolist() or [0], weight_cap)
    weights = [
        item.weight * (min(1.0, most / samples) if samples else 1.0)
        for item, samples in zip(contributions, stated, strict=True)
    ]
    # In blocks: the changes of all sites in float64 would take many times the model.
    leaves = np.empty_like(forest.leaves)
    for first in range(0, len(leaves), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        change = mean_change(
            [(item.model.changes[rows], weight * item.model.counts[rows].astype(np.float64))
             for item, weight in zip(contributions, weights, strict=True)]
        )  # fmt: skip
        leaves[rows] = forest.leaves[rows] + change
    return replace(forest, leaves=leaves)


def mean_change(weighted: Sequence[tuple[Float32, Float64]]) -> Float64:
    """Return the weighted mean of leaf changes in float64; zero for leaves without samples."""
    total: Float64 = np.zeros(weighted[0][0].shape, dtype=np.float64)
    weights: Float64 = np.zeros(len(total), dtype=np.float64)
    for changes, weight in weighted:
        total += changes * weight[:, np.newaxis, np.newaxis]
        weights += weight
    # Their total is zero as well, so these leaves stay as they are.
    weights[weights == 0] = 1.0
    total /= weights[:, np.newaxis, np.newaxis]
    return total


def _split_inputs(
    sub_models: SubModels[MergeInput],
) -> tuple[SubModel[ShapePredictor], list[SubModel[LeafContribution]]]:
    """Return the base, and the contributions in summation order."""
    known = sub_models.narrow(ShapePredictor, LeafContribution)
    bases = [item for item in known.in_given_order if isinstance(item.model, ShapePredictor)]
    if len(bases) != 1:
        raise IncompatibleModelsError(
            "number of landmark models",
            "1, the base",
            f"{len(bases)}",
            first_name="leaf-refit",
            other_name=", ".join(item.name for item in bases) or "the inputs",
            hint="merge sub-models with wba-cascade first"
            if bases
            else "also give the model to which the contributions were fitted",
        )
    contributions = [
        item for item in known.in_sum_order if isinstance(item.model, LeafContribution)
    ]
    return bases[0], contributions  # type: ignore[return-value]


def _other_base_error(
    contribution: SubModel[LeafContribution], digest: str, name: str
) -> IncompatibleModelsError:
    return IncompatibleModelsError(
        "base forest",
        digest[:16],
        contribution.model.base_digest[:16],
        first_name=name,
        other_name=f"the base of {contribution.name}",
        hint="give the base of that round, or all contributions of the earlier rounds",
    )


def _warn_of_settings(contributions: Sequence[SubModel[LeafContribution]]) -> tuple[str, ...]:
    """Return a warning for each setting in which the sites of a round differ."""
    warnings = []
    for base in dict.fromkeys(item.model.base_digest for item in contributions):
        members = [item for item in contributions if item.model.base_digest == base]
        first = members[0]
        for name in sorted(first.model.settings):
            values = {str(item.model.settings.get(name)) for item in members}
            if len(values) > 1:
                warnings.append(
                    f"contributions were fitted with different {name}: {', '.join(sorted(values))}"
                )
    return tuple(warnings)
