"""Privacy receipts: what attacks by a site itself found in something that left it.

The pool keeps and shows a receipt, and does not believe it: numbers are the site's own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pool_server.wire.evaluations import Score
from pool_server.wire.names import Digest, FiniteFloat, Line

ReceiptMode = Literal["sub-model", "leaf-sums", "update", "secure-sum"]
MODES: tuple[ReceiptMode, ...] = ("sub-model", "leaf-sums", "update", "secure-sum")
MOST_ATTACKS = 32

Words = Annotated[Line, StringConstraints(min_length=1, max_length=100)]
Sentence = Annotated[Line, StringConstraints(max_length=600)]

_EXAMPLE: dict[str, Any] = {
    "format": "poolctl-privacy-receipt/1",
    "mode": "update",
    "artifact_digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "what_left": "The differences of 61,234 parameters after training.",
    "attacker": "Whoever reads the contribution.",
    "attacks": [
        {
            "name": "membership of samples by loss",
            "measure": "AUC",
            "found": {"value": 0.81, "low": 0.77, "high": 0.85},
            "chance": 0.5,
            "control": {"value": 0.99, "low": 0.98, "high": 1.0},
        }
    ],
    "persons": 3,
    "samples": 300,
    "held_out_persons": 5,
    "held_out_samples": 500,
    "seed": 0,
    "seconds": 41.5,
    "compute": "1 process of poolctl 0.1 on x86_64",
    "measured_by": "the site itself",
}


class AttackFinding(BaseModel):
    """How far one attack came.

    `chance` is what the attack finds where there is nothing to be found, `control` what it finds
    in something that was made to leak.
    """

    model_config = ConfigDict(extra="forbid")

    name: Words
    measure: Words
    found: Score
    chance: FiniteFloat | None = None
    control: Score | None = None
    note: Sentence = ""


class PrivacyReceipt(BaseModel):
    """What attacks found in one artifact."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    format: Literal["poolctl-privacy-receipt/1"] = "poolctl-privacy-receipt/1"
    mode: ReceiptMode
    artifact_digest: Digest = Field(description="SHA-256 of the file that was attacked.")
    what_left: Sentence
    attacker: Sentence = Field(description="Who is assumed to attack, and with what.")
    attacks: list[AttackFinding] = Field(min_length=1, max_length=MOST_ATTACKS)
    persons: int = Field(ge=1, le=10**9)
    samples: int = Field(ge=1, le=10**9)
    held_out_persons: int = Field(ge=1, le=10**9)
    held_out_samples: int = Field(ge=1, le=10**9)
    seed: int = Field(ge=0, lt=2**53)
    seconds: FiniteFloat = Field(ge=0)
    compute: Sentence
    measured_by: Literal["the site itself"] = "the site itself"


class ReceiptPage(BaseModel):
    """All receipts of a version, at most one of each mode."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_EXAMPLE]}]})

    items: list[PrivacyReceipt]


def receipt_lines(receipts: list[PrivacyReceipt]) -> list[tuple[str, list[list[str]]]]:
    """Return for each receipt a title and rows: attack, measure, found, chance, control."""
    return [
        (
            f"{each.mode} (sha256 {each.artifact_digest[:12]})",
            [
                [
                    finding.name,
                    finding.measure,
                    score_text(finding.found),
                    "" if finding.chance is None else f"{finding.chance:.3g}",
                    "" if finding.control is None else score_text(finding.control),
                ]
                for finding in each.attacks
            ],
        )
        for each in receipts
    ]


def score_text(score: Score) -> str:
    """Return a score with its interval."""
    if score.low is None or score.high is None:
        return f"{score.value:.3g}"
    return f"{score.value:.3g} ({score.low:.3g} to {score.high:.3g})"
