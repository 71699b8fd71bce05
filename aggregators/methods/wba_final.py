"""WBA, final form: each landmark model runs alone, and the results are averaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aggregators.methods.contract import AggregationMethod, Combined, NoOptions, Progress
from aggregators.methods.landmark_members import (
    find_other_orders,
    reanchor_members,
    require_landmark_models,
)
from aggregators.methods.sub_models import SubModels
from aggregators.models import ForestEnsemble, Model


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
