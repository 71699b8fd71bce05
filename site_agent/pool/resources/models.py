"""Models of a pool: search, lineage, states, aliases, cards, sharing and withdrawals."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from pool_server.wire.cards import CardRequest, CardResponse, PrivacyReceipt, ReceiptPage
from pool_server.wire.labels import VocabularyResponse
from pool_server.wire.models import (
    AliasRequest,
    DeletionResponse,
    DescriptionRequest,
    FacetsResponse,
    LineageResponse,
    ModelPage,
    ModelVersionResponse,
    QuarantineRequest,
    SharingRequest,
    SharingResponse,
    Visibility,
)
from pool_server.wire.names import ModelAddress
from pool_server.wire.signatures.signatures import SignedStatement
from pool_server.wire.withdrawals import (
    CheckedFile,
    CheckRequest,
    CheckResponse,
    SuccessorRequest,
    SuccessorResponse,
    Withdrawal,
    WithdrawalPage,
    WithdrawalPreview,
    WithdrawalReason,
    WithdrawalRequest,
    WithdrawalResponse,
)
from site_agent.errors import PoolAnswerError
from site_agent.pool.connection import Resource
from site_agent.pool.requests import (
    build_request,
    model_path,
    parse_address,
    require_field,
    version_path,
)

Address = str | ModelAddress


@dataclass(frozen=True)
class ModelQuery:
    """A search; all conditions have to hold.

    Attributes
    ----------
    kind : str
        ``hog-svm``, ``ert`` or ``network``.
    labels : sequence of str
        ``KEY=VALUE``, ``KEY`` for models that have the label, or a bound such as
        ``images>=500``.
    metrics : sequence of str
        Bounds such as ``mean_error<0.1`` (also ``<=``, ``>``, ``>=``, ``=``).
    text : str
        Words in name, site, description or labels.
    mergeable_with : str
        Address or ``sha256:DIGEST`` of a model in the pool.
    mergeable_keys : sequence of str
        ``METHOD:KEY`` of a model that is not in the pool (`aggregators.methods.merge_keys`).
    state : str
        ``draft``, ``available``, ``quarantined``, ``withdrawn`` or ``any``; by default,
        available ones and own drafts.
    sort : str
        ``created``, ``name`` or ``metric.NAME``, with ``-`` before it for descending order; by
        default the newest first.
    """

    kind: str = ""
    site: str = ""
    name: str = ""
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    text: str = ""
    mergeable_with: str = ""
    mergeable_keys: tuple[str, ...] = ()
    state: str = ""
    latest: bool = False
    sort: str = ""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the request."""
        words = {key: value for key, value in asdict(self).items() if value}
        for name in {"labels", "metrics", "mergeable_keys"} & set(words):
            words[name.removesuffix("s")] = list(words.pop(name))
        return words | ({"latest": "true"} if self.latest else {})


