"""Uploads of models, with a preview before anything leaves this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from aggregators.errors import first_problem
from aggregators.formats import file_digest, recognise
from pool_server.wire.cards import PrivacyReceipt, read_card
from site_agent.errors import InvalidInputError
from site_agent.pool.client import PoolClient, Uploaded, refuse_site_only
from site_agent.pool.sidecars import ModelDescription
from site_agent.tasks.caller import Caller
from site_agent.tasks.model_files import warn_of_standing


@dataclass(frozen=True)
class PreparedUpload:
    """An upload with everything that is sent; nothing has left this machine."""

    file: Path
    digest: str
    format: str
    address: str
    description: ModelDescription
    """With the content of sidecar files, and the labels that the inputs of a merge share."""
    fields: Mapping[str, Any]
    """Further fields of the version: description, intended use, visibility, draft."""
    receipt: PrivacyReceipt | None
    doubtful_labels: Mapping[str, str]
    """Labels that look like misspellings, each with the key that others use."""

    def send(self, caller: Caller, pool: PoolClient, *, sign: bool = True) -> Uploaded:
        """Send the file and its description; a repeated call goes on where the last one ended."""
        with caller.progress(f"upload {self.file.name}") as report:
            uploaded = pool.upload(
                self.file,
                self.address,
                **self.fields,
                labels=self.description.labels,
                terms=self.description.terms,
                metrics=self.description.metrics,
                recipe=self.description.recipe,
                card=self.description.card,
                sign=sign,
                digest=self.digest,
                progress=report,
            )
            if self.receipt is not None:
                pool.models.write_receipt(uploaded.version.address, self.receipt)
        warn_of_standing(caller, uploaded.version)
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
    sidecars: bool = True,
) -> PreparedUpload:
    """Complete the description of an upload, and refuse it where the pool would.

    `name`: ``[SITE/]NAME``. `sidecars`: Read the files next to the model: its recipe, labels,
    scores and terms of use.
    """
    if not file.is_file():
        kind = "a folder" if file.is_dir() else "no such file"
        raise FileNotFoundError(f"{file}: {kind}; expected a model file")
    model_format = recognise(file).name
    refuse_site_only(file)
    digest = file_digest(file)
    address = model_address(pool, name)
    if sidecars:
        description.add_sidecars(pool, file, digest)
    subjects = [digest, *description.input_digests]
    privacy = None if receipt is None else read_receipt_file(receipt, subjects)
    for note in description.notes:
        caller.note(note)
    vocabulary = pool.models.vocabulary()
    description.require_vocabulary(vocabulary)
    doubtful = vocabulary.near_keys(description.labels)
    return PreparedUpload(
        file, digest, model_format, address, description, fields, privacy, doubtful
    )


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


def read_receipt_file(path: Path, digests: Sequence[str]) -> PrivacyReceipt:
    """Return a receipt that 'poolctl privacy probe' wrote of one of these files.

    `digests`: SHA-256 of the model and its inputs: contributions have receipts, too.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected a privacy receipt (JSON)")
    try:
        receipt = PrivacyReceipt.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise InvalidInputError(f"{path}: {first_problem(error)}") from error
    if receipt.artifact_digest not in digests:
        raise InvalidInputError(
            f"{path}: is the receipt of a file with sha256 {receipt.artifact_digest[:12]}..., "
            f"and this one has {digests[0][:12]}...",
            hint="probe the file that you upload: poolctl privacy probe",
        )
    return receipt


def model_address(pool: PoolClient, name: str) -> str:
    """Return the full address; the site is one's own where it is left out."""
    address = pool.address(name)
    if address.reference:
        raise InvalidInputError(f"--name {name}: the pool numbers the versions; leave @... out")
    return str(address)
