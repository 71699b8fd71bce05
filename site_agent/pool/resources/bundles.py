"""What a site asks of its pool when models leave it or come in; `PoolClient` has all of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool_server.wire.evaluations import EvaluationRequest, EvaluationResponse
from pool_server.wire.transfers.uploads import UploadRequest
from site_agent.pool.addresses import version_path
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request
from site_agent.pool.transfers.transfer import Progress, Uploaded, send_file

if TYPE_CHECKING:
    from pool_server.wire.models.bundles import GrantedVersion, PortableEvaluation, PortableVersion
    from site_agent.bundles import Exported, ImportOutcome
    from site_agent.pool.client import PoolClient


class PoolBundles(ABC):
    """The part of `PoolClient` that is about bundles."""

    @property
    @abstractmethod
    def _connection(self) -> PoolConnection: ...

    def grant_export(
        self, addresses: Sequence[str], *, with_parents: bool = False
    ) -> list[GrantedVersion]:
        """Ask whether models may leave the pool; it writes down that they do.

        Parameters
        ----------
        addresses : sequence of str
            With the number of the version.
        with_parents : bool
            Also all that they were merged from, as far as one may see it.

        Returns
        -------
        list of GrantedVersion
            Parents before what was merged from them.

        Raises
        ------
        ForbiddenError
            Some may not leave; each is named with the reason.
        PoolClientError
        """
        from pool_server.wire.models.bundles import ExportRequest, ExportResponse

        request = build_request(ExportRequest, addresses=list(addresses), with_parents=with_parents)
        return self._connection.post("/api/v1/exports", ExportResponse, request).items

    def portable_version(self, address: str, *, evaluations: bool = False) -> PortableVersion:
        """Return all that goes with a version when it leaves the pool."""
        from pool_server.wire.models.bundles import PortableVersion

        parameters = {"evaluations": "true"} if evaluations else {}
        return self._connection.get(f"{version_path(address)}/record", PortableVersion, parameters)

    def take_in(
        self, path: Path, start: int, request: UploadRequest, progress: Progress
    ) -> Uploaded:
        """Upload a model that lies at byte `start` of a file, as the request says."""
        return send_file(self._connection, path, request, progress, start=start)

    def repeat_evaluation(
        self, address: str, site: str, evaluation: PortableEvaluation
    ) -> EvaluationResponse:
        """Post what another pool knows of a model, in the name of a site."""
        request = build_request(
            EvaluationRequest,
            model=address,
            site=site,
            **evaluation.model_dump(exclude={"site", "created_at"}),
        )
        return self._connection.post("/api/v1/evaluations", EvaluationResponse, request)

    # -- the whole of it ------------------------------------------------------------------

    def export_bundle(
        self, addresses: Sequence[str], destination: Path, **settings: Any
    ) -> Exported:
        """Pack models into one file; see `site_agent.bundles.exporting`."""
        from site_agent.bundles import export_bundle

        return export_bundle(self._as_client(), addresses, destination, **settings)

    def import_bundle(self, path: Path, **settings: Any) -> ImportOutcome:
        """Take the models of a bundle in; see `site_agent.bundles.importing`."""
        from site_agent.bundles import import_bundle

        return import_bundle(self._as_client(), path, **settings)

    def _as_client(self) -> PoolClient:
        from site_agent.pool.client import PoolClient

        assert isinstance(self, PoolClient)
        return self
