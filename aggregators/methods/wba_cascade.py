"""WBA, cascade form: the trees of all sub-models in one ordinary shape predictor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from aggregators.errors import IncompatibleModelsError
from aggregators.methods.contract import AggregationMethod, Combined, MethodOptions, Progress
from aggregators.methods.joined_cascades import join_cascades
from aggregators.methods.landmark_members import (
    LandmarkModel,
    Member,
    find_other_orders,
    reanchor_members,
    require_landmark_models,
    split_members,
)
from aggregators.methods.sub_models import SubModels
from aggregators.models import Model


class WbaCascadeOptions(MethodOptions):
    """Options of `wba-cascade`."""

    step: float = Field(
        default=1.0,
        gt=0,
        le=2,
        description="factor of every level's update; 1.1 was best on photographs of six sites",
    )
    thin: int | None = Field(
        default=None,
        ge=1,
        description="keep this many trees of each level; all by default",
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
    output_formats = (
        "dlib-shape-predictor",
        "poolctl-forest",
        "poolctl-forest-half",
    )

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


def _asks_for_no_change(members: Sequence[Member], options: WbaCascadeOptions) -> bool:
    if len(members) > 1 or options.step != 1.0:
        return False
    largest_level = max(members[0].predictor.trees_per_level, default=0)
    return options.thin is None or options.thin >= largest_level


def _require_same_levels(landmarks: SubModels[LandmarkModel]) -> None:
    members = [member for sub_model in landmarks.given for member in split_members(sub_model)]
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
