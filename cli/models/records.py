"""What people see of a version's records: terms, states, cards, evaluations."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.frame.errors import InputMissingError
from cli.frame.output import Invocation, TableText

if TYPE_CHECKING:
    from pool_server.wire.cards import PrivacyReceipt
    from pool_server.wire.data_use import TermResponse
    from pool_server.wire.evaluations import EvaluationResponse, Score
    from pool_server.wire.labels import VocabularyResponse
    from pool_server.wire.models import ModelVersionResponse

KindOption = Annotated[
    Literal["hog-svm", "ert", "network"] | None,
    typer.Option(help="Face detectors, landmark models or networks."),
]


def read_card_file(path: Path) -> str:
    """Return the text of a card, once its front matter was read without complaint."""
    from pool_server.wire.cards import read_card
    from site_agent.errors import CardFileError

    if not path.is_file():
        raise InputMissingError(
            f"{path}: no such file; expected a card: Markdown with YAML front matter"
        )
    try:
        text = path.read_text(encoding="utf-8")
        read_card(text)
    except ValueError as error:  # no UTF-8 is one, too
        raise CardFileError(f"{path}: {error}") from error
    return text


def read_receipt_file(path: Path) -> PrivacyReceipt:
    """Return a receipt that 'poolctl privacy probe' wrote."""
    from pydantic import ValidationError

    from pool_server.wire.cards import PrivacyReceipt
    from site_agent.errors import InvalidInputError

    if not path.is_file():
        raise InputMissingError(f"{path}: no such file; expected a privacy receipt (JSON)")
    try:
        return PrivacyReceipt.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, problem["loc"])) or "the file"
        raise InvalidInputError(f"{path}: {where}: {problem['msg']}") from error


def receipt_tables(receipts: list[PrivacyReceipt]) -> list[TableText]:
    """Return a table of attacks for each receipt."""
    from pool_server.wire.cards import receipt_lines

    columns = ["attack", "measure", "found", "chance", "control"]
    return [
        TableText(
            columns, rows, title=f"privacy receipt, measured by the site itself: {title}",
            shortened="measure",
        )
        for title, rows in receipt_lines(receipts)
    ]  # fmt: skip


def question_label_keys(
    invocation: Invocation, vocabulary: VocabularyResponse, labels: Iterable[str]
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


def state_words(version: ModelVersionResponse) -> str:
    """Return a version's state with why, when and by whom, where that is known."""
    words: str = version.state
    if version.state_reason:
        words += f": {version.state_reason}"
    if version.state_changed_at is not None:
        words += f" ({version.state_changed_at:%Y-%m-%d} by {version.state_changed_by})"
    return words


def score_words(score: Score) -> str:
    """Return a score with its interval."""
    if score.low is None or score.high is None:
        return f"{score.value:.4g}"
    return f"{score.value:.4g} [{score.low:.4g}, {score.high:.4g}]"


def evaluation_table(evaluations: Sequence[EvaluationResponse], empty: str = "") -> TableText:
    """Return who measured what, on which data, how: a line for each score."""
    rows = []
    for each in evaluations:
        first = [each.site, f"{each.dataset} {each.split}".strip(), each.protocol]
        for name, score in each.scores.items():
            rows.append([*first, name, score_words(score), f"{each.created_at:%Y-%m-%d}"])
    columns = ("measured by", "data", "protocol", "score", "value", "on")
    return TableText(columns, rows, empty=empty, shortened="protocol")
