"""report.html: one page in one file, without scripts: results, then signals, then methods.

This module gathers the contents of ``templates/blink_report.html``; `report_figures` draws.
"""

import base64
import io
import math
import re
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from PIL import Image

from site_agent.errors import ImageFileError, VideoFileError
from site_agent.eyeblink.blinks.finding import Blink
from site_agent.eyeblink.blinks.statistics import BlinkStatistics, blink_statistics
from site_agent.eyeblink.conditioning import Rejection, cr_rule_text
from site_agent.eyeblink.conditioning.analysis import ConditioningResult
from site_agent.eyeblink.conditioning.summary import TrialResult, trial_rows
from site_agent.eyeblink.outputs import report_figures, tables
from site_agent.eyeblink.outputs.json_files import NOTES, versions
from site_agent.eyeblink.outputs.trace_picture import trace_caption, trace_figure
from site_agent.eyeblink.records import Float64, Gap, Int64, UInt8
from site_agent.eyeblink.session import AnalysedSession, BlinkSession, summarise
from site_agent.pages import duration_text, number_text, render_page
from site_agent.pictures.plot_style import svg_text
from site_agent.plain_json import plain
from site_agent.tables import Column, Table
from site_agent.wording import count_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


MOST_TABLE_ROWS = 3000
MEASURE_TEXTS = {
    "duration_ms": ("duration", "ms", 0),
    "closing_ms": ("closing time", "ms", 0),
    "opening_ms": ("opening time", "ms", 0),
    "amplitude_fec": ("amplitude", "FEC", 2),
    "peak_velocity_fec_per_s": ("peak closing velocity", "FEC/s", 1),
    "interval_s": ("time between blinks", "s", 2),
}
REASON_TEXTS = {
    Rejection.BEFORE_RECORDING: "before the recording began",
    Rejection.AFTER_RECORDING: "after the recording ended",
    Rejection.NO_BASELINE: "no baseline was seen",
    Rejection.NO_CR_WINDOW: "the time before the US was not seen",
    Rejection.MISSING_SAMPLES: "too many samples are missing",
    Rejection.UNSTABLE_BASELINE: "the baseline was unsteady",
    Rejection.CLOSED_BEFORE_CS: "the eye was closed before the CS",
}


def _number(label: str, digits: int | None = None) -> Column:
    return Column(label, "number", format="" if digits is None else f".{digits}f")


MEASURES = Table(
    "measures",
    (
        Column("measure"),
        _number("n"),
        *map(_number, ("median", "lower quartile", "upper quartile", "mean", "SD")),
    ),
)
# Coarser than in the files.
_DIGITS = {"s": ".3f", "ms": ".0f", "FEC": ".2f", "FEC/s": ".1f"}
_UNIT_IN_NAME = re.compile("_(s|ms|fec|fec_per_s)$")


def _shown(table: Table, names: str) -> Table:
    """Return columns of a table of the session's files, with their units in the headings."""
    by_name = {column.name: column for column in table.columns}
    shown = []
    for column in map(by_name.__getitem__, names.split()):
        heading = _UNIT_IN_NAME.sub("", column.name).replace("_", " ")
        label = f"{heading} ({column.unit})" if column.unit else heading
        shown.append(replace(column, label=label, format=_DIGITS.get(column.unit, ".2f")))
    return Table(table.name, tuple(shown))


BLINKS = _shown(
    tables.BLINKS,
    "blink_id kind completeness onset_s shut_from_s offset_s duration_ms closing_ms opening_ms "
    "amplitude_fec peak_velocity_fec_per_s confidence",
)
PICTURED_BLINKS = Table(
    BLINKS.name, (BLINKS.columns[0], Column("eyes at onset, peak, offset"), *BLINKS.columns[1:])
)
DOUBTFUL = _shown(tables.BLINKS, "kind onset_s offset_s confidence")
TRIALS = _shown(
    tables.TRIALS,
    "trial trial_type cs_onset_s us_onset_s baseline cr cr_amplitude cr_onset_ms cr_peak_ms "
    "ur_amplitude rejections",
)
CRITERIA = Table(
    "criteria",
    (Column("criterion of a CR"), *map(_number, ("CRs", "of valid trials", "share of CRs"))),
)


@dataclass(frozen=True)
class Drawing:
    """A figure of the page: SVG that the program drew, and its caption."""

    title: str
    svg: "Markup"
    caption: str


