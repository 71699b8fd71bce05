"""Models of a pool: search, lineage, states, cards, sharing and withdrawals.

Of evaluations, scores leave the site and data do not: only numbers about whole data sets are sent,
never images, their names or paths, or values of one image.
"""

import builtins
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from pool_server.wire import evaluations, models, withdrawals
from pool_server.wire.cards import CardRequest, CardResponse, PrivacyReceipt, ReceiptPage
from pool_server.wire.exports import PortableVersion
from pool_server.wire.labels import VocabularyResponse
from pool_server.wire.names import ModelAddress
from pool_server.wire.signatures import SignedStatement
from site_agent.evaluation.gaze import GazeScores
from site_agent.evaluation.landmark_scores import LandmarkScores
from site_agent.pool import connection, requests
from site_agent.pool.sent import note_gone

if TYPE_CHECKING:
    from site_agent.evaluation.detection import DetectionScores

Address = str | ModelAddress


class Models(connection.Resource):
    """The models of a pool and their versions."""

    def find(self, query: models.ModelQuery | None = None) -> Iterator[models.ModelVersionResponse]:
        """Yield the versions that match a query, in its order."""
        filters = query or models.ModelQuery()
        parameters = filters.model_dump(exclude_defaults=True)
        for version in self._pool.pages("/api/v1/models", models.ModelPage, parameters):
            for field in ("site", "name", "kind"):
                asked = getattr(filters, field) or getattr(version, field)
                requests.require_field(version, field, asked)
            yield version

    def lineage(self, address: Address, *, recipes: bool = False) -> models.LineageResponse:
        """Return ancestors and descendants of a version, with all recipes if asked."""
        path = f"{requests.version_path(address)}/lineage"
        return self._pool.get(path, models.LineageResponse, {"recipes": recipes})

    def lineage_of_digest(self, digest: str, *, recipes: bool = False) -> models.LineageResponse:
        """Return the lineage of a file, which need not be in the pool; its recipes if asked."""
        path = f"/api/v1/lineage/{digest}"
        return self._pool.get(path, models.LineageResponse, {"recipes": recipes})

    def vocabulary(self) -> VocabularyResponse:
        """Return the labels and terms that the pool knows."""
        return self._pool.get("/api/v1/vocabulary", VocabularyResponse)

    def change(
        self, version: models.ModelVersionResponse, statement: SignedStatement | None = None
    ) -> models.ModelVersionResponse:
        """Make description, labels and metrics of an own version those of `version`.

        A signed one needs a `statement` of the changed version (`Signatures.statement_of`).
        """
        request = requests.build_request(
            models.DescriptionRequest,
            description=version.description,
            labels=version.labels,
            metrics=version.metrics,
            statement=statement,
        )
        path = f"{requests.version_path(version.address)}/description"
        return self._pool.write("PUT", path, models.ModelVersionResponse, request)

    # -- states ---------------------------------------------------------------------------

    def publish(self, address: Address) -> models.ModelVersionResponse:
        """Publish a draft."""
        return self._act(address, "publish")

    def quarantine(self, address: Address, reason: str) -> models.ModelVersionResponse:
        """Hide a version from other sites until it has been examined."""
        request = requests.build_request(models.QuarantineRequest, reason=reason)
        return self._act(address, "quarantine", request)

    def release(self, address: Address) -> models.ModelVersionResponse:
        """Show a quarantined version again."""
        return self._act(address, "release")

    def delete_version(self, address: Address, *, force: bool = False) -> None:
        """Delete a version for good; one that something was made from only with `force`."""
        # Repeated, it would find nothing.
        path = requests.version_path(address)
        self._pool.send("DELETE", path, params={"force": force}, repeatable=False)

    def export(self, address: Address) -> PortableVersion:
        """Return all that goes with a version when it leaves the pool, which records that."""
        return self._pool.post(f"{requests.version_path(address)}/export", PortableVersion)

    def _act(
        self, address: Address, act: str, request: models.QuarantineRequest | None = None
    ) -> models.ModelVersionResponse:
        path = f"{requests.version_path(address)}/{act}"
        return self._pool.post(path, models.ModelVersionResponse, request)

    # -- cards ----------------------------------------------------------------------------

    def card(self, address: Address) -> CardResponse:
        """Return a version's card, unverified: as written, or generated by the pool."""
        return self._pool.get(f"{requests.version_path(address)}/card", CardResponse)

    def write_card(
        self, address: Address, text: str, statement: SignedStatement | None = None
    ) -> CardResponse:
        """Write a version's card; empty text restores the generated one.

        A signed version needs a `statement` with this card (`Signatures.statement_of`).
        """
        request = requests.build_request(CardRequest, text=text, statement=statement)
        return self._pool.write(
            "PUT", f"{requests.version_path(address)}/card", CardResponse, request
        )

    def receipts(self, address: Address) -> list[PrivacyReceipt]:
        """Return the privacy receipts of a version."""
        return self._pool.get(f"{requests.version_path(address)}/receipts", ReceiptPage).items

    def write_receipt(self, address: Address, receipt: PrivacyReceipt) -> list[PrivacyReceipt]:
        """Keep a privacy receipt with a version; return all that it has."""
        path = f"{requests.version_path(address)}/receipts"
        return self._pool.write("PUT", path, ReceiptPage, receipt).items

    # -- sharing --------------------------------------------------------------------------

    def sharing(self, address: Address) -> models.SharingResponse:
        """Return the sites that see a model, and the rights of each."""
        return self._pool.get(_sharing_path(address), models.SharingResponse)

    def share(
        self,
        address: Address,
        visibility: models.Visibility,
        *,
        rights: Sequence[str] | None = None,
        sites: Mapping[str, Sequence[str] | None] | None = None,
    ) -> models.SharingResponse:
        """Set the visibility and the rights of a model (``SITE/NAME``) of the own site.

        `rights` of all sites that see it are ``download``, ``merge``, ``redistribute``; the pool's
        defaults when None. With visibility ``sites``, `sites` are listed with their rights where
        these differ.
        """
        listed = [{"site": site, "rights": rights} for site, rights in (sites or {}).items()]
        request = requests.build_request(
            models.SharingRequest, visibility=visibility, rights=rights, sites=listed
        )
        return self._pool.write("PUT", _sharing_path(address), models.SharingResponse, request)


