"""What a site asks of its pool about its records: states, aliases, cards, the vocabulary.

`PoolClient` has all of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from pool_server.wire.models.cards import CardRequest, CardResponse
from pool_server.wire.models.curation import AliasRequest, DeletionResponse, QuarantineRequest
from pool_server.wire.models.labels import VocabularyResponse
from pool_server.wire.models.models import ModelPage, ModelVersionResponse
from pool_server.wire.names import ModelAddress
from site_agent.errors import PoolAnswerError
from site_agent.pool.addresses import model_path, parse_address, version_path
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request

Address = str | ModelAddress


class PoolCuration(ABC):
    """The part of `PoolClient` that is about what is said of versions, and who sees them."""

    @property
    @abstractmethod
    def _connection(self) -> PoolConnection: ...

    def vocabulary(self) -> VocabularyResponse:
        """Return the labels and terms that this pool knows."""
        return self._connection.get("/api/v1/vocabulary", VocabularyResponse)

    # -- states ---------------------------------------------------------------------------

    def queue(self, *, page_size: int = 100) -> Iterator[ModelVersionResponse]:
        """Yield drafts and quarantined versions that wait for a curator, newest first."""
        parameters: dict[str, Any] = {"limit": page_size}
        while True:
            page = self._connection.get("/api/v1/queue", ModelPage, parameters)
            yield from page.items
            if not page.next_cursor:
                return
            parameters["cursor"] = page.next_cursor

    def publish(self, address: Address) -> ModelVersionResponse:
        """Show a draft to everybody who may see its model."""
        return self._act(address, "publish")

    def quarantine(self, address: Address, reason: str) -> ModelVersionResponse:
        """Hide a version from other sites until it has been looked into."""
        request = build_request(QuarantineRequest, reason=reason)
        return self._act(address, "quarantine", request)

    def release(self, address: Address) -> ModelVersionResponse:
        """Show a quarantined version again."""
        return self._act(address, "release")

    def delete_version(self, address: Address, *, force: bool = False) -> DeletionResponse:
        """Delete a version for good.

        Raises
        ------
        ConflictError
            Something was made from it, and `force` is false.
        """
        return self._delete(version_path(address), force=force)

    def delete_model(self, address: Address, *, force: bool = False) -> DeletionResponse:
        """Delete a model with all its versions; its name is never used again."""
        return self._delete(model_path(address), force=force)

    def _act(
        self, address: Address, act: str, request: QuarantineRequest | None = None
    ) -> ModelVersionResponse:
        path = f"{version_path(address)}/{act}"
        return self._connection.post(path, ModelVersionResponse, request)

    def _delete(self, path: str, *, force: bool) -> DeletionResponse:
        # Asked for twice, the second answer would be that there is nothing.
        response = self._connection.send(
            "DELETE", path, params={"force": "true"} if force else None, repeatable=False
        )
        try:
            return DeletionResponse.model_validate_json(response.content)
        except ValueError as error:
            raise PoolAnswerError(f"{path}: an answer that is no deletion") from error

    # -- aliases --------------------------------------------------------------------------

    def set_alias(self, address: Address, alias: str) -> ModelVersionResponse:
        """Let ``SITE/NAME@alias`` mean a version from now on; the newest where none is named."""
        where = parse_address(str(address))
        request = build_request(AliasRequest, version=where.reference or "latest")
        path = f"{model_path(where)}/aliases/{quote(alias, safe='')}"
        return self._connection.write("PUT", path, ModelVersionResponse, request)

    def remove_alias(self, address: Address, alias: str) -> None:
        """Forget an alias; the version that it meant stays."""
        path = f"{model_path(address)}/aliases/{quote(alias, safe='')}"
        self._connection.send("DELETE", path)

    # -- cards ----------------------------------------------------------------------------

    def card(self, address: Address) -> CardResponse:
        """Return a version's card: as it was written, or made by the pool of what it knows."""
        return self._connection.get(f"{version_path(address)}/card", CardResponse)

    def write_card(self, address: Address, text: str) -> CardResponse:
        """Write a version's card; an empty one brings back what the pool makes of the record."""
        request = build_request(CardRequest, text=text)
        return self._connection.write("PUT", f"{version_path(address)}/card", CardResponse, request)
