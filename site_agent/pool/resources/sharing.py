"""What a site asks of its pool about the sharing of its models; `PoolClient` has all of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from pool_server.wire.models.sharing import SharingRequest, SharingResponse, Visibility
from pool_server.wire.names import ModelAddress
from site_agent.pool.addresses import model_path
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request


class PoolSharing(ABC):
    """The part of `PoolClient` that is about who sees a model and what for."""

    @property
    @abstractmethod
    def _connection(self) -> PoolConnection: ...

    def sharing(self, address: str | ModelAddress) -> SharingResponse:
        """Ask who sees a model, what they may do with it, and what oneself may."""
        return self._connection.get(_path(address), SharingResponse)

    def share(
        self,
        address: str | ModelAddress,
        visibility: Visibility,
        *,
        rights: Sequence[str] | None = None,
        sites: Mapping[str, Sequence[str] | None] | None = None,
    ) -> SharingResponse:
        """Share a model in this way, whatever was before.

        Parameters
        ----------
        address : str or ModelAddress
            ``SITE/NAME`` of one's own site; a version is not looked at.
        rights : sequence of str, optional
            Of everybody who sees it (``download``, ``merge``, ``redistribute``); the pool's usual
            ones when None.
        sites : mapping of str to sequence of str or None, optional
            With visibility ``sites``: who is listed, and their rights where they are not `rights`.

        Raises
        ------
        PoolClientError
            `ForbiddenError` where the model is another site's, `PoolRefusedRequestError` where it
            cannot be shared so.
        """
        listed = [{"site": site, "rights": given} for site, given in (sites or {}).items()]
        request = build_request(SharingRequest, visibility=visibility, rights=rights, sites=listed)
        return self._connection.write("PUT", _path(address), SharingResponse, request)


def _path(address: str | ModelAddress) -> str:
    return f"{model_path(address)}/sharing"
