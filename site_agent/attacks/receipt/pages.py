"""The pages of a receipt: all attacks, and one page to print."""

import base64
import hashlib
import math
from collections.abc import Mapping
from pathlib import Path

from aggregators.whole_file import write_whole
from pool_server.wire.cards import EpsilonBounds, PrivacyReceipt, score_text
from site_agent.pages import render_page

_STATED_ATTACKS = 10
"""The worst; more do not fit the page."""


def receipt_files(folder: Path) -> list[Path]:
    """Return the files of a receipt: data, page, and the statement to print."""
    return [folder / name for name in ("receipt.json", "receipt.html", "statement.html")]


def write_receipt(
    receipt: PrivacyReceipt, pictures: Mapping[str, bytes], folder: Path, name: str
) -> list[Path]:
    """Write a receipt with its pages, and return the files; see `receipt_page`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = receipt_files(folder)
    content = receipt.model_dump_json(indent=2) + "\n"
    pages = receipt_page(receipt, pictures, name), statement_page(receipt, content, name)
    for path, text in zip(files, (content, *pages), strict=True):
        write_whole(path, text)
    return files


def statement_page(receipt: PrivacyReceipt, content: str, name: str) -> str:
    """Return one page to print and sign, for a data protection officer.

    `content`: That of the receipt's file; its digest ties the signed page to it.
    """
    judged = [finding for finding in receipt.attacks if finding.is_judged]
    tried = sum(finding.is_attack for finding in receipt.attacks)
    facts = {
        "Sent": f"{name}: {receipt.what_left}",
        "SHA-256 of the file": receipt.artifact_digest,
        "Protection": receipt.protection,
        "Epsilon": _epsilon_words(receipt.bounds),
        "Assumed attacker": receipt.attacker,
        "Persons and samples": f"{receipt.persons} persons of the site, {receipt.samples} samples; "
        f"compared with {receipt.held_out_persons} others, {receipt.held_out_samples} samples",
        "Attacks": f"{len(judged)} judged of {tried} tried, with seed {receipt.seed} on "
        f"{receipt.compute}",
        "SHA-256 of receipt.json": hashlib.sha256(content.encode()).hexdigest(),
        "Date": "" if receipt.measured_on is None else f"{receipt.measured_on:%Y-%m-%d}",
    }
    rows = [
        (finding.name, finding.measure, score_text(finding.found), f"{finding.chance:.2f}")
        for finding in judged[:_STATED_ATTACKS]
    ]
    return render_page(
        "privacy_statement.html",
        receipt=receipt,
        name=name,
        facts_of_receipt=facts.items(),
        attacks=rows,
        left_out=len(judged) - len(rows),
    )


def _epsilon_words(bounds: EpsilonBounds | None) -> str:
    """Return the bounds, and the meaning of the upper one for an attack with 1 % false alarms."""
    if bounds is None or bounds.at_most is None:
        return bounds.sentence if bounds else "not bounded"
    share = min(1.0, 0.01 * math.exp(bounds.at_most) + bounds.delta)
    return (
        f"{bounds.sentence} Whatever others know, an attack that wrongly accuses 1 in 100 finds "
        f"at most {share:.0%} of the {bounds.unit}s that trained."
    )


def receipt_page(receipt: PrivacyReceipt, pictures: Mapping[str, bytes], name: str) -> str:
    """Return the page.

    `pictures`: PNG files by their captions. `name`: The name by which the page calls the artifact.
    """
    facts = {
        "What left the site": receipt.what_left,
        "Assumed attacker": receipt.attacker,
        "Measured by": receipt.measured_by,
        "Epsilon": receipt.bounds.sentence if receipt.bounds else "not bounded",
        "Persons of the site": f"{receipt.persons}, {receipt.samples} samples",
        "Held-out persons": f"{receipt.held_out_persons}, {receipt.held_out_samples} samples",
        "Seed": str(receipt.seed),
        "Compute": f"{receipt.seconds:.0f} s on {receipt.compute}",
        "SHA-256": receipt.artifact_digest,
    }
    return render_page(
        "privacy_receipt.html",
        receipt=receipt,
        name=name,
        facts_of_receipt=facts.items(),
        score_text=score_text,
        pictures=[
            (caption, f"data:{kind};base64,{base64.b64encode(content).decode()}")
            for caption, content in pictures.items()
            for kind in ["image/svg+xml" if content.startswith(b"<svg") else "image/png"]
        ],
    )
