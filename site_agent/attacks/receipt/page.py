"""A receipt as one page of HTML that loads nothing."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from pool_server.wire.evaluations import Score
from pool_server.wire.models.receipts import AttackFinding, PrivacyReceipt, score_text
from site_agent.pages import render_page

_BAR_LEFT_PX, _BAR_RIGHT_PX = 6, 134


def receipt_page(receipt: PrivacyReceipt, pictures: Mapping[str, bytes], name: str) -> str:
    """Return the page.

    Parameters
    ----------
    pictures : mapping of str to bytes
        PNG files by their captions.
    name : str
        The name by which the page calls the artifact.
    """
    facts = {
        "What left the site": receipt.what_left,
        "Assumed attacker": receipt.attacker,
        "Measured by": receipt.measured_by,
        "Persons of the site": f"{receipt.persons}, {receipt.samples} samples",
        "Held-out persons": f"{receipt.held_out_persons}, {receipt.held_out_samples} samples",
        "Seed": str(receipt.seed),
        "Compute": f"{receipt.seconds:.0f} s on {receipt.compute}",
        "SHA-256": receipt.artifact_digest,
    }
    attacks = [
        {
            "finding": finding,
            "found": score_text(finding.found),
            "chance": "" if finding.chance is None else f"{finding.chance:.3g}",
            "control": "" if finding.control is None else score_text(finding.control),
            "bar": _bar(finding),
        }
        for finding in receipt.attacks
    ]
    return render_page(
        "privacy_receipt.html",
        receipt=receipt,
        name=name,
        facts_of_receipt=facts.items(),
        attacks=attacks,
        pictures=[
            (caption, f"data:image/png;base64,{base64.b64encode(content).decode()}")
            for caption, content in pictures.items()
        ],
    )


def _bar(finding: AttackFinding) -> dict[str, str] | None:
    """Return the places in pixels of what was found, beside chance and control."""
    if finding.chance is None or finding.control is None:
        return None
    low, high = _ends(finding.found)
    values = {
        "chance": finding.chance,
        "control": finding.control.value,
        "low": low,
        "high": high,
        "found": finding.found.value,
    }
    top = max(1.0, finding.chance, high, _ends(finding.control)[1])
    wide = _BAR_RIGHT_PX - _BAR_LEFT_PX
    return {
        name: f"{_BAR_LEFT_PX + wide * min(max(value, 0.0), top) / top:.1f}"
        for name, value in values.items()
    }


def _ends(score: Score) -> tuple[float, float]:
    if score.low is None or score.high is None:
        return score.value, score.value
    return score.low, score.high
