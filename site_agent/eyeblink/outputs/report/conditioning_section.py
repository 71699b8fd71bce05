"""The part of the report on conditioned responses."""

from __future__ import annotations

import math

from site_agent.eyeblink.conditioning.analysis import ConditioningResult
from site_agent.eyeblink.conditioning.settings import Rejection, cr_rule_text
from site_agent.eyeblink.conditioning.trial_results import TrialResult
from site_agent.eyeblink.outputs.report.markup import (
    DASH,
    facts,
    figure,
    folded,
    number,
    section,
    table,
)
from site_agent.eyeblink.outputs.report.trial_figures import (
    TYPE_TEXTS,
    aligned_figure,
    amplitude_figure,
    learning_figure,
)
from site_agent.eyeblink.session import AnalysedSession

MOST_SHOWN_TRIALS = 150
REASON_TEXTS = {
    Rejection.BEFORE_RECORDING: "before the recording began",
    Rejection.AFTER_RECORDING: "after the recording ended",
    Rejection.NO_BASELINE: "no baseline was seen",
    Rejection.NO_CR_WINDOW: "the time before the US was not seen",
    Rejection.MISSING_SAMPLES: "too many samples are missing",
    Rejection.UNSTABLE_BASELINE: "the baseline was unsteady",
    Rejection.CLOSED_BEFORE_CS: "the eye was closed before the CS",
}


def conditioning_section(session: AnalysedSession) -> str:
    """Return the section; empty for a session without trials."""
    conditioning = session.conditioning
    if conditioning is None:
        return ""
    return section(
        "conditioning",
        "Conditioned responses",
        figure(
            aligned_figure(session, conditioning),
            "Eyelid closure around the stimuli",
            "Eyelid closure around the stimuli, less each trial's baseline. Thin: single valid "
            "trials; thick with its shaded band: mean and 95 % interval. Solid line: CS; dashed: "
            "US; dotted: when the US would have come; striped: the window in which the CR is "
            "measured.",
        ),
        figure(
            amplitude_figure(conditioning),
            "CR amplitude of every trial with a CS",
            "CR amplitude of each trial with a CS, in their order. Filled: CR; open: no CR; "
            "cross: rejected, which is not the same as no response. Dotted: the CR criterion.",
        ),
        figure(
            learning_figure(conditioning),
            "CR percentage over blocks of trials",
            "Share of CRs in blocks of trials with 95 % intervals (Wilson).",
        ),
        _summary(conditioning),
        _sensitivity(conditioning),
        _trials(conditioning),
    )


def _summary(conditioning: ConditioningResult) -> str:
    found, settings = conditioning.summary, conditioning.settings
    types = ", ".join(
        f"{found.trials_by_type.get(kind.value, 0)} {text}" for kind, text in TYPE_TEXTS.items()
    )
    reasons = "; ".join(
        f"{count}: {REASON_TEXTS[Rejection(reason)]}"
        for reason, count in found.rejected_by_reason.items()
    )
    interval = f"{number(found.cr_percent_low, 1)} to {number(found.cr_percent_high, 1)} %"
    spread = f", SD {number(found.onset_sd_ms, 0)}" if math.isfinite(found.onset_sd_ms) else ""
    rows = [
        ("trials", f"{found.n_trials}: {types}"),
        ("rejected", f"{found.n_trials - found.n_valid} ({reasons or 'none'})"),
        ("CS-US interval", number(found.cs_us_ms, 0, "ms")),
        ("CR criterion", cr_rule_text(settings.cr_rule, settings.cr_threshold)),
        (
            "CRs",
            f"{found.n_cr} of {found.n_cs_valid} valid trials with a CS: "
            f"{number(found.cr_percent, 1, '%')} (95 % interval {interval})",
        ),
        ("left out of the count of CRs", found.left_out or "none"),
        ("CR amplitude, all valid trials", number(found.amplitude_all, 3, "FEC")),
        ("CR amplitude, trials with a CR", number(found.amplitude_cr, 3, "FEC")),
        ("CR onset after the CS", number(found.onset_ms, 0, "ms") + spread),
        ("CR peak after the CS (CS alone)", number(found.peak_ms, 0, "ms")),
        ("UR amplitude", number(found.ur_amplitude, 3, "FEC")),
        ("UR peak after the US", number(found.ur_peak_ms, 0, "ms")),
        ("startles", f"{found.n_startle} valid trials: closure within 60 ms after the CS"),
    ]
    return "<h3>The session in numbers</h3>" + facts(rows)


def _sensitivity(conditioning: ConditioningResult) -> str:
    rows = [
        [row.criterion, str(row.n_cr), str(row.n_valid), number(row.cr_percent, 1, "%")]
        for row in conditioning.sensitivity
    ]
    return "<h3>The same session under other criteria</h3>" + table(
        ["criterion of a CR", "CRs", "of valid trials", "CRs"], rows
    )


def _trials(conditioning: ConditioningResult) -> str:
    header = ["trial", "stimuli", "CS (s)", "US (s)", "baseline", "CR", "amplitude (FEC)"]
    header += ["onset (ms)", "peak (ms)", "UR (FEC)", "rejected because"]
    rows = [_trial_row(result) for result in conditioning.trials]
    return folded(
        f"All {len(rows)} trials",
        table(header, rows, (0, 1, 5, 10)),
        shown=len(rows) <= MOST_SHOWN_TRIALS,
    )


def _trial_row(result: TrialResult) -> list[str]:
    measures = result.measures
    decided = DASH if result.cr is None else ("yes" if result.cr else "no")
    has_cr = bool(result.cr)
    return [
        measures.trial,
        TYPE_TEXTS[measures.trial_type],
        number(measures.cs_onset_s, 3),
        number(measures.us_onset_s, 3),
        number(measures.baseline, 2),
        decided,
        number(measures.cr_amplitude, 3),
        number(measures.cr_onset_ms, 0) if has_cr else DASH,
        number(measures.cr_peak_ms, 0) if has_cr else DASH,
        number(measures.ur_amplitude, 2),
        "; ".join(REASON_TEXTS[reason] for reason in result.rejections),
    ]