def write_report(session: AnalysedSession, path: Path) -> None:
    """Write the page of a session."""
    path.write_text(report_page(session), encoding="utf-8")


def report_page(session: AnalysedSession) -> str:
    """Return the page of a session."""
    summary = summarise(session, {})
    statistics = blink_statistics(session.trace, session.blinks, session.fec())
    blinks, pictures = session.blinks[:MOST_TABLE_ROWS], eye_pictures(session)
    name = session.sources[0].name if session.sources else "recording"
    conditioning = session.conditioning
    return render_page(
        "blink_report.html",
        title=f"Eyeblinks: {name}",
        subtitle=_subtitle(session),
        tiles=_tiles(summary, statistics, conditioning),
        warnings=session.warnings,
        conditioning=_conditioning(session, conditioning) if conditioning is not None else None,
        trace=_drawing(trace_figure(session), "The whole recording", trace_caption(session)),
        blink_drawing=_drawing(
            report_figures.rate_figure(statistics), "Rate of blinks", report_figures.RATE_CAPTION
        )
        if statistics.blinks
        else None,
        measure_table=MEASURES,
        measures=_measures(statistics),
        doubtful_table=DOUBTFUL,
        doubtful=[
            [getattr(event, name) for name in DOUBTFUL.header]
            for event in session.left_out[:MOST_TABLE_ROWS]
        ],
        doubtful_count=len(session.left_out),
        pictured=bool(pictures),
        blink_table=PICTURED_BLINKS if pictures else BLINKS,
        blinks=[
            [
                blink.number,
                *([picture] if pictures else []),
                f"{blink.kind} (cut)" if blink.cut else blink.kind,
                *(getattr(blink, name) for name in BLINKS.header[2:]),
            ]
            for blink, picture in zip(blinks, chain(pictures, repeat("")), strict=False)
        ],
        blink_count=count_words(len(session.blinks), "blink or closure", "blinks and closures"),
        unlisted_blinks=len(session.blinks) - len(blinks),
        signal=_signal(session),
        notes=NOTES,
        inputs=[
            (
                f"{source.role}: {source.name}",
                f"{source.address or ''} sha256 {source.sha256 or 'built in'}".strip(),
            )
            for source in session.sources
        ],
        versions=", ".join(f"{name} {version}" for name, version in versions().items()),
        settings=_flatten(asdict(session.settings)),
    )


def _drawing(figure: "Figure | None", title: str, caption: str) -> Drawing | None:
    return None if figure is None else Drawing(title, Markup(svg_text(figure, title)), caption)


def _subtitle(session: AnalysedSession) -> str:
    labels = session.settings.labels
    parts = [
        f"{name} {value}"
        for name, value in (("subject", labels.subject), ("session", labels.session))
        if value
    ]
    if session.start is not None:
        parts.append(f"recorded {session.start.time:%Y-%m-%d %H:%M} ({session.start.known_from})")
    now = datetime.now(UTC)
    parts.append(f"analysed {now:%Y-%m-%d %H:%M} UTC with poolctl {versions()['poolctl']}")
    return " · ".join(parts)


def _tiles(
    summary: BlinkSession, statistics: BlinkStatistics, conditioning: ConditioningResult | None
) -> list[tuple[str, str]]:
    amplitude = statistics.measures["amplitude_fec"]
    among = ", with those of the trials" if conditioning is not None else ""
    entries = [
        (str(summary.blinks), f"blinks ({statistics.partial} of them partial)"),
        (number_text(statistics.blinks_per_minute, 1), f"blinks per minute{among}"),
        (str(summary.closures), "longer closures"),
        (number_text(summary.perclos_pct, 1, "%"), "PERCLOS (lids at least 80 % shut)"),
        (number_text(statistics.measures["duration_ms"].median, 0, "ms"), "median blink duration"),
        (number_text(amplitude.median, 2, "FEC"), "median blink amplitude"),
        (duration_text(summary.seconds), f"recording, {summary.frames} frames"),
        (number_text(summary.valid_pct, 1, "%"), "of the frames show the eyes"),
    ]
    if conditioning is not None:
        conditioned = conditioning.summary
        entries = [
            (
                number_text(conditioned.cr_percent, 1, "%"),
                f"CRs: {conditioned.n_cr} of {conditioned.n_cs_valid} trials",
            ),
            (
                number_text(conditioned.amplitude_all, 2, "FEC"),
                "mean CR amplitude, all valid trials",
            ),
            (number_text(conditioned.onset_ms, 0, "ms"), "mean CR onset after the CS"),
            (f"{conditioned.n_valid} of {conditioned.n_trials}", "trials valid"),
            *entries,
        ]
    return entries


