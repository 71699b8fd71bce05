"""report.html: one page in one file, without scripts."""

from __future__ import annotations

from pathlib import Path

from site_agent.eyeblink.outputs.report.page import report_page
from site_agent.eyeblink.session import AnalysedSession

__all__ = ["report_page", "write_report"]


def write_report(session: AnalysedSession, path: Path) -> None:
    """Write results first, then the signals, then how they were obtained."""
    path.write_text(report_page(session), encoding="utf-8")
