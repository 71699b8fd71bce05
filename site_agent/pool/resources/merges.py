"""Merges made by the pool."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pool_server.wire.data_use import Term
from pool_server.wire.data_use_rules import IntendedUse
from pool_server.wire.merges import MergeJobPage, MergeJobResponse, MergeRequest
from pool_server.wire.models.sharing import Visibility
from pool_server.wire.names import ModelAddress
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request
from site_agent.runs.progress import Progress

_PATH = "/api/v1/merges"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 5.0


class Merges:
    """Merges made by the pool."""

    def __init__(self, connection: PoolConnection) -> None:
        self._connection = connection

    def request(
        self,
        address: ModelAddress,
        recipe: Mapping[str, Any],
        *,
        output_format: str | None = None,
        file_name: str | None = None,
        description: str = "",
        labels: Mapping[str, str] | None = None,
        metrics: Mapping[str, float] | None = None,
        terms: Sequence[Term] = (),
        intended_use: IntendedUse | None = None,
        card: str = "",
        draft: bool = False,
        visibility: Visibility | None = None,
        despite_withdrawal: bool = False,
    ) -> MergeJobResponse:
        """Have the pool carry out a recipe and publish the result as a version of `address`.

        The description of the result is as for an upload. The pool cannot sign it: where signatures
        are required it stays a draft until it is signed and published.

        Raises
        ------
        PoolClientError
            `PoolRefusedRequestError` where recipe, inputs or rights do not allow it.
        """
        request = build_request(
            MergeRequest,
            site=address.site,
            name=address.name,
            recipe=dict(recipe),
            format=output_format,
            file_name=file_name,
            description=description,
            labels=dict(labels or {}),
            metrics=dict(metrics or {}),
            terms=list(terms),
            intended_use=intended_use,
            card=card,
            draft=draft,
            visibility=visibility,
            despite_withdrawal=despite_withdrawal,
        )
        return self._connection.post(_PATH, MergeJobResponse, request)

    def list(self, state: str = "") -> Iterator[MergeJobResponse]:
        """Yield the merges that the site asked for, newest first."""
        return self._connection.pages(_PATH, MergeJobPage, {"state": state} if state else None)

    def get(self, merge_id: str) -> MergeJobResponse:
        """Return one merge."""
        return self._connection.get(f"{_PATH}/{merge_id}", MergeJobResponse)

    def cancel(self, merge_id: str) -> MergeJobResponse:
        """Cancel a merge; one that is over stays as it is."""
        return self._connection.post(
            f"{_PATH}/{merge_id}/cancel", MergeJobResponse, repeatable=True
        )

    def wait(self, merge_id: str, *, progress: Progress | None = None) -> MergeJobResponse:
        """Wait until a merge is over and return it."""
        wait_s = _FIRST_WAIT_S
        while True:
            job = self.get(merge_id)
            if progress is not None:
                progress(job.progress, job.activity or job.state)
            if job.ended_at is not None:
                return job
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.5, _LONGEST_WAIT_S)
