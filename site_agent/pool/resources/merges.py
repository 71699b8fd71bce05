"""Merges made by the pool, open uploads, and models that leave or enter a pool in a bundle."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool_server.wire.evaluations import EvaluationRequest, EvaluationResponse
from pool_server.wire.merges import MergeJobPage, MergeJobResponse, MergeRequest
from pool_server.wire.names import ModelAddress
from pool_server.wire.uploads import OpenUpload, OpenUploadPage, UploadRequest
from site_agent.pool.connection import Resource
from site_agent.pool.requests import build_request, require_same, version_path
from site_agent.pool.sending import Uploaded, send_version
from site_agent.runs.progress import Progress

if TYPE_CHECKING:
    from pool_server.wire.bundles import GrantedVersion, PortableEvaluation, PortableVersion

_MERGES = "/api/v1/merges"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.2, 2.0


class Merges(Resource):
    """Merges made by the pool."""

    def request(
        self, address: ModelAddress, recipe: Mapping[str, Any], **fields: Any
    ) -> MergeJobResponse:
        """Have the pool carry out a recipe and publish the result as a version of `address`.

        All fields are those of a `MergeRequest`. The pool cannot sign the result: where signatures
        are required it stays a draft until it is signed and published.
        """
        request = build_request(
            MergeRequest, site=address.site, name=address.name, recipe=dict(recipe), **fields
        )
        return self._pool.post(_MERGES, MergeJobResponse, request)

    def list(self, state: str = "") -> Iterator[MergeJobResponse]:
        """Yield the merges that the site asked for, newest first."""
        return self._pool.pages(_MERGES, MergeJobPage, {"state": state})

    def get(self, merge_id: str) -> MergeJobResponse:
        """Return one merge."""
        return self._pool.get(f"{_MERGES}/{merge_id}", MergeJobResponse)

    def cancel(self, merge_id: str) -> MergeJobResponse:
        """Cancel a merge; one that is over stays as it is."""
        return self._pool.post(f"{_MERGES}/{merge_id}/cancel", MergeJobResponse, repeatable=True)

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


_UPLOADS = "/api/v1/uploads"


class Uploads(Resource):
    """Uploads that are not complete."""

    def list(self, site: str = "") -> Iterator[OpenUpload]:
        """Yield the open uploads to the site, newest first; to all sites for admins of the pool."""
        return self._pool.pages(_UPLOADS, OpenUploadPage, {"site": site})

    def abort(self, upload_id: str) -> None:
        """Abort an upload; the parts that arrived are deleted."""
        self._pool.send("DELETE", f"{_UPLOADS}/{upload_id}")


class Bundles(Resource):
    """Requests about bundles; `site_agent.bundles` writes and reads them."""

    def grant_export(
        self, addresses: Sequence[str], *, with_parents: bool = False
    ) -> list[GrantedVersion]:
        """Ask whether versions may leave the pool, which writes down that they do.

        With `with_parents` also all that they were merged from, as far as one may see it: parents
        before what was merged from them.
        """
        from pool_server.wire.bundles import ExportRequest, ExportResponse

        request = build_request(ExportRequest, addresses=list(addresses), with_parents=with_parents)
        granted = self._pool.post("/api/v1/exports", ExportResponse, request).items
        named = [each.address for each in granted]
        for address in addresses:
            require_same(address, address if address in named else ", ".join(named))
        return granted

    def portable_version(self, address: str, *, evaluations: bool = False) -> PortableVersion:
        """Return all that goes with a version when it leaves the pool."""
        from pool_server.wire.bundles import PortableVersion

        parameters = {"evaluations": evaluations}
        return self._pool.get(f"{version_path(address)}/record", PortableVersion, parameters)

    def upload_part(
        self, path: Path, start: int, request: UploadRequest, progress: Progress
    ) -> Uploaded:
        """Upload a model that lies at byte `start` of a file."""
        return send_version(self._pool, path, request, progress, start=start)

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
        return self._pool.post("/api/v1/evaluations", EvaluationResponse, request)