def _sharing_path(address: Address) -> str:
    return f"{requests.model_path(address)}/sharing"


class Withdrawals(connection.Resource):
    """Withdrawals, and the files that they affect."""

    def preview(self, address: str | ModelAddress) -> withdrawals.WithdrawalImpact:
        """Preview a withdrawal: the models it would flag and the people it would notify."""
        path = f"{requests.version_path(address)}/withdrawal-preview"
        return self._pool.get(path, withdrawals.WithdrawalImpact)

    def withdraw(
        self, address: str | ModelAddress, reason: withdrawals.WithdrawalReason, **fields: Any
    ) -> withdrawals.WithdrawalImpact:
        """Withdraw a version, for good, as a `WithdrawalRequest` says it."""
        request = requests.build_request(withdrawals.WithdrawalRequest, reason=reason, **fields)
        answer = self._pool.post(
            f"{requests.version_path(address)}/withdraw", withdrawals.WithdrawalImpact, request
        )
        note_gone(self._pool.endpoint, answer.digest, "withdrawn")
        return answer

    def check_digests(self, digests: Iterable[str]) -> builtins.list[withdrawals.CheckedFile]:
        """Return those of these files that were withdrawn, or contain something that was."""
        request = requests.build_request(withdrawals.CheckRequest, digests=[*digests])
        path = "/api/v1/withdrawals/check"
        return self._pool.post(path, withdrawals.CheckResponse, request, repeatable=True).items


_PATH = "/api/v1/evaluations"
_DIGEST_SHOWN = 12


class _Names(BaseModel):
    dataset: evaluations.DatasetName
    split: evaluations.SplitName


@dataclass(frozen=True)
class DatasetWords:
    """The description of a data set in the pool."""

    digest: str
    """`site_agent.datasets.records.dataset_digest`: equal for equal data."""
    name: str = ""
    """The site's name of the data set, never a path; made of the digest if empty."""
    split: str = ""

    def __post_init__(self) -> None:
        requests.build_request(_Names, dataset=self.shown_name, split=self.split)

    @property
    def shown_name(self) -> str:
        return self.name or f"dataset-{self.digest[:_DIGEST_SHOWN]}"


class Evaluations(connection.Resource):
    """Evaluations of models, and their matrix."""

    def post(
        self,
        model: str,
        scores: "DetectionScores | LandmarkScores | GazeScores",
        dataset: DatasetWords,
    ) -> evaluations.EvaluationResponse:
        """Post the scores of a model on the site's own data.

        `model` is an address, or ``sha256:DIGEST`` of a file that the pool has. Metrics and
        intervals of `scores` are sent, and the numbers of faces and images.
        """
        request = requests.build_request(
            evaluations.EvaluationRequest,
            model=model,
            dataset=dataset.shown_name,
            dataset_digest=dataset.digest,
            split=dataset.split,
            protocol=scores.protocol,
            images=scores.images,
            faces=scores.faces,
            scores=scores_to_send(scores),
        )
        return self._pool.post(_PATH, evaluations.EvaluationResponse, request)

    def list(self, address: str | ModelAddress) -> Iterator[evaluations.EvaluationResponse]:
        """Yield the evaluations of a version, newest first."""
        path = f"{requests.version_path(address)}/evaluations"
        return self._pool.pages(path, evaluations.EvaluationPage)

    def matrix(self, query: evaluations.MatrixQuery) -> evaluations.EvaluationMatrix:
        """Return models x sites for one score, newest models first; `next_cursor` says of more."""
        return self._pool.get(
            _PATH, evaluations.EvaluationMatrix, query.model_dump(exclude_defaults=True)
        )


def scores_to_send(
    scores: "DetectionScores | LandmarkScores | GazeScores",
) -> Mapping[str, Mapping[str, float]]:
    """Return metrics with their intervals; nothing of single images or faces is in them."""
    sent = {}
    for name, value in scores.metrics.items():
        if not math.isfinite(value):
            continue
        entry = {"value": float(value)}
        low, high = scores.intervals.get(name, (math.nan, math.nan))
        if math.isfinite(low) and math.isfinite(high):
            entry |= {"low": float(low), "high": float(high)}
        sent[name] = entry
    return sent
