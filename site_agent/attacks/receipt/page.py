"""A receipt as one page of HTML that loads nothing."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape

from pool_server.wire.evaluations import Score
from pool_server.wire.models.receipts import AttackFinding, PrivacyReceipt, score_text

_STYLE = """
:root { color-scheme: light dark; --edge: color-mix(in srgb, CanvasText 18%, Canvas); }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 68rem; margin: 0 auto; padding: 2rem 1rem; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.quiet { opacity: .72; font-size: .9rem; } code { font: .9em ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; }
th, td { text-align: left; vertical-align: top; padding: .4rem .8rem .4rem 0;
  border-bottom: 1px solid var(--edge); }
td.number { white-space: nowrap; } td:first-child { min-width: 15rem; }
svg { display: block; } figure { margin: 1rem 0; }
dl { display: grid; grid-template-columns: 11rem 1fr; gap: .3rem 1rem; } dt { font-weight: 600; }
dd { margin: 0; overflow-wrap: anywhere; } img { max-width: 20rem; border: 1px solid var(--edge); }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_WIDTH, _HEIGHT = 140, 30


def receipt_page(receipt: PrivacyReceipt, pictures: Mapping[str, bytes], name: str) -> str:
    """Return the page.

    Parameters
    ----------
    pictures : mapping of str to bytes
        PNG files by their captions.
    name : str
        How the page calls the artifact.
    """
    rows = "".join(_row(each) for each in receipt.attacks)
    figures = "".join(
        f'<figure><img alt="" src="data:image/png;base64,{base64.b64encode(content).decode()}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
        for caption, content in pictures.items()
    )
    shown = f"<h2>Pictures made from the artifact alone</h2>{figures}" if pictures else ""
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
    listed = "".join(f"<dt>{key}</dt><dd>{escape(text)}</dd>" for key, text in facts.items())
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>Privacy receipt of {escape(name)}</title><style>{_STYLE}</style></head><body>"
        f'<h1>Privacy receipt</h1><p class="quiet">{escape(name)}, mode {receipt.mode}</p>'
        f"<dl>{listed}</dl><h2>Attacks</h2>"
        "<table><thead><tr><th>Attack</th><th>Measure</th><th>Found (95 % interval)</th>"
        "<th>Chance</th><th>Positive control</th><th></th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
        '<p class="quiet">In the pictures, the dot and the line are what was found and its '
        "interval, the vertical stroke is chance, and the ring is the positive control: the same "
        "attack on something that was made to leak. An attack that finds nothing in the control "
        "says nothing. Other attacks may find more.</p>"
        f"{shown}</body></html>\n"
    )


def _row(finding: AttackFinding) -> str:
    chance = "" if finding.chance is None else f"{finding.chance:.3g}"
    control = "" if finding.control is None else score_text(finding.control)
    note = f'<br><span class="quiet">{escape(finding.note)}</span>' if finding.note else ""
    return (
        f"<tr><td>{escape(finding.name)}{note}</td><td>{escape(finding.measure)}</td>"
        f'<td class="number">{score_text(finding.found)}</td><td class="number">{chance}</td>'
        f'<td class="number">{control}</td><td>{_drawing(finding)}</td></tr>'
    )


def _drawing(finding: AttackFinding) -> str:
    """Return a small picture of what was found beside chance and control."""
    if finding.chance is None or finding.control is None:
        return ""
    ends = [end for score in (finding.found, finding.control) for end in _ends(score)]
    top = max(1.0, finding.chance, *ends)

    def at(value: float) -> float:
        return 6 + (_WIDTH - 12) * min(max(value, 0.0), top) / top

    low, high = _ends(finding.found)
    middle = _HEIGHT / 2
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="found, chance, control">'
        f'<line x1="6" x2="{_WIDTH - 6}" y1="{middle}" y2="{middle}" stroke="currentColor" '
        'opacity=".2"/>'
        f'<line x1="{at(finding.chance):.1f}" x2="{at(finding.chance):.1f}" y1="5" '
        f'y2="{_HEIGHT - 5}" stroke="currentColor" stroke-width="1.5"/>'
        f'<circle cx="{at(finding.control.value):.1f}" cy="{middle}" r="5" fill="none" '
        'stroke="currentColor" stroke-width="1.5"/>'
        f'<line x1="{at(low):.1f}" x2="{at(high):.1f}" y1="{middle}" y2="{middle}" '
        'stroke="#0b5cad" stroke-width="3"/>'
        f'<circle cx="{at(finding.found.value):.1f}" cy="{middle}" r="4" fill="#0b5cad"/></svg>'
    )


def _ends(score: Score) -> tuple[float, float]:
    if score.low is None or score.high is None:
        return score.value, score.value
    return score.low, score.high
