"""The page, section by section."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from typing import Any

import numpy as np

from site_agent.eyeblink.blinks.statistics import BlinkStatistics, blink_statistics
from site_agent.eyeblink.conditioning.analysis import ConditioningResult
from site_agent.eyeblink.outputs.plain_json import plain
from site_agent.eyeblink.outputs.provenance import NOTES, versions
from site_agent.eyeblink.outputs.report.blink_figure import BLINK_CAPTION, blink_figure
from site_agent.eyeblink.outputs.report.conditioning_section import conditioning_section
from site_agent.eyeblink.outputs.report.markup import (
    duration_text,
    facts,
    figure,
    folded,
    number,
    paragraph,
    section,
    table,
    tiles,
)
from site_agent.eyeblink.outputs.report.style import STYLE
from site_agent.eyeblink.outputs.trace_picture import trace_caption, trace_figure
from site_agent.eyeblink.records import Gap
from site_agent.eyeblink.session import AnalysedSession, BlinkSession, summarise
from site_agent.wording import count_words

MOST_TABLE_ROWS = 3000
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

MEASURE_TEXTS = {
    "duration_ms": ("duration", "ms", 0),
    "closing_ms": ("closing time", "ms", 0),
    "opening_ms": ("opening time", "ms", 0),
    "amplitude_fec": ("amplitude", "FEC", 2),
    "peak_velocity_fec_per_s": ("peak closing velocity", "FEC/s", 1),
    "interval_s": ("time between blinks", "s", 2),
}


def report_page(session: AnalysedSession) -> str:
    """Return the whole page."""
    summary = summarise(session, {})
    statistics = blink_statistics(session.trace, session.blinks, session.fec())
    sections = [
        _warnings(session),
        conditioning_section(session) if session.conditioning is not None else "",
        _trace(session),
        _blinks(session, statistics),
        _blink_table(session),
        _quality(session),
        _provenance(session),
    ]
    title = f"Eyeblinks: {_recording_name(session)}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f"<header><h1>{escape(title)}</h1>{paragraph(_subtitle(session), 'soft')}{_links(session)}"
        f"{_tiles(summary, statistics, session.conditioning)}</header><main>"
        f"{''.join(sections)}</main></body></html>\n"
    )


def _recording_name(session: AnalysedSession) -> str:
    return session.sources[0].name if session.sources else "recording"


def _subtitle(session: AnalysedSession) -> str:
    labels = session.settings.labels
    parts = [
        f"{name} {value}"
        for name, value in (
            ("subject", labels.subject),
            ("session", labels.session),
            ("task", session.names.task),
        )
        if value
    ]
    if session.start is not None:
        parts.append(f"recorded {session.start.time:%Y-%m-%d %H:%M} ({session.start.known_from})")
    now = datetime.now(UTC)
    parts.append(f"analysed {now:%Y-%m-%d %H:%M} UTC with poolctl {versions()['poolctl']}")
    return " · ".join(parts)


def _links(session: AnalysedSession) -> str:
    names = [("trace", "Recording"), ("blinks", "Blinks"), ("table", "Table of blinks")]
    names += [("quality", "Signal"), ("provenance", "How it was measured")]
    if session.conditioning is not None:
        names.insert(0, ("conditioning", "Conditioning"))
    links = "".join(f'<a href="#{name}">{text}</a>' for name, text in names)
    return f'<nav aria-label="Sections">{links}</nav>'


def _tiles(
    summary: BlinkSession, statistics: BlinkStatistics, conditioning: ConditioningResult | None
) -> str:
    amplitude = statistics.measures["amplitude_fec"]
    entries = [
        (str(summary.blinks), f"blinks ({statistics.partial} of them partial)"),
        (number(statistics.blinks_per_minute, 1), "blinks per minute"),
        (str(summary.closures), "longer closures"),
        (number(summary.perclos_pct, 1, "%"), "PERCLOS (lids at least 80 % shut)"),
        (number(statistics.measures["duration_ms"].median, 0, "ms"), "median blink duration"),
        (number(amplitude.median, 2, "FEC"), "median blink amplitude"),
        (duration_text(summary.seconds), f"recording, {summary.frames} frames"),
        (number(summary.valid_pct, 1, "%"), "of the frames show the eyes"),
    ]
    if conditioning is not None:
        found = conditioning.summary
        entries = [
            (number(found.cr_percent, 1, "%"), f"CRs: {found.n_cr} of {found.n_cs_valid} trials"),
            (number(found.amplitude_all, 2, "FEC"), "mean CR amplitude, all valid trials"),
            (number(found.onset_ms, 0, "ms"), "mean CR onset after the CS"),
            (f"{found.n_valid} of {found.n_trials}", "trials valid"),
            *entries,
        ]
    return tiles(entries)


def _warnings(session: AnalysedSession) -> str:
    if not session.warnings:
        return paragraph("No warnings: nothing about this recording stood out as doubtful.", "soft")
    items = "".join(f"<li>{escape(warning)}</li>" for warning in session.warnings)
    return f'<div class="warnings" role="note"><b>To be known first</b><ul>{items}</ul></div>'


def _trace(session: AnalysedSession) -> str:
    caption = trace_caption(session)
    return section(
        "trace", "The recording", figure(trace_figure(session), "The whole recording", caption)
    )


def _blinks(session: AnalysedSession, statistics: BlinkStatistics) -> str:
    if not statistics.blinks:
        return section("blinks", "Blinks", paragraph("No blink was found."))
    rows = [
        [name, str(found.n)]
        + [
            number(value, digits, unit)
            for value in (found.median, found.lower_quartile, found.upper_quartile)
        ]
        + [number(found.mean, digits, unit), number(found.sd, digits, unit)]
        for key, (name, unit, digits) in MEASURE_TEXTS.items()
        for found in [statistics.measures[key]]
    ]
    header = ["measure", "n", "median", "lower quartile", "upper quartile", "mean", "SD"]
    return section(
        "blinks",
        "Blinks",
        table(header, rows),
        figure(blink_figure(session, statistics), "Statistics of the blinks", BLINK_CAPTION),
    )


def _blink_table(session: AnalysedSession) -> str:
    blinks = session.blinks[:MOST_TABLE_ROWS]
    rows = [
        [
            str(blink.number),
            f"{blink.kind} (cut)" if blink.cut else blink.kind,
            blink.completeness,
            number(blink.onset_s, 3),
            number(blink.shut_from_s, 3),
            number(blink.offset_s, 3),
            number(blink.duration_ms, 0),
            number(blink.closing_ms, 0),
            number(blink.opening_ms, 0),
            number(blink.amplitude_fec, 2),
            number(blink.peak_velocity_fec_per_s, 1),
            number(blink.confidence, 2),
        ]
        for blink in blinks
    ]
    header = ["no.", "kind", "lids", "onset (s)", "shut (s)", "offset (s)", "duration (ms)"]
    header += ["closing (ms)", "opening (ms)", "amplitude (FEC)", "velocity (FEC/s)", "confidence"]
    left_out = len(session.blinks) - len(blinks)
    note = f"The first {len(blinks)}; {left_out} more are in the CSV file." if left_out else ""
    content = table(header, rows, (1, 2)) if rows else paragraph("There is none.")
    shown = len(rows) <= 400
    doubtful = [
        [each.kind, number(each.onset_s, 3), number(each.offset_s, 3), number(each.confidence, 2)]
        for each in session.left_out[:MOST_TABLE_ROWS]
    ]
    unlisted = table(["kind", "onset (s)", "offset (s)", "confidence"], doubtful, (0,))
    return section(
        "table",
        "Table of blinks",
        folded(f"{len(session.left_out)} left out as too improbable", unlisted, shown=False)
        if doubtful
        else "",
        folded(
            count_words(len(session.blinks), "blink or closure", "blinks and closures"),
            content + paragraph(note),
            shown=shown,
        ),
    )


def _quality(session: AnalysedSession) -> str:
    trace, calibration = session.trace, session.calibration
    counts = {Gap(int(code)): int(np.sum(trace.gaps == code)) for code in np.unique(trace.gaps)}
    reasons = [f"{gap.text.replace('-', ' ')}: {count}" for gap, count in counts.items() if gap]
    recording = dict(session.recording)
    rows = [
        ("frames a second", number(trace.frame_rate_hz, 2)),
        ("frames without the eyes", "; ".join(reasons) or "none"),
        ("EAR of the open eye", number(calibration.open_ear, 3)),
        ("EAR of the closed eye", number(calibration.closed_ear, 3)),
        (
            "calibration",
            "reliable" if calibration.reliable else "not reliable: open and closed hardly differ",
        ),
        *((key.replace("_", " "), _value(value)) for key, value in recording.items()),
    ]
    return section("quality", "Signal", facts(rows))


def _provenance(session: AnalysedSession) -> str:
    sources = [
        [source.role, source.name, source.sha256 or "built in", source.address or ""]
        for source in session.sources
    ]
    settings = _flat(asdict(session.settings))
    notes = "".join(f"<li>{escape(note)}</li>" for note in NOTES)
    return section(
        "provenance",
        "How it was measured",
        f"<ul>{notes}</ul>",
        "<h3>Inputs</h3>",
        facts(
            (f"{role}: {name}", f"{address} sha256 {digest}".strip())
            for role, name, digest, address in sources
        ),
        "<h3>Versions</h3>",
        paragraph(", ".join(f"{name} {version}" for name, version in versions().items())),
        folded("Every setting", facts(settings), shown=False),
    )


def _flat(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, dict):
            rows += _flat(value, f"{prefix}{key}.")
        else:
            rows.append((f"{prefix}{key}", _value(value)))
    return rows


def _value(value: Any) -> str:
    value = plain(value)
    if value is None or value == "":
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
