"""What makes the results of a session doubtful, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from site_agent.eyeblink.blinks.finding import LeftOut
from site_agent.eyeblink.records import EyeTrace, Gap
from site_agent.wording import count_words

LOWEST_RATE_HZ = 12.0
LONG_GAP_S = 1.0


def doubts_of(
    trace: EyeTrace, calibration_reliable: bool, left_out: Sequence[LeftOut] = ()
) -> list[str]:
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
    return doubts + _unseen(trace) + _narrowed(left_out)


def _unseen(trace: EyeTrace) -> list[str]:
    """Say where the eyes were lost for so long that a blink or a closure may have been missed."""
    if not trace.valid.any():
        return []
    seen_s = trace.timestamps_s[trace.valid]
    edges_s = np.concatenate([trace.timestamps_s[:1], seen_s, trace.timestamps_s[-1:]])
    lengths_s = np.diff(edges_s)
    long = np.flatnonzero(lengths_s > LONG_GAP_S)
    if not len(long):
        return []
    longest = int(lengths_s.argmax())
    stretches = count_words(len(long), "stretch", "stretches")
    return [
        f"not judged: {lengths_s[long].sum():.0f} s in {stretches} without the eyes, the longest "
        f"{lengths_s[longest]:.1f} s from {edges_s[longest]:.1f} s on; blinks and closures there "
        "are not counted"
    ]


def _narrowed(left_out: Sequence[LeftOut]) -> list[str]:
    closures = [each for each in left_out if each.kind == "closure"]
    if not closures:
        return []
    longest = max(closures, key=lambda each: each.offset_s - each.onset_s)
    return [
        f"not counted: {len(closures)} times the eyes narrowed for longer than a blink and did not "
        f"clearly shut (the longest for {longest.offset_s - longest.onset_s:.1f} s at "
        f"{longest.onset_s:.1f} s); session.json lists them under left_out"
    ]
