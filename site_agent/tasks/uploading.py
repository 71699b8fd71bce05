"""Uploads of models, with a preview before anything leaves this machine."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggregators.formats import file_digest, recognise
from pool_server.wire.cards import read_card
from pool_server.wire.data_use import Term
from pool_server.wire.data_use_rules import today_utc
from pool_server.wire.uploads import UploadRequest
from site_agent.errors import InvalidInputError, StalePreviewError
from site_agent.pool.client import PoolClient, Uploaded, refuse_site_only
from site_agent.pool.restrictions import warning_of
from site_agent.pool.sidecars import ModelDescription
from site_agent.tasks.caller import Caller


@dataclass(frozen=True)
class PreparedUpload:
    """An upload with everything that is sent; nothing has left this machine."""

    file: Path
    format: str
    request: UploadRequest
    """All that is sent besides the file, signed; with the content of the sidecar files."""
    description: ModelDescription
    doubtful_labels: Mapping[str, str]
    """Labels that look like misspellings, each with the key that others use."""

    @property
    def address(self) -> str:
        return f"pool://{self.request.site}/{self.request.name}"

    @property
    def content(self) -> bytes:
        """The bytes of the announcement; it names the digest of the file."""
        return self.request.model_dump_json().encode()

    @property
    def digest(self) -> str:
        """The digest of all that is sent: of the announcement, the receipt, and thus the file."""
        receipt = self.description.receipt
        content = self.content + (b"" if receipt is None else receipt.model_dump_json().encode())
        return hashlib.sha256(content).hexdigest()

    def require(self, digest: str) -> None:
        """Raise `StalePreviewError` unless a preview with this digest shows the present content."""
        if digest != self.digest or file_digest(self.file) != self.request.digest:
            raise StalePreviewError(f"{self.file.name} or the words about it have changed")

    def send(self, caller: Caller, pool: PoolClient) -> Uploaded:
        """Send the file and its description; a repeated call goes on where the last one ended."""
        with caller.progress(f"upload {self.file.name}") as report:
            uploaded = pool.send_announced(self.file, self.request, report)
            if self.description.receipt is not None:
                pool.models.write_receipt(uploaded.version.address, self.description.receipt)
        if warning := warning_of(uploaded.version):
            caller.warn(warning)
        return uploaded


def prepare_upload(
    caller: Caller,
    pool: PoolClient,
    file: Path,
    name: str,
    description: ModelDescription,
    *,
    fields: Mapping[str, Any],
    receipt: Path | None = None,
    sign: bool = True,
) -> PreparedUpload:
    """Complete the description of an upload, and refuse it where the pool would.

    `name`: ``[SITE/]NAME``. `fields`: Further ones of the version: description,
    visibility, draft. The files next to the model give recipe, labels, scores and terms of use.
    """
    if not file.is_file():
        kind = "a folder" if file.is_dir() else "no such file"
        raise FileNotFoundError(f"{file}: {kind}; expected a model file")
    model_format = recognise(file).name
    # Without a pool, too: a personal part goes to none.
    refuse_site_only(file)
    digest = file_digest(file)
    address = model_address(pool, name)
    description.add_sidecars(pool, file, digest)
    if receipt is not None:
        description.add_receipt(receipt, digest)
    for note in description.notes:
        caller.note(note)
    vocabulary = pool.models.vocabulary()
    description.require_vocabulary(vocabulary)
    doubtful = vocabulary.near_keys(description.labels)
    request = pool.announcement(
        file,
        address,
        **fields,
        labels=description.labels,
        terms=description.terms,
        metrics=description.metrics,
        recipe=description.recipe,
        card=description.card,
        sign=sign,
        digest=digest,
    )
    return PreparedUpload(file, model_format, request, description, doubtful)


def describe_upload(
    caller: Caller, pool: PoolClient, file: Path, form: Mapping[str, str]
) -> PreparedUpload:
    """Prepare the upload that a form describes.

    `form`: ``name``, ``description``, ``visibility`` (empty: as the pool has it), ``terms`` (codes
    in a text) and ``label:KEY`` for each label.
    """
    labels = {
        key.removeprefix("label:"): value.strip()
        for key, value in form.items()
        if key.startswith("label:") and value.strip()
    }
    terms = []
    for word in form.get("terms", "").replace(",", " ").split():
        try:
            terms.append(Term.parse(word, today_utc()))
        except ValueError as error:
            raise InvalidInputError(f"terms: {error}") from error
    fields = {
        "description": form.get("description", "").strip(),
        "visibility": form.get("visibility") or None,
    }
    description = ModelDescription(labels, {}, terms)
    return prepare_upload(caller, pool, file, form.get("name", ""), description, fields=fields)


def read_card_file(path: Path) -> str:
    """Return the text of a card, once its front matter was read without complaint."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file; expected a card: Markdown with YAML front matter"
        )
    try:
        text = path.read_text(encoding="utf-8")
        read_card(text)
    except ValueError as error:  # no UTF-8 is one, too
        raise InvalidInputError(f"{path}: {error}") from error
    return text


def model_address(pool: PoolClient, name: str) -> str:
    """Return the full address; the site is one's own where it is left out."""
    address = pool.address(name)
    if address.reference:
        raise InvalidInputError(f"--name {name}: the pool numbers the versions; leave @... out")
    return str(address)