class Models(Resource):
    """The models of a pool and their versions."""

    def find(self, query: ModelQuery | None = None) -> Iterator[ModelVersionResponse]:
        """Yield the versions that match a query, in its order."""
        wanted = query or ModelQuery()
        for version in self._connection.pages("/api/v1/models", ModelPage, wanted.parameters()):
            for each in ("site", "name", "kind"):
                require_field(version, each, getattr(wanted, each) or getattr(version, each))
            yield version

    def facets(self, query: ModelQuery | None = None) -> FacetsResponse:
        """Return counts of what the versions that match a query have in common."""
        parameters = (query or ModelQuery()).parameters()
        parameters.pop("sort", None)
        return self._connection.get("/api/v1/models/facets", FacetsResponse, parameters)

    def lineage(self, address: Address, *, recipes: bool = False) -> LineageResponse:
        """Return ancestors and descendants of a version, with all recipes if asked."""
        parameters = {"recipes": "true"} if recipes else None
        return self._connection.get(f"{version_path(address)}/lineage", LineageResponse, parameters)

    def lineage_of_digest(self, digest: str, *, recipes: bool = False) -> LineageResponse:
        """Return the lineage of a file, which need not be in the pool; its recipes if asked."""
        parameters = {"recipes": "true"} if recipes else None
        return self._connection.get(f"/api/v1/lineage/{digest}", LineageResponse, parameters)

    def vocabulary(self) -> VocabularyResponse:
        """Return the labels and terms that the pool knows."""
        return self._connection.get("/api/v1/vocabulary", VocabularyResponse)

    def change(
        self, version: ModelVersionResponse, statement: SignedStatement | None = None
    ) -> ModelVersionResponse:
        """Make description, labels and metrics of an own version those of `version`.

        `statement`: of the changed version (`Signatures.statement_of`); needed where it is signed.
        """
        request = build_request(
            DescriptionRequest,
            description=version.description,
            labels=version.labels,
            metrics=version.metrics,
            statement=statement,
        )
        path = f"{version_path(version.address)}/description"
        return self._connection.write("PUT", path, ModelVersionResponse, request)

    # -- states ---------------------------------------------------------------------------

    def queue(self) -> Iterator[ModelVersionResponse]:
        """Yield drafts and quarantined versions that wait for a curator, newest first."""
        return self._connection.pages("/api/v1/queue", ModelPage)

    def publish(self, address: Address) -> ModelVersionResponse:
        """Publish a draft."""
        return self._act(address, "publish")

    def quarantine(self, address: Address, reason: str) -> ModelVersionResponse:
        """Hide a version from other sites until it has been examined."""
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
        # Repeated, it would find nothing.
        response = self._connection.send(
            "DELETE", path, params={"force": "true"} if force else None, repeatable=False
        )
        try:
            return DeletionResponse.model_validate_json(response.content)
        except ValueError as error:
            raise PoolAnswerError(f"{path}: the answer is not a deletion") from error

    # -- aliases --------------------------------------------------------------------------

    def set_alias(self, address: Address, alias: str) -> ModelVersionResponse:
        """Let ``SITE/NAME@alias`` mean a version; by default the newest."""
        where = parse_address(str(address))
        request = build_request(AliasRequest, version=where.reference or "latest")
        path = f"{model_path(where)}/aliases/{quote(alias, safe='')}"
        return self._connection.write("PUT", path, ModelVersionResponse, request)

    def remove_alias(self, address: Address, alias: str) -> None:
        """Remove an alias; its version stays."""
        path = f"{model_path(address)}/aliases/{quote(alias, safe='')}"
        self._connection.send("DELETE", path)

    # -- cards ----------------------------------------------------------------------------

    def card(self, address: Address) -> CardResponse:
        """Return a version's card, unverified: as written, or generated by the pool."""
        return self._connection.get(f"{version_path(address)}/card", CardResponse)

    def write_card(
        self, address: Address, text: str, statement: SignedStatement | None = None
    ) -> CardResponse:
        """Write a version's card; empty text restores the generated one.

        `statement`: of the version with this card (`Signatures.statement_of`); needed where it is
        signed.
        """
        request = build_request(CardRequest, text=text, statement=statement)
        return self._connection.write("PUT", f"{version_path(address)}/card", CardResponse, request)

    def receipts(self, address: Address) -> list[PrivacyReceipt]:
        """Return the privacy receipts of a version."""
        return self._connection.get(f"{version_path(address)}/receipts", ReceiptPage).items

    def write_receipt(self, address: Address, receipt: PrivacyReceipt) -> list[PrivacyReceipt]:
        """Keep a privacy receipt with a version; return all that it has."""
        path = f"{version_path(address)}/receipts"
        return self._connection.write("PUT", path, ReceiptPage, receipt).items

    # -- sharing --------------------------------------------------------------------------

    def sharing(self, address: Address) -> SharingResponse:
        """Return who sees a model and what each may do with it."""
        return self._connection.get(_sharing_path(address), SharingResponse)

    def share(
        self,
        address: Address,
        visibility: Visibility,
        *,
        rights: Sequence[str] | None = None,
        sites: Mapping[str, Sequence[str] | None] | None = None,
    ) -> SharingResponse:
        """Set how a model is shared.

        Parameters
        ----------
        address : str or ModelAddress
            ``SITE/NAME`` of the own site; the version is ignored.
        rights : sequence of str, optional
            Of everybody who sees it (``download``, ``merge``, ``redistribute``); the pool's usual
            ones when None.
        sites : mapping of str to sequence of str or None, optional
            With visibility ``sites``: the sites, and their rights where these differ.
        """
        listed = [{"site": site, "rights": given} for site, given in (sites or {}).items()]
        request = build_request(SharingRequest, visibility=visibility, rights=rights, sites=listed)
        return self._connection.write("PUT", _sharing_path(address), SharingResponse, request)


def _sharing_path(address: Address) -> str:
    return f"{model_path(address)}/sharing"


class Withdrawals(Resource):
    """Withdrawals, and the files that they affect."""

    def preview(self, address: str | ModelAddress) -> WithdrawalPreview:
        """Return what a withdrawal would flag and who would be notified; changes nothing."""
        path = f"{version_path(address)}/withdrawal-preview"
        return self._connection.get(path, WithdrawalPreview)

    def withdraw(
        self, address: str | ModelAddress, reason: WithdrawalReason, **fields: Any
    ) -> WithdrawalResponse:
        """Withdraw a version, for good, as a `WithdrawalRequest` says it."""
        request = build_request(WithdrawalRequest, reason=reason, **fields)
        return self._connection.post(
            f"{version_path(address)}/withdraw", WithdrawalResponse, request
        )

    def name_successor(
        self, address: str | ModelAddress, successor: str | ModelAddress
    ) -> SuccessorResponse:
        """Name the version that replaces another one of the site."""
        request = build_request(SuccessorRequest, successor=str(successor))
        path = f"{version_path(address)}/successors"
        return self._connection.post(path, SuccessorResponse, request, repeatable=True)

    def list(self, site: str = "") -> Iterator[Withdrawal]:
        """Yield the withdrawals of visible models, newest first."""
        return self._connection.pages(
            "/api/v1/withdrawals", WithdrawalPage, {"site": site} if site else None
        )

    def check_digests(self, digests: Iterable[str]) -> builtins.list[CheckedFile]:
        """Return those of these files that were withdrawn, or contain something that was."""
        request = build_request(CheckRequest, digests=[*digests])
        path = "/api/v1/withdrawals/check"
        return self._connection.post(path, CheckResponse, request, repeatable=True).items