def _measures(statistics: BlinkStatistics) -> list[list[object]]:
    rows: list[list[object]] = []
    for key, (label, unit, digits) in MEASURE_TEXTS.items():
        measure = statistics.measures[key]
        names = ("median", "lower_quartile", "upper_quartile", "mean", "sd")
        values = (number_text(getattr(measure, name), digits, unit) for name in names)
        rows.append([label, measure.n, *values])
    return rows


def _conditioning(session: AnalysedSession, conditioning: ConditioningResult) -> dict[str, Any]:
    """Return the contents of the section on conditioned responses."""
    drawings = [
        _drawing(
            report_figures.aligned_figure(session, conditioning),
            "Eyelid closure around the stimuli",
            "Eyelid closure around the stimuli, less each trial's baseline. Thin: single valid "
            "trials; thick with its shaded band: mean and 95 % interval. Solid line: CS; dashed: "
            "US; dotted: when the US would have come; striped: the window in which the CR is "
            "measured.",
        ),
        _drawing(
            report_figures.trials_figure(session, conditioning),
            "Trials one by one, and the unconditioned response",
            report_figures.TRIALS_CAPTION,
        ),
        _drawing(
            report_figures.learning_figure(conditioning),
            "CR percentage over blocks of trials",
            "Share of CRs in blocks of trials with 95 % intervals (Wilson).",
        ),
    ]
    return {
        "drawings": drawings,
        "summary": _conditioning_summary(conditioning),
        "criteria_table": CRITERIA,
        "criteria": [
            [row.criterion, row.n_cr, row.n_valid, number_text(row.cr_percent, 1, "%")]
            for row in conditioning.sensitivity
        ],
        "trial_table": TRIALS,
        "trials": [_trial_row(result) for result in conditioning.trials],
    }


def _conditioning_summary(conditioning: ConditioningResult) -> list[tuple[str, str]]:
    summary, settings = conditioning.summary, conditioning.settings
    types = ", ".join(
        f"{summary.trials_by_type.get(kind.value, 0)} {text}"
        for kind, text in report_figures.TYPE_TEXTS.items()
    )
    reasons = "; ".join(
        f"{count}: {REASON_TEXTS[Rejection(reason)]}"
        for reason, count in summary.rejected_by_reason.items()
    )
    interval = (
        f"{number_text(summary.cr_percent_low, 1)} to {number_text(summary.cr_percent_high, 1)} %"
    )
    spread = (
        f", SD {number_text(summary.onset_sd_ms, 0)}" if math.isfinite(summary.onset_sd_ms) else ""
    )
    return [
        ("trials", f"{summary.n_trials}: {types}"),
        ("rejected", f"{summary.n_trials - summary.n_valid} ({reasons or 'none'})"),
        ("CS-US interval", number_text(summary.cs_us_ms, 0, "ms")),
        ("CR criterion", cr_rule_text(settings.cr_rule, settings.cr_threshold)),
        (
            "CRs",
            f"{summary.n_cr} of {summary.n_cs_valid} valid trials with a CS: "
            f"{number_text(summary.cr_percent, 1, '%')} (95 % interval {interval})",
        ),
        (
            "CRs beyond chance",
            f"{number_text(summary.cr_percent_corrected, 1, '%')}; the times before the CS hold "
            f"{number_text(summary.spontaneous_percent, 1, '%')} by the same criterion",
        ),
        (
            "CRs with the CS alone",
            f"{summary.n_cr_cs_only} of {summary.n_cs_only_valid} valid trials: "
            f"{number_text(summary.cr_percent_cs_only, 1, '%')}",
        ),
        ("left out of the count of CRs", summary.left_out or "none"),
        ("CR amplitude, all valid trials", number_text(summary.amplitude_all, 3, "FEC")),
        ("CR amplitude, trials with a CR", number_text(summary.amplitude_cr, 3, "FEC")),
        (
            "CR onset after the CS",
            f"{number_text(summary.onset_ms, 0, 'ms')}{spread}; not in it are "
            f"{summary.n_onset_early} CRs that begin earlier than is sought and "
            f"{summary.n_onset_not_found} without an onset",
        ),
        ("CR latency (10 % of its height)", number_text(summary.latency_ms, 0, "ms")),
        ("CR peak after the CS (CS alone)", number_text(summary.peak_ms, 0, "ms")),
        ("UR amplitude", number_text(summary.ur_amplitude, 3, "FEC")),
        ("UR peak after the US", number_text(summary.ur_peak_ms, 0, "ms")),
        (
            "startles",
            f"alpha (closure within 60 ms after the CS) in {summary.n_startle} valid trials, beta "
            f"(120 to 240 ms, over before the US) in {summary.n_beta_startle}",
        ),
    ]


