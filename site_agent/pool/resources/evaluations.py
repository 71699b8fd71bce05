"""Evaluations of models in a pool.

Scores leave the site, data do not: only numbers about whole data sets are sent, never images,
their names or paths, or values of one image.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from pool_server.wire import evaluations
from pool_server.wire.names import ModelAddress
from site_agent.pool.connection import Resource
from site_agent.pool.requests import build_request, version_path

if TYPE_CHECKING:
    from site_agent.evaluation import DetectionScores, GazeScores, LandmarkScores

_PATH = "/api/v1/evaluations"
_DIGEST_SHOWN = 12


class _Names(BaseModel):
    dataset: evaluations.DatasetName
    split: evaluations.SplitName


@dataclass(frozen=True)
class DatasetWords:
    """The words by which a data set is known in the pool.

    `digest` (`site_agent.datasets.dataset_digest`) is equal for equal data. `name` is what the site
    calls it, never a path; made of the digest where empty.
    """

    digest: str
    name: str = ""
    split: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        build_request(_Names, dataset=self.shown_name, split=self.split)

    @property
    def shown_name(self) -> str:
        return self.name or f"dataset-{self.digest[:_DIGEST_SHOWN]}"


class Evaluations(Resource):
    """Evaluations of models, and their matrix."""

    def post(
        self,
        model: str,
        scores: DetectionScores | LandmarkScores | GazeScores,
        dataset: DatasetWords,
        *,
        protocol: str = "",
        site: str = "",
    ) -> evaluations.EvaluationResponse:
        """Post how a model did on the site's own data.

        `model` is an address, or ``sha256:DIGEST`` of a file that the pool has; `site` is who
        measured, one's own where empty. Metrics and intervals of `scores` are sent, and how many
        faces and images there were.
        """
        request = build_request(
            evaluations.EvaluationRequest,
            model=model,
            site=site or None,
            dataset=dataset.shown_name,
            dataset_digest=dataset.digest,
            split=dataset.split,
            note=dataset.note,
            protocol=protocol or protocol_of(scores),
            images=scores.images,
            faces=scores.faces,
            scores=scores_to_send(scores),
        )
        return self._pool.post(_PATH, evaluations.EvaluationResponse, request)

    def list(
        self, address: str | ModelAddress, *, history: bool = False
    ) -> Iterator[evaluations.EvaluationResponse]:
        """Yield the evaluations of a version, newest first; with `history` superseded ones too."""
        path = f"{version_path(address)}/evaluations"
        return self._pool.pages(path, evaluations.EvaluationPage, {"history": history})

    def matrix(
        self, query: evaluations.MatrixQuery, *, most_models: int = 100
    ) -> evaluations.EvaluationMatrix:
        """Return models x sites for one score, newest models first; `next_cursor` says of more."""
        parameters: dict[str, Any] = query.model_dump(exclude_none=True)
        parameters["limit"] = min(most_models, 100)
        whole = self._pool.get(_PATH, evaluations.EvaluationMatrix, parameters)
        while whole.next_cursor and len(whole.rows) < most_models:
            parameters["cursor"] = whole.next_cursor
            page = self._pool.get(_PATH, evaluations.EvaluationMatrix, parameters)
            whole = page.model_copy(
                update={
                    "rows": [*whole.rows, *page.rows],
                    "sites": sorted({*whole.sites, *page.sites}),
                }
            )
        return whole


def protocol_of(scores: DetectionScores | LandmarkScores | GazeScores) -> str:
    """Return in a few words how scores were measured, so that only like is compared with like."""
    from site_agent.evaluation import GazeScores, LandmarkScores

    if isinstance(scores, GazeScores):
        return "angular error"
    if isinstance(scores, LandmarkScores):
        return f"{scores.normaliser}, {scores.parts} landmarks"
    return (
        f"overlap {scores.match_threshold:g}, threshold {scores.threshold:g}, "
        f"upsampling {scores.upsample}"
    )


def scores_to_send(
    scores: DetectionScores | LandmarkScores | GazeScores,
) -> Mapping[str, Mapping[str, float]]:
    """Return metrics with their intervals; nothing of single images or faces is in them."""
    sent = {}
    for name, value in scores.metrics.items():
        if not math.isfinite(value):
            continue
        entry = {"value": float(value)}
        low, high = scores.intervals.get(name, (math.nan, math.nan))
        if math.isfinite(low) and math.isfinite(high):
            entry |= {"low": float(low), "high": float(high)}
        sent[name] = entry
    return sent
