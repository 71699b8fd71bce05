"""Models that leave a pool in a bundle or come in with one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pool_server.wire.evaluations import EvaluationRequest, EvaluationResponse
from pool_server.wire.transfers.uploads import UploadRequest
from site_agent.pool.addresses import version_path
from site_agent.pool.answers import require_same
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request
from site_agent.pool.transfers.transfer import Uploaded, send_file
from site_agent.runs.progress import Progress

if TYPE_CHECKING:
    from pool_server.wire.models.bundles import GrantedVersion, PortableEvaluation, PortableVersion


class Bundles:
    """Requests about bundles; `site_agent.bundles` writes and reads them."""

    def __init__(self, connection: PoolConnection) -> None:
        self._connection = connection

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
        """
        from pool_server.wire.models.bundles import ExportRequest, ExportResponse

        request = build_request(ExportRequest, addresses=list(addresses), with_parents=with_parents)
        granted = self._connection.post("/api/v1/exports", ExportResponse, request).items
        named = [each.address for each in granted]
        for address in addresses:
            require_same(address, address if address in named else ", ".join(named))
        return granted

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
