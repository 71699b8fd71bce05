"""Exports: models on their way from one pool to another, without a connection; and citations."""

from datetime import datetime
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from pool_server.wire import cards, data_use, names, signatures
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.signatures import keys, statements


class PortableStatement(BaseModel):
    """A site's signed statement about a version, with the key to verify it."""

    model_config = ConfigDict(frozen=True)

    envelope: keys.Envelope
    public_key: signatures.KeyText
    key_name: names.Name
    origin: signatures.Origin | None = Field(
        default=None,
        description="`SITE@POOL`, the place of its signing; absent: this site, this pool.",
    )
    revoked_as: statements.Revocation | None = None


class PortableTerm(data_use.Term):
    """A term of a version; inherited terms came from its inputs."""

    inherited: bool = False


class PortableVersion(BaseModel):
    """A version's data for other pools: everything except its file."""

    model_config = ConfigDict(frozen=True)

    site: names.Name
    name: names.Name
    version: int = Field(ge=1, le=999_999_999)
    digest: names.Digest
    size_bytes: int = Field(ge=1)
    file_name: names.FileName
    kind: str = Field(max_length=64)
    description: names.Description = ""
    labels: dict[names.LabelKey, names.LabelValue] = Field(default_factory=dict, max_length=64)
    metrics: dict[names.LabelKey, names.FiniteFloat] = Field(default_factory=dict, max_length=64)
    terms: list[PortableTerm] = Field(default_factory=list, max_length=1000)
    card: cards.CardText = ""
    recipe: dict[str, Any] | None = None
    parents: list[names.Digest] = Field(default_factory=list, max_length=100_000)
    created_at: datetime
    created_by: str = Field(max_length=200)
    statement: PortableStatement | None = None
    evaluations: tuple[()] = Field(default=(), description="Empty: scores stay in their pool.")

    @property
    def address(self) -> str:
        return f"pool://{self.site}/{self.name}@{self.version}"


def citation(version: ModelVersionResponse | PortableVersion) -> str:
    """Return the text of a version's ``CITATION.cff``, with its site as the author.

    Source: Citation File Format 1.2.0.
    """
    identifiers = [{"type": "other", "value": f"sha256:{version.digest}"}]
    if doi := version.labels.get("doi"):
        identifiers.insert(0, {"type": "doi", "value": doi})
    entries = {
        "cff-version": "1.2.0",
        "message": "If you use this model, please cite it as below.",
        "type": "dataset",
        "title": f"{version.site}/{version.name}, version {version.version}",
        "authors": [{"name": version.site}],
        "version": str(version.version),
        "date-released": f"{version.created_at:%Y-%m-%d}",
        "identifiers": identifiers,
    }
    return str(yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=100))
