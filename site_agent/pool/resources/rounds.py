"""Rounds in which sites train a model together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from pool_server.wire.merges import MergeJobResponse
from pool_server.wire.names import NAME_PATTERN, ModelAddress
from pool_server.wire.rounds import (
    ContributionRequest,
    FinishRequest,
    RoundPage,
    RoundRequest,
    RoundResponse,
    SecureTerms,
)
from site_agent.errors import PoolRefusedRequestError
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request
from site_agent.pool.transfers.transfer import UploadPlace, hash_file, send_upload
from site_agent.runs.progress import Progress, no_progress

_HASHING_SHARE = 0.1


class Rounds:
    """Rounds; `site_agent.rounds` does what a site does at home."""

    def __init__(self, connection: PoolConnection) -> None:
        self._connection = connection

    def list(self, state: str = "") -> Iterator[RoundResponse]:
        """Yield the rounds that the site takes part in, newest first.

        Parameters
        ----------
        state : str
            ``open``, ``closed``, ``finished``, ``expired`` or ``cancelled``; all where empty.
        """
        return self._connection.pages(
            "/api/v1/rounds", RoundPage, {"state": state} if state else None
        )

    def get(self, round_id: str) -> RoundResponse:
        """Return one round."""
        return self._connection.get(_path(round_id), RoundResponse)

    def start(
        self,
        base: str | ModelAddress,
        sites: Sequence[str],
        deadline: datetime,
        *,
        method: str = "leaf-refit",
        mode: str = "one-shot",
        options: Mapping[str, Any] | None = None,
        rounds: int = 1,
        description: str = "",
        secure: SecureTerms | None = None,
    ) -> RoundResponse:
        """Ask sites to train a model together.

        Parameters
        ----------
        base : str or ModelAddress
            The model in the pool; the newest version where none is named.
        sites : sequence of str
            The caller's own among them.
        deadline : datetime
            With its time zone; later contributions are refused.
        rounds : int
            How many follow one another, each based on the last one's result.
        secure : SecureTerms, optional
            Sum up the contributions by the servers of a charter.
        """
        request = build_request(
            RoundRequest,
            base=str(base),
            method=method,
            mode=mode,
            options=dict(options or {}),
            sites=[*sites],
            deadline=deadline,
            rounds=rounds,
            description=description,
            secure=secure,
        )
        return self._connection.post("/api/v1/rounds", RoundResponse, request)

    def close(self, round_id: str) -> RoundResponse:
        """Stop waiting for missing contributions (who started it, and admins)."""
        path = f"{_path(round_id)}/close"
        return self._connection.post(path, RoundResponse, repeatable=True)

    def cancel(self, round_id: str) -> RoundResponse:
        """Cancel a round (who started it, and admins)."""
        path = f"{_path(round_id)}/cancel"
        return self._connection.post(path, RoundResponse, repeatable=True)

    def send_contribution(
        self,
        round_id: str,
        path: Path,
        site: str,
        *,
        despite_withdrawal: bool = False,
        progress: Progress | None = None,
    ) -> int:
        """Send a contribution file, going on where an earlier call stopped.

        Returns
        -------
        int
            Bytes that this call sent; 0 where the pool had them all.

        Raises
        ------
        ConflictError
            Too late, or the site has contributed something else.
        PoolRefusedFileError
            It does not fit the round.
        PoolClientError
            Other leaves.
        """
        tell = progress or no_progress
        request = build_request(
            ContributionRequest,
            site=site,
            size_bytes=path.stat().st_size,
            digest=hash_file(path, tell, share=_HASHING_SHARE),
            file_name=path.name,
            despite_withdrawal=despite_withdrawal,
        )
        place = UploadPlace(
            f"{_path(round_id)}/contributions",
            f"{_path(round_id)}/contributions/uploads/{{upload_id}}/complete",
        )
        _, sent_bytes = send_upload(self._connection, path, place, request, tell)
        return sent_bytes

    def take_back(self, round_id: str, site: str) -> RoundResponse:
        """Take the contribution of a site back; the pool deletes it.

        Raises
        ------
        ConflictError
            The round is finished.
        NotFoundError
            The site has not contributed.
        """
        if not re.fullmatch(NAME_PATTERN, site):
            raise PoolRefusedRequestError(f"{site!r} is not a site name")
        response = self._connection.send("DELETE", f"{_path(round_id)}/contributions/{site}")
        return RoundResponse.model_validate_json(response.content)

    def finish(
        self, round_id: str, address: ModelAddress, *, despite_withdrawal: bool = False
    ) -> MergeJobResponse:
        """Have the pool combine the contributions and publish the result at `address`.

        Returns
        -------
        MergeJobResponse
            The merge in the background that does it (`Merges.wait`). Whoever asks while it goes
            on, or afterwards, gets the same one.

        Raises
        ------
        ConflictError
            The round cannot be finished now, or not any more.
        """
        request = build_request(
            FinishRequest,
            site=address.site,
            name=address.name,
            despite_withdrawal=despite_withdrawal,
        )
        path = f"{_path(round_id)}/finish"
        return self._connection.post(path, MergeJobResponse, request, repeatable=True)


def _path(round_id: str) -> str:
    if not round_id.isalnum():
        raise PoolRefusedRequestError(
            f"{round_id!r} is not a round", hint="poolctl rounds ls lists your rounds"
        )
    return f"/api/v1/rounds/{round_id}"