def _trial_row(result: TrialResult) -> list[object]:
    row: dict[str, object] = {**trial_rows([result])[0]}
    row["trial_type"] = report_figures.TYPE_TEXTS[result.measures.trial_type]
    row["cr"] = None if result.cr is None else ("yes" if result.cr else "no")
    row["rejections"] = "; ".join(REASON_TEXTS[reason] for reason in result.rejections)
    return [row[name] for name in TRIALS.header]


def _signal(session: AnalysedSession) -> list[tuple[str, str]]:
    trace, calibration = session.trace, session.calibration
    counts = {Gap(int(code)): int(np.sum(trace.gaps == code)) for code in np.unique(trace.gaps)}
    reasons = [f"{gap.text.replace('-', ' ')}: {count}" for gap, count in counts.items() if gap]
    return [
        ("frames a second", number_text(trace.frame_rate_hz, 2)),
        ("frames without the eyes", "; ".join(reasons) or "none"),
        ("EAR of the open eye", number_text(calibration.open_ear, 3)),
        ("EAR of the closed eye", number_text(calibration.closed_ear, 3)),
        (
            "calibration",
            "reliable" if calibration.reliable else "not reliable: open and closed hardly differ",
        ),
        *((key.replace("_", " "), _value(value)) for key, value in session.recording.items()),
    ]


def _flatten(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, dict):
            rows += _flatten(value, f"{prefix}{key}.")
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


MOST_BLINKS = 120
"""Seeking takes a tenth of a second for each; the review shows all others."""
EYES_PX = (108, 54)
BESIDE, ABOVE = 1.0, 0.5
"""Shown around the middle of the eyes, in distances of the eyes."""


def eye_pictures(session: AnalysedSession) -> list[str]:
    """Return an image element for each of the first blinks; none where there is no picture."""
    face, opened = session.trace.face, session.pictures
    if not session.settings.files.eye_pictures or opened is None:
        return []
    if face is None or face.eyes_places is None:
        return []
    strips = []
    try:
        with closing(opened()) as recording:
            for blink in session.blinks[:MOST_BLINKS]:
                moments = (blink.onset_frame, blink.peak_frame, blink.offset_frame)
                rows = np.searchsorted(session.trace.frames, moments)
                places = _known_places(face.eyes_places, rows)
                eyes = [
                    _eyes(recording.picture(frame), place)
                    for frame, place in zip(moments, places, strict=True)
                ]
                strips.append(_element(blink, np.concatenate(eyes, axis=1)))
    except (ImageFileError, OSError, VideoFileError):
        # A report without pictures is better than none.
        return []
    return strips


def _known_places(places: Float64, rows: Int64) -> Float64:
    """Return the middles and distances of the eyes; of the nearest row where they are not known."""
    known = np.flatnonzero(np.isfinite(places).all(axis=1))
    nearest = known[np.abs(known[None, :] - rows[:, None]).argmin(axis=1)]
    return np.asarray(places[nearest], dtype=np.float64)


def _eyes(picture: UInt8, place: Float64) -> UInt8:
    x, y, distance = place
    across, up = BESIDE * distance, ABOVE * distance
    corners = (x - across, y - up, x + across, y + up)
    image = Image.fromarray(picture).convert("L")
    cut = image.transform(EYES_PX, Image.Transform.EXTENT, corners, Image.Resampling.BILINEAR)
    return np.asarray(cut, dtype=np.uint8)


def _element(blink: Blink, strip: UInt8) -> str:
    data = io.BytesIO()
    Image.fromarray(strip).save(data, "JPEG", quality=80)
    text = base64.b64encode(data.getvalue()).decode("ascii")
    caption = f"Eyes at onset, peak and offset of blink {blink.number}"
    return Markup('<img class="eyes" src="data:image/jpeg;base64,{}" alt="{}">').format(
        text, caption
    )
