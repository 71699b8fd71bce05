"""What makes the results of a session doubtful, in words."""

from __future__ import annotations

import numpy as np

from site_agent.eyeblink.records import EyeTrace, Gap

LOWEST_RATE_HZ = 12.0


def doubts_of(trace: EyeTrace, calibration_reliable: bool) -> list[str]:
    """Return warnings about the results of a session."""
    doubts = []
    valid_pct = 100.0 * float(np.mean(trace.valid)) if len(trace.frames) else 0.0
    if valid_pct == 0.0:
        doubts.append("no frame has an eye aspect ratio: there is nothing to find blinks in")
    elif valid_pct < 75.0:
        reasons = {Gap(code).text: int(np.sum(trace.gaps == code)) for code in set(trace.gaps)}
        reasons.pop("", None)
        listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        doubts.append(f"only {valid_pct:.0f} % of the frames have an eye aspect ratio ({listed})")
    if valid_pct > 0.0 and not calibration_reliable:
        doubts.append(
            "the eye aspect ratio hardly changes: FEC is not calibrated (no full blink was seen, "
            "or the landmark model does not follow the lids)"
        )
    if trace.frame_rate_hz < LOWEST_RATE_HZ:
        doubts.append(
            f"{trace.frame_rate_hz:.1f} frames/s: blinks fall between frames below "
            f"{LOWEST_RATE_HZ:.0f} frames/s"
        )
    return doubts
