"""WBA (weighted bin aggregation): landmark models merged by the mean of their updates or results.

Both forms start all sub-models from one mean initial shape. The cascade form, `WbaCascade`, merges
them level by level into one ordinary shape predictor; the final form, `WbaFinal`, runs each alone
and averages the landmarks.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pydantic import Field

from aggregators.errors import IncompatibleModelsError
from aggregators.methods.contract import (
    AggregationMethod,
    Combined,
    MethodOptions,
    NoOptions,
    Progress,
)
from aggregators.methods.joined_cascades import join_cascades
from aggregators.methods.sub_models import SubModel, SubModels, require_equal
from aggregators.models import Float32, Float64, ForestEnsemble, Model, ShapePredictor, UInt32

LandmarkModel = ShapePredictor | ForestEnsemble

# Misfits of mean faces: up to 0.3 with the same landmarks, 0.6 for faces turned away, 1 with
# landmarks sorted as text (0, 1, 10, 11, 2 ...), which needs more than ten landmarks.
_LARGEST_MISFIT = 0.8
_FEWEST_ORDERED_PARTS = 10


class WbaCascadeOptions(MethodOptions):
    """Options of `wba-cascade`."""

    step: float = Field(
        default=1.0,
        gt=0,
        le=2,
        description="factor of every level's update; 1.1 was best on photographs of six sites",
    )
    thin: int | None = Field(
        default=None, ge=1, description="keep this many trees of each level; all by default"
    )


class WbaCascade(AggregationMethod[WbaCascadeOptions]):
    """At each level the update is ``step * sum(w_k F_k) / sum(w_k)``, from a shared state.

    A level's update is a sum over trees, so the result is one ordinary shape predictor for any
    program that uses dlib: all trees, leaves scaled, pixel pools joined. The initial shape is
    the mean of the sub-models' (not weighted, copies counted), and pixels are anchored to it.
    All sub-models need the same number of levels.
    """

    name = "wba-cascade"
    summary = "landmark models merged into one ordinary dlib shape predictor"
    kind = "ert"
    options_type = WbaCascadeOptions
    output_formats = ("dlib-shape-predictor", "poolctl-forest", "poolctl-forest-half")

    def merge_key(self, fingerprint: Mapping[str, Any]) -> str | None:
        if fingerprint.get("kind") != self.kind:
            return None
        forests = fingerprint.get("member_forests") or [fingerprint]
        if any(forest["levels"] != fingerprint["levels"] for forest in forests):
            return None
        return f"parts{fingerprint['parts']}-levels{fingerprint['levels']}"

    def combine(
        self, sub_models: SubModels[Model], options: WbaCascadeOptions, progress: Progress, /
    ) -> Combined:
        landmarks = require_landmark_models(sub_models)
        _require_same_levels(landmarks)
        members = reanchor_members(landmarks)
        # Law 1: a single input comes back with the same bytes, re-anchored or not.
        if _asks_for_no_change(members, options):
            return Combined(members[0].predictor)
        return Combined(
            join_cascades(
                [member.predictor for member in members],
                [member.weight for member in members],
                step=options.step,
                kept_trees_per_level=options.thin,
                progress=progress,
            ),
            find_other_orders(landmarks),
        )


class WbaFinal(AggregationMethod[NoOptions]):
    """``landmarks = sum(w_k x_k) / sum(w_k)``, all sub-models starting from one shape.

    The new initial shape is the mean of the sub-models' (not weighted, copies counted), and the
    pixels of each are anchored to it. Levels, trees and depths may differ. Ensembles among the
    inputs are split into their members.

    Source: the PBLTA paper, section on Weighted Bin Aggregation. Its reference program rounds
    each sub-model's landmarks to whole pixels and truncates the mean; here unrounded coordinates
    are averaged.
    """

    name = "wba-final"
    summary = "landmark models run one by one, their results averaged"
    kind = "ert"
    options_type = NoOptions
    output_formats = ("poolctl-forest", "poolctl-forest-half")
    format_hint = (
        "a dlib file cannot hold several cascades; wba-cascade makes one ordinary .dat file"
    )

    def merge_key(self, fingerprint: Mapping[str, Any]) -> str | None:
        if fingerprint.get("kind") != self.kind:
            return None
        return f"parts{fingerprint['parts']}"

    def combine(
        self, sub_models: SubModels[Model], _options: NoOptions, _progress: Progress, /
    ) -> Combined:
        landmarks = require_landmark_models(sub_models)
        if landmarks.only is not None:
            return Combined(landmarks.only.model)
        members = reanchor_members(landmarks)
        return Combined(
            ForestEnsemble(
                members=tuple(member.predictor for member in members),
                weights=np.array([member.weight for member in members], dtype=np.float64),
            ),
            find_other_orders(landmarks),
        )


@dataclass(frozen=True, eq=False)
class Member:
    """One cascade in a merge."""

    predictor: ShapePredictor
    weight: float
    """The weight of its input, divided among the members of an ensemble."""
    name: str


def require_landmark_models(sub_models: SubModels[Model]) -> SubModels[LandmarkModel]:
    """Return the inputs, checked to be landmark models with equal numbers of parts."""
    landmarks: SubModels[LandmarkModel] = sub_models.narrow(ShapePredictor, ForestEnsemble)
    require_equal(landmarks.in_given_order, lambda model: {"parts": f"{model.part_count}"})
    return landmarks


def _require_same_levels(landmarks: SubModels[LandmarkModel]) -> None:
    members = [
        member for sub_model in landmarks.in_given_order for member in split_members(sub_model)
    ]
    first = members[0]
    for other in members[1:]:
        if other.predictor.level_count != first.predictor.level_count:
            raise IncompatibleModelsError(
                "levels",
                f"{first.predictor.level_count}",
                f"{other.predictor.level_count}",
                first_name=first.name,
                other_name=other.name,
                hint="wba-final merges models with different numbers of levels",
            )


def find_other_orders(landmarks: SubModels[LandmarkModel]) -> tuple[str, ...]:
    """Return a warning if the landmarks of some inputs seem to be in another order."""
    inputs = landmarks.in_sum_order
    shapes = [_initial_shape(sub_model.model) for sub_model in inputs]
    if len(shapes[0]) < _FEWEST_ORDERED_PARTS:
        return ()
    alike = [[_misfit(shape, other) <= _LARGEST_MISFIT for other in shapes] for shape in shapes]
    # No order is right by itself: the one that most inputs share is taken for it.
    usual = max(range(len(inputs)), key=lambda index: sum(alike[index]))
    odd = [inputs[i].name for i, is_alike in enumerate(alike[usual]) if not is_alike]
    if not odd:
        return ()
    return (
        f"the landmarks of {', '.join(odd)} seem to be in another order than those of "
        f"{inputs[usual].name}; the merge assumes the same order, and faces that are turned alike",
    )


def split_members(sub_model: SubModel[LandmarkModel]) -> tuple[Member, ...]:
    """Return the cascades of one input; an ensemble has several."""
    model, weight, name = sub_model.model, sub_model.weight, sub_model.name
    if isinstance(model, ShapePredictor):
        return (Member(model, weight, name),)
    total = math.fsum(model.weights)
    return tuple(
        Member(predictor, weight * float(share) / total, f"member {number} of {name}")
        for number, (predictor, share) in enumerate(
            zip(model.members, model.weights, strict=True), start=1
        )
    )


def reanchor_members(landmarks: SubModels[LandmarkModel]) -> tuple[Member, ...]:
    """Return all cascades in summation order, re-anchored to the mean initial shape.

    The mean is not weighted, but an input given twice counts twice (the paper's formula).
    """
    initial_shape = mean_initial_shape(
        [_initial_shape(sub_model.model) for sub_model in landmarks.in_sum_order],
        [sub_model.copies for sub_model in landmarks.in_sum_order],
    )
    return tuple(
        Member(reanchor(member.predictor, initial_shape), member.weight, member.name)
        for sub_model in landmarks.in_sum_order
        for member in split_members(sub_model)
    )


def mean_initial_shape(shapes: Sequence[Float32], copies: Sequence[int]) -> Float32:
    """Return the mean of initial shapes, each counted `copies` times, computed in float64.

    `shapes`, sequence of float32 of shape (parts, 2): in box coordinates.
    """
    total: Float64 = np.zeros(shapes[0].shape, dtype=np.float64)
    for shape, count in zip(shapes, copies, strict=True):
        total += np.float64(count) * shape
    total /= sum(copies)
    return total.astype(np.float32)


def reanchor(predictor: ShapePredictor, initial_shape: Float32) -> ShapePredictor:
    """Return the predictor with another initial shape and its pixels in the same places.

    Each pixel of the pools, at ``own shape[anchor] + delta`` in box coordinates, is anchored to
    the nearest landmark of the new shape. The trees are shared with the original. A predictor
    that already has this initial shape is returned unchanged.

    `initial_shape`, float32 of shape (parts, 2): in box coordinates.
    """
    if np.array_equal(predictor.initial_shape, initial_shape):
        return predictor
    own_shape = predictor.initial_shape.astype(np.float64)
    pixels = own_shape[predictor.anchors] + predictor.deltas
    # dlib's trainer anchors each pixel to its nearest landmark; a result that does so, too, passes
    # for trained where sites check bases (`refitting.base_check`).
    anchors = _nearest_landmarks(initial_shape.astype(np.float64), pixels)
    deltas = pixels - initial_shape.astype(np.float64)[anchors]
    return replace(
        predictor, initial_shape=initial_shape, anchors=anchors, deltas=deltas.astype(np.float32)
    )


def _asks_for_no_change(members: Sequence[Member], options: WbaCascadeOptions) -> bool:
    if len(members) > 1 or options.step != 1.0:
        return False
    largest_level = max(members[0].predictor.trees_per_level, default=0)
    return options.thin is None or options.thin >= largest_level


def _misfit(shape: Float32, other: Float32) -> float:
    """Return how much two shapes differ after the best shift and scaling: 0 to 1.

    Turned, two eyes would fit themselves with left and right exchanged.
    """
    first, second = ((points - points.mean(axis=0)) @ [1, 1j] for points in (shape, other))
    sizes = float(np.linalg.norm(first) * np.linalg.norm(second))
    if not sizes > 0:
        return 1.0
    likeness = min(max(float(np.vdot(first, second).real) / sizes, 0.0), 1.0)
    return math.sqrt(1.0 - likeness**2)


def _initial_shape(model: LandmarkModel) -> Float32:
    first = model if isinstance(model, ShapePredictor) else model.members[0]
    return first.initial_shape


def _nearest_landmarks(shape: Float64, pixels: Float64) -> UInt32:
    """Return the nearest landmark of each pixel, the first of equally near ones."""
    nearest = np.empty(len(pixels), dtype=np.uint32)
    # In blocks, as the distances of all pixels to all landmarks may take gigabytes.
    rows = max(1, 1_000_000 // len(shape))
    for start in range(0, len(pixels), rows):
        across = pixels[start : start + rows, :1] - shape[:, 0]
        down = pixels[start : start + rows, 1:] - shape[:, 1]
        nearest[start : start + rows] = np.argmin(across * across + down * down, axis=1)
    return nearest
