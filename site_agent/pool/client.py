"""The pool from Python: ``from site_agent import PoolClient``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from pool_server.wire.models.data_use import Term
from pool_server.wire.models.data_use_rules import IntendedUse
from pool_server.wire.models.facets import FacetsResponse
from pool_server.wire.models.models import LineageResponse, ModelPage, ModelVersionResponse
from pool_server.wire.models.sharing import Visibility
from pool_server.wire.names import ModelAddress
from pool_server.wire.transfers.uploads import UploadRequest
from site_agent.errors import (
    NotFoundError,
    NotLoggedInError,
    PoolRefusedRequestError,
    PoolUnreachableError,
)
from site_agent.pool import profiles
from site_agent.pool.addresses import parse_address, version_path
from site_agent.pool.cache import ModelCache
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request
from site_agent.pool.resources.bundles import PoolBundles
from site_agent.pool.resources.curation import PoolCuration
from site_agent.pool.resources.evaluations import PoolEvaluations
from site_agent.pool.resources.events import PoolEvents
from site_agent.pool.resources.merges import PoolMerges
from site_agent.pool.resources.people import PoolPeople
from site_agent.pool.resources.rounds import PoolRounds
from site_agent.pool.resources.sharing import PoolSharing
from site_agent.pool.resources.signatures import PoolSignatures
from site_agent.pool.resources.uploads import PoolUploads
from site_agent.pool.resources.withdrawals import PoolWithdrawals
from site_agent.pool.standing import require_usable
from site_agent.pool.transfers.transfer import (
    Downloaded,
    Progress,
    Uploaded,
    hash_file,
    receive_file,
    send_file,
)
from site_agent.pool.trust.verification import SignaturePolicy, chosen_policy

__all__ = ["Downloaded", "ModelQuery", "PoolClient", "Uploaded", "parse_address"]


@dataclass(frozen=True)
class ModelQuery:
    """What to look for; everything given has to hold.

    Attributes
    ----------
    kind : str
        ``hog-svm``, ``ert`` or ``network``.
    site, name : str
    labels : sequence of str
        ``KEY=VALUE``, ``KEY`` for models that have it at all, or a bound such as
        ``images>=500``.
    metrics : sequence of str
        Bounds such as ``mean_error<0.1`` (also ``<=``, ``>``, ``>=``, ``=``).
    text : str
        Words in name, site, description or labels.
    mergeable_with : str
        Address or ``sha256:DIGEST`` of a model in the pool.
    mergeable_keys : sequence of str
        ``METHOD:KEY`` of a model that is not (`aggregators.methods.merge_keys`).
    state : str
        ``draft``, ``available``, ``quarantined``, ``withdrawn`` or ``any``; where empty, what is
        available and one's own drafts.
    latest : bool
        Only the newest version of each model: of those available, or in `state`.
    sort : str
        ``created``, ``name`` or ``metric.NAME``, with ``-`` before it for descending; the newest
        first where empty.
    """

    kind: str = ""
    site: str = ""
    name: str = ""
    labels: tuple[str, ...] = field(default_factory=tuple)
    metrics: tuple[str, ...] = field(default_factory=tuple)
    text: str = ""
    mergeable_with: str = ""
    mergeable_keys: tuple[str, ...] = field(default_factory=tuple)
    state: str = ""
    latest: bool = False
    sort: str = ""

    def parameters(self) -> dict[str, Any]:
        """Return the query as the pool's interface spells it."""
        words: dict[str, Any] = {
            "kind": self.kind,
            "site": self.site,
            "name": self.name,
            "label": list(self.labels),
            "metric": list(self.metrics),
            "text": self.text,
            "mergeable_with": self.mergeable_with,
            "mergeable_key": list(self.mergeable_keys),
            "state": self.state,
            "latest": "true" if self.latest else "",
            "sort": self.sort,
        }
        return {key: value for key, value in words.items() if value}


def _ignore(_fraction: float, _text: str) -> None:
    return


