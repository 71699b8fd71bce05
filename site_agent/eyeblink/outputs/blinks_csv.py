"""blinks.csv: one row a blink."""

from __future__ import annotations

import math
from pathlib import Path

from site_agent.eyeblink.blinks.finding import Blink
from site_agent.eyeblink.outputs.tables import BLINKS, write_csv
from site_agent.eyeblink.session import AnalysedSession


class BlinksCsv:
    """Times in seconds from the start of the recording, sizes in FEC."""

    name = "blinks"
    file_name = BLINKS.file_name
    essential = True

    def wanted(self, _: AnalysedSession, /) -> bool:
        return True

    def write(self, session: AnalysedSession, path: Path) -> None:
        write_csv(path, BLINKS, [[_row(blink) for blink in session.blinks]])


def _row(blink: Blink) -> tuple[str, ...]:
    velocity = blink.peak_velocity_fec_per_s
    return (
        str(blink.number),
        blink.kind,
        f"{blink.onset_s:.6f}",
        f"{blink.peak_s:.6f}",
        f"{blink.offset_s:.6f}",
        str(blink.onset_frame),
        str(blink.peak_frame),
        str(blink.offset_frame),
        f"{blink.duration_ms:.1f}",
        f"{blink.closing_ms:.1f}",
        f"{blink.opening_ms:.1f}",
        f"{blink.amplitude_fec:.4f}",
        f"{blink.peak_fec:.4f}",
        blink.completeness,
        "" if math.isnan(velocity) else f"{velocity:.3f}",
        f"{blink.confidence:.3f}",
        blink.eyes,
        "" if math.isnan(blink.lag_ms) else f"{blink.lag_ms:.1f}",
    )
