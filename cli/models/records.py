"""What people see of a version's records: terms, states, cards, evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cli.frame.output import TableText

if TYPE_CHECKING:
    from pool_server.wire.cards import PrivacyReceipt
    from pool_server.wire.evaluations import EvaluationResponse, Score
    from pool_server.wire.models import ModelVersionResponse

KindOption = Annotated[
    Literal["hog-svm", "ert", "network"] | None,
    typer.Option(help="Face detectors, landmark models or networks."),
]


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