class PoolClient(
    PoolBundles,
    PoolCuration,
    PoolEvaluations,
    PoolEvents,
    PoolMerges,
    PoolPeople,
    PoolRounds,
    PoolSharing,
    PoolSignatures,
    PoolUploads,
    PoolWithdrawals,
):
    """Everything that a site asks of its pool.

    Parameters
    ----------
    endpoint, token : str, optional
        Where the pool is and what to say who one is; from `profile` and environment when None.
    profile : str, optional
        A stored login (`site_agent.pool.profiles`); the active one when None.
    cache : ModelCache, optional
        Where downloads go; the usual one when None.
    timeout_s : float
        Longest silence of the pool to put up with.
    attempts : int
        Tries of requests that may safely be repeated.
    signatures : SignaturePolicy, optional
        How strictly the signatures of downloads are checked
        (`site_agent.pool.trust.verification`); as ``POOL_SIGNATURES`` says when None.

    Examples
    --------
    >>> with PoolClient("http://127.0.0.1:8710", token) as pool:   # doctest: +SKIP
    ...     pool.upload("siteA.dat", "site-a/face-68", labels={"population": "infant"})
    ...     path = pool.download("site-b/face-68@2").path
    """

    def __init__(
        self,
        endpoint: str | None = None,
        token: str | None = None,
        *,
        profile: str | None = None,
        cache: ModelCache | None = None,
        timeout_s: float = 30.0,
        attempts: int = 5,
        signatures: SignaturePolicy | None = None,
    ) -> None:
        name = ""
        if endpoint is None:
            stored = profiles.load_profile(profile)
            name, endpoint = stored.name, stored.endpoint
            token = token if token is not None else stored.token
        else:
            endpoint = profiles.normalise_endpoint(endpoint)
        self.key_folder = profiles.key_folder(name, endpoint)
        self.signatures = signatures or chosen_policy()
        self.endpoint = endpoint
        self.cache = cache or ModelCache()
        self._token = token or ""
        self._timeout_s = timeout_s
        self._attempts = attempts
        self._opened: PoolConnection | None = None

    def __enter__(self) -> PoolClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the pool."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # -- models ---------------------------------------------------------------------------

    def models(
        self, query: ModelQuery | None = None, *, page_size: int = 100
    ) -> Iterator[ModelVersionResponse]:
        """Yield the versions that a query finds, in its order, page by page."""
        parameters = (query or ModelQuery()).parameters() | {"limit": page_size}
        while True:
            page = self._connection.get("/api/v1/models", ModelPage, parameters)
            yield from page.items
            if not page.next_cursor:
                return
            parameters["cursor"] = page.next_cursor

    def facets(self, query: ModelQuery | None = None) -> FacetsResponse:
        """Return what the versions that a query finds have in common, counted."""
        parameters = (query or ModelQuery()).parameters()
        parameters.pop("sort", None)
        return self._connection.get("/api/v1/models/facets", FacetsResponse, parameters)

    def version(self, address: str | ModelAddress) -> ModelVersionResponse:
        """Return what the pool knows of a version; when offline, what it last said.

        Raises
        ------
        AddressError, NotFoundError, PoolClientError
        """
        where = parse_address(address) if isinstance(address, str) else address
        host = profiles.host_of(self.endpoint)
        if profiles.is_offline():
            known = self.cache.recall(host, where)
            if known is None:
                raise NotFoundError(
                    f"{where}: not in the cache {self.cache.folder}, and POOL_OFFLINE is set",
                    hint="download it once with POOL_OFFLINE unset",
                )
            return ModelVersionResponse.model_validate(known)
        version = self._connection.get(version_path(where), ModelVersionResponse)
        self.cache.remember(host, version.model_dump(mode="json"), where.reference)
        return version

    def lineage(self, address: str | ModelAddress, *, recipes: bool = False) -> LineageResponse:
        """Return ancestors and descendants of a version, with the recipe of each if asked."""
        where = parse_address(address) if isinstance(address, str) else address
        parameters = {"recipes": "true"} if recipes else None
        return self._connection.get(f"{version_path(where)}/lineage", LineageResponse, parameters)

    def upload(
        self,
        path: Path | str,
        address: str | ModelAddress,
        *,
        description: str = "",
        labels: Mapping[str, str] | None = None,
        metrics: Mapping[str, float] | None = None,
        recipe: Mapping[str, Any] | None = None,
        terms: Sequence[Term] = (),
        intended_use: IntendedUse | None = None,
        card: str = "",
        draft: bool = False,
        visibility: Visibility | None = None,
        sign: bool = True,
        progress: Progress | None = None,
    ) -> Uploaded:
        """Upload a model file as the next version of ``SITE/NAME``.

        Terms of use are those of this file; a merged model inherits those of its inputs besides,
        and is refused where they forbid the merge or `intended_use`. A `draft` is seen by one's
        own site and by curators until it is published. `visibility` says who sees a model of which
        this is the first version; by default the pool does.

        It is signed where there is a key for the site (`poolctl keys create`), unless `sign` is
        False.

        The same file uploaded again gives the version that is there. An interrupted upload goes
        on where it stopped when this is called again.

        Raises
        ------
        PoolClientError
            `PoolRefusedFileError` when the pool does not know the format;
            `PoolUnreachableError` when the line is lost for good: call again.
        """
        file = Path(path)
        where = parse_address(address) if isinstance(address, str) else address
        tell = progress or _ignore
        connection = self._connection
        size_bytes = file.stat().st_size
        if size_bytes == 0:
            raise PoolRefusedRequestError(f"{file}: the file is empty")
        request = build_request(
            UploadRequest,
            site=where.site,
            name=where.name,
            size_bytes=size_bytes,
            digest=hash_file(file, tell, share=0.1),
            file_name=file.name[-255:],
            description=description,
            labels=dict(labels or {}),
            metrics=dict(metrics or {}),
            recipe=None if recipe is None else dict(recipe),
            terms=list(terms),
            intended_use=intended_use,
            card=card,
            draft=draft,
            visibility=visibility,
        )
        if sign:
            request = self._with_statement(request, file)
        return send_file(connection, file, request, tell)

    def download(
        self, address: str | ModelAddress, *, progress: Progress | None = None
    ) -> Downloaded:
        """Bring a version into the cache and return it with the path of its file there.

        A model that is in the cache costs one small request, and none with ``POOL_OFFLINE=1``.

        Raises
        ------
        AddressError, NotFoundError, DigestMismatchError, PoolClientError
        """
        return self.fetch(self.version(address), progress=progress)

    def fetch(
        self, version: ModelVersionResponse, *, progress: Progress | None = None
    ) -> Downloaded:
        """Bring the file of a known version into the cache; no request when it is there.

        Its signature is checked first.

        Raises
        ------
        SignatureRefusedError, KeyNotTrustedError, SignatureMissingError
            The file is not to be used; nothing of it was fetched.
        WithdrawnError
            The version was withdrawn, and nobody shall use it any more, cached or not.
        NotFoundError, DigestMismatchError, PoolClientError
        """
        require_usable(version)
        signature = self.verify(version)
        path = self.cache.find(version.digest)
        if path is not None and path.stat().st_size == version.size_bytes:
            return Downloaded(version, path, 0, signature)
        if path is not None:
            self.cache.remove(version.digest)
        if profiles.is_offline():
            raise NotFoundError(
                f"{version.address}: its file is not in the cache {self.cache.folder}, "
                "and POOL_OFFLINE is set",
                hint="download it once with POOL_OFFLINE unset",
            )
        received = receive_file(self._connection, self.cache, version, progress or _ignore)
        return replace(received, signature=signature)

    @property
    def _connection(self) -> PoolConnection:
        """Return the connection, or say why there is none."""
        if profiles.is_offline():
            raise PoolUnreachableError(
                "POOL_OFFLINE is set, and this needs the pool", hint="unset POOL_OFFLINE"
            )
        if not self.endpoint:
            raise NotLoggedInError(
                "no pool is known: none was logged in to, and POOL_ENDPOINT is not set"
            )
        if not self._token:
            raise NotLoggedInError(
                f"not logged in to {self.endpoint}, and POOL_TOKEN is not set",
                hint=f"log in with: poolctl auth login {self.endpoint}",
            )
        if self._opened is None:
            self._opened = PoolConnection(
                self.endpoint, self._token, timeout_s=self._timeout_s, attempts=self._attempts
            )
        return self._opened
