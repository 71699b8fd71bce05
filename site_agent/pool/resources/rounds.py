"""What a site asks of its pool about rounds; `PoolClient` has all of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool_server.wire.models.models import ModelVersionResponse
from pool_server.wire.names import ModelAddress
from pool_server.wire.rounds import (
    ContributionRequest,
    FinishRequest,
    ResultRequest,
    RoundPage,
    RoundRequest,
    RoundResponse,
)
from site_agent.errors import NotFoundError, PoolAnswerError, PoolRefusedRequestError
from site_agent.pool.cache import ModelCache
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request
from site_agent.pool.transfers.transfer import (
    Progress,
    RemoteFile,
    UploadPlace,
    hash_file,
    receive_content,
    send_upload,
)

if TYPE_CHECKING:
    from site_agent.datasets import FaceDataset
    from site_agent.pool.client import PoolClient
    from site_agent.refinement.rounds import Contributed, FinishedRound

_FINISH_TIMEOUT_S = 900.0
_HASHING_SHARE = 0.1


def _ignore(_fraction: float, _text: str) -> None:
    return


class PoolRounds(ABC):
    """The part of `PoolClient` that is about rounds."""

    cache: ModelCache

    @property
    @abstractmethod
    def _connection(self) -> PoolConnection: ...

    def rounds(self, state: str = "", *, page_size: int = 100) -> Iterator[RoundResponse]:
        """Yield the rounds that one's own site takes part in, newest first.

        Parameters
        ----------
        state : str
            ``open``, ``closed``, ``finished``, ``expired`` or ``cancelled``; all where empty.
        """
        parameters: dict[str, Any] = {"limit": page_size} | ({"state": state} if state else {})
        while True:
            page = self._connection.get("/api/v1/rounds", RoundPage, parameters)
            yield from page.items
            if not page.next_cursor:
                return
            parameters["cursor"] = page.next_cursor

    def round(self, round_id: str) -> RoundResponse:
        """Return one round."""
        return self._connection.get(_path(round_id), RoundResponse)

    def start_round(
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
    ) -> RoundResponse:
        """Ask sites to refine a model together.

        Parameters
        ----------
        base : str or ModelAddress
            The model in the pool; the newest version where none is named.
        sites : sequence of str
            One's own among them.
        deadline : datetime
            With its time zone; contributions are taken until then.
        rounds : int
            How many follow one another, each on the last one's result.

        Raises
        ------
        PoolClientError
        """
        request = build_request(
            RoundRequest,
            base=str(base),
            method=method,
            mode=mode,
            options=dict(options or {}),
            sites=list(sites),
            deadline=deadline,
            rounds=rounds,
            description=description,
        )
        return self._connection.post("/api/v1/rounds", RoundResponse, request)

    def close_round(self, round_id: str) -> RoundResponse:
        """Stop waiting for those who have not contributed (who started it, and admins)."""
        path = f"{_path(round_id)}/close"
        return self._connection.post(path, RoundResponse, repeatable=True)

    def cancel_round(self, round_id: str) -> RoundResponse:
        """Call a round off (who started it, and admins)."""
        path = f"{_path(round_id)}/cancel"
        return self._connection.post(path, RoundResponse, repeatable=True)

    def send_contribution(
        self, round_id: str, path: Path, site: str, *, progress: Progress | None = None
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
        tell = progress or _ignore
        request = build_request(
            ContributionRequest,
            site=site,
            size_bytes=path.stat().st_size,
            digest=hash_file(path, tell, share=_HASHING_SHARE),
            file_name=path.name,
        )
        place = UploadPlace(
            f"{_path(round_id)}/contributions",
            f"{_path(round_id)}/contributions/uploads/{{upload_id}}/complete",
        )
        _, sent_bytes = send_upload(self._connection, path, place, request, tell)
        return sent_bytes

    def fetch_contribution(
        self, found: RoundResponse, site: str, *, progress: Progress | None = None
    ) -> Path:
        """Bring a site's contribution into the cache.

        Raises
        ------
        NotFoundError
            The site has not contributed.
        PoolClientError
        """
        contribution = found.contributions().get(site)
        if contribution is None:
            raise NotFoundError(f"site {site!r} has not contributed to round {found.round_id}")
        remote = RemoteFile(
            label=f"the contribution of {site} to round {found.round_id}",
            url=f"{_path(found.round_id)}/contributions/{site}/content",
            digest=contribution.digest,
            size_bytes=contribution.size_bytes,
        )
        known = self.cache.find(remote.digest)
        if known is not None and known.stat().st_size == remote.size_bytes:
            return known
        path, _ = receive_content(self._connection, self.cache, remote, progress or _ignore)
        return path

    def send_result(
        self,
        round_id: str,
        path: Path,
        address: ModelAddress,
        *,
        file_name: str,
        recipe: Mapping[str, Any],
        description: str = "",
        progress: Progress | None = None,
    ) -> tuple[ModelVersionResponse, int]:
        """Send the model that one combined, which ends the round.

        Returns
        -------
        ModelVersionResponse
            What the round was finished with: this model, or that of who was first.
        int
            Bytes that this call sent.
        """
        tell = progress or _ignore
        request = build_request(
            ResultRequest,
            site=address.site,
            name=address.name,
            size_bytes=path.stat().st_size,
            digest=hash_file(path, tell, share=_HASHING_SHARE),
            file_name=file_name,
            recipe=dict(recipe),
            description=description,
        )
        request = self._as_client()._with_statement(request, path)
        place = UploadPlace(
            f"{_path(round_id)}/result", f"{_path(round_id)}/result/uploads/{{upload_id}}/complete"
        )
        upload, sent_bytes = send_upload(self._connection, path, place, request, tell)
        if upload.version is None:
            raise PoolAnswerError(f"round {round_id} was completed without a result")
        return upload.version, sent_bytes

    def let_pool_finish(self, round_id: str, address: ModelAddress) -> RoundResponse:
        """Have the pool combine the contributions and publish the result at `address`."""
        request = build_request(FinishRequest, site=address.site, name=address.name)
        return self._connection.post(
            f"{_path(round_id)}/finish",
            RoundResponse,
            request,
            repeatable=True,
            timeout_s=_FINISH_TIMEOUT_S,
        )

    # -- what a site does at home ---------------------------------------------------------

    def contribute(
        self, round_id: str, dataset: FaceDataset | Path | str, **settings: Any
    ) -> Contributed:
        """Fit the base to one's own faces and send what changed.

        See `site_agent.refinement.rounds`.
        """
        from site_agent.refinement.rounds import contribute

        faces = Path(dataset) if isinstance(dataset, str) else dataset
        return contribute(self._as_client(), round_id, faces, **settings)

    def finish_round(self, round_id: str, **settings: Any) -> FinishedRound:
        """Combine what was contributed and publish it; see `site_agent.refinement.rounds`."""
        from site_agent.refinement.rounds import finish

        return finish(self._as_client(), round_id, **settings)

    def _as_client(self) -> PoolClient:
        from site_agent.pool.client import PoolClient

        assert isinstance(self, PoolClient)
        return self


def _path(round_id: str) -> str:
    if not round_id.isalnum():
        raise PoolRefusedRequestError(
            f"{round_id!r} is no round", hint="poolctl rounds ls lists your rounds"
        )
    return f"/api/v1/rounds/{round_id}"
