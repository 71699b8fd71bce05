"""The landmark models in the inputs of a WBA merge, with a common initial shape."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from aggregators.methods.reanchoring import mean_initial_shape, reanchored
from aggregators.methods.sub_models import SubModel, SubModels, require_equal
from aggregators.models import Float32, ForestEnsemble, Model, ShapePredictor

LandmarkModel = ShapePredictor | ForestEnsemble

# Misfits of mean faces: up to 0.3 with the same landmarks, 0.6 for faces turned away, 1 with
# landmarks sorted as text (0, 1, 10, 11, 2 ...), which needs more than ten landmarks.
_LARGEST_MISFIT = 0.8
_FEWEST_ORDERED_PARTS = 10


@dataclass(frozen=True, eq=False)
class Member:
    """One cascade in a merge.

    Attributes
    ----------
    weight : float
        The weight of its input, divided among the members of an ensemble.
    name : str
    """

    predictor: ShapePredictor
    weight: float
    name: str


def landmark_models(sub_models: SubModels[Model]) -> SubModels[LandmarkModel]:
    """Return the inputs, checked to be landmark models with equal numbers of parts."""
    landmarks: SubModels[LandmarkModel] = sub_models.narrowed(ShapePredictor, ForestEnsemble)
    require_equal(landmarks.given, lambda model: {"parts": f"{model.part_count}"})
    return landmarks


def differing_orders(landmarks: SubModels[LandmarkModel]) -> tuple[str, ...]:
    """Return a warning if the landmarks of some inputs seem to be in another order."""
    inputs = landmarks.in_sum_order
    shapes = [_initial_shape(sub_model.model) for sub_model in inputs]
    if len(shapes[0]) < _FEWEST_ORDERED_PARTS:
        return ()
    alike = [[_misfit(shape, other) <= _LARGEST_MISFIT for other in shapes] for shape in shapes]
    usual = max(range(len(inputs)), key=lambda index: sum(alike[index]))
    odd = [inputs[i].name for i, is_alike in enumerate(alike[usual]) if not is_alike]
    if not odd:
        return ()
    return (
        f"the landmarks of {', '.join(odd)} seem to be in another order than those of "
        f"{inputs[usual].name}; the merge assumes the same order",
    )


def members_of(sub_model: SubModel[LandmarkModel]) -> tuple[Member, ...]:
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


def reanchored_members(landmarks: SubModels[LandmarkModel]) -> tuple[Member, ...]:
    """Return all cascades in summation order, re-anchored to the mean initial shape.

    The mean is not weighted, but an input given twice counts twice (the paper's formula).
    """
    initial_shape = mean_initial_shape(
        [_initial_shape(sub_model.model) for sub_model in landmarks.in_sum_order],
        [sub_model.copies for sub_model in landmarks.in_sum_order],
    )
    return tuple(
        Member(reanchored(member.predictor, initial_shape), member.weight, member.name)
        for sub_model in landmarks.in_sum_order
        for member in members_of(sub_model)
    )


def _misfit(shape: Float32, other: Float32) -> float:
    """Return how much two shapes differ after the best similarity transform: 0 to 1."""
    first, second = ((points - points.mean(axis=0)) @ [1, 1j] for points in (shape, other))
    sizes = float(np.linalg.norm(first) * np.linalg.norm(second))
    if not sizes > 0:
        return 1.0
    likeness = min(float(np.abs(np.vdot(first, second))) / sizes, 1.0)
    return math.sqrt(1.0 - likeness**2)


def _initial_shape(model: LandmarkModel) -> Float32:
    first = model if isinstance(model, ShapePredictor) else model.members[0]
    return first.initial_shape
