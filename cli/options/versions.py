"""Options that describe a version: labels, scores, terms of use, visibility, its card."""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ValidationError

from aggregators.errors import first_problem
from cli.frame.addresses import ModelFile, known_version
from cli.frame.errors import InputMissingError, UsageError
from cli.frame.options import DespiteWithdrawalOption, LabelOption, Option
from cli.frame.output import Invocation
from cli.frame.values import key_value_pairs
from pool_server.wire.cards import PrivacyReceipt, read_card
from pool_server.wire.data_use import Term, TermResponse
from pool_server.wire.data_use_rules import IntendedUse, TermsOf
from site_agent.errors import InvalidInputError, TermsForbidError
from site_agent.pool.restrictions import (
    read_terms_file,
    read_use,
    require_mergeable,
    terms_of_version,
    today_utc,
)
from site_agent.pool.sidecars import find_terms_file

if TYPE_CHECKING:
    from pool_server.wire.labels import VocabularyResponse
    from site_agent.pool.client import PoolClient


PurposeOption = Annotated[
    Sequence[str],
    Option(
        "Purpose of the merge: research, health, ancestry, methods, clinical, "
        "commercial, or disease=NAME. The merge is refused if the terms of an input "
        "exclude it.",
        "WORD",
    ),
]
VisibilityOption = Annotated[
    Literal["private", "sites", "consortium"] | None,
    Option("Who sees it: your own site, listed sites, or all sites."),
]

MetricOption = Annotated[Sequence[str], Option("A score that you measured.", "KEY=NUMBER")]


@dataclass(frozen=True)
class NewVersionOptions:
    """The description of a version that is made by an upload, or by a merge on the pool."""

    label: LabelOption = ()
    description: Annotated[str, Option("A description.")] = ""
    term: Annotated[
        Sequence[str],
        Option(
            "A term of use, such as DUO:0000042 or MOR=2027-01-31; repeatable.", "CODE[=DETAIL]"
        ),
    ] = ()
    purpose: PurposeOption = ()
    draft: Annotated[
        bool, Option("Show it only to your own site until 'poolctl models publish'.")
    ] = False
    visibility: VisibilityOption = None
    despite_withdrawal: DespiteWithdrawalOption = False

    def read(self) -> dict[str, Any]:
        """Return it as the pool takes it: labels, terms and the intended use are parsed."""
        return {
            "labels": key_value_pairs(self.label, "--label"),
            "description": self.description,
            "terms": read_terms(self.term),
            "intended_use": read_use(self.purpose),
            "draft": self.draft,
            "visibility": self.visibility,
            "despite_withdrawal": self.despite_withdrawal,
        }


def read_terms(codes: Sequence[str], file: Path | None = None) -> list[Term]:
    """Return the terms of the command line and of a file."""
    if not codes and file is None:
        return []
    terms: dict[Term, None] = {}
    for word in codes:
        try:
            terms[Term.parse(word, today_utc())] = None
        except ValueError as error:
            raise UsageError(f"--term {word}: {error}") from error
    if file is not None:
        if not file.is_file():
            raise InputMissingError(f"{file}: no such file; expected one term per line")
        terms |= dict.fromkeys(read_terms_file(file))
    return list(terms)


def check_terms(
    invocation: Invocation,
    files: Sequence[ModelFile],
    use: IntendedUse | None,
    *,
    despite: bool = False,
) -> None:
    """Refuse a merge that the terms of its inputs forbid, and note conditions for people to judge.

    Known are the terms of versions in the pool, of local files that were downloaded from it, and
    those in the sidecar files of a model.
    """
    inputs = []
    for file in files:
        version = known_version(file)
        terms = {} if version is None else dict.fromkeys(terms_of_version(version))
        beside = None if file.version is not None else find_terms_file(file.path)
        if beside is not None:
            terms |= dict.fromkeys(read_terms_file(beside))
        if version is not None or beside is not None:
            inputs.append(TermsOf(file.word, tuple(terms)))
    try:
        notices = require_mergeable(inputs, use)
    except TermsForbidError as error:
        if not despite:
            raise
        invocation.warn(str(error))
        return
    for notice in notices:
        invocation.note(f"terms: {notice}")


def read_card_file(path: Path) -> str:
    """Return the text of a card, once its front matter was read without complaint."""
    if not path.is_file():
        raise InputMissingError(
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
        raise InputMissingError(f"{path}: no such file; expected a privacy receipt (JSON)")
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


def question_label_keys(
    invocation: Invocation, vocabulary: "VocabularyResponse", labels: Iterable[str]
) -> None:
    """Question keys that look like misspellings: in a terminal ask, elsewhere warn."""
    for key in labels:
        if near := vocabulary.near_key(key):
            doubt = f"label {key}: nobody finds it who searches for {near}"
            if sys.stdin.isatty():
                invocation.confirm(f"{doubt}. Use {key} all the same?", assume_yes=False)
            else:
                invocation.warn(f"{doubt}; did you mean {near}?")


def term_words(term: TermResponse) -> str:
    """Return a term for people, with its code where it has one."""
    code = "" if term.code == "text" else f" ({term.code})"
    return f"{term.label}{code}{f': {term.detail}' if term.detail else ''}"


def model_address(pool: "PoolClient", name: str) -> str:
    """Return the full address; the site is one's own where it is left out."""
    address = pool.address(name)
    if address.reference:
        raise UsageError(f"--name {name}: the pool numbers the versions; leave @... out")
    return str(address)


def read_metrics(entries: Sequence[str]) -> dict[str, float]:
    """Return metrics by name."""
    metrics = {}
    for key, text in key_value_pairs(entries, "--metric").items():
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"--metric {key}={text}: expected a finite number")
        metrics[key] = value
    return metrics
