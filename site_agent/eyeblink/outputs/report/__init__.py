"""report.html: one page for people, whole in itself: no script, no other file, no host."""

from __future__ import annotations

from pathlib import Path

from site_agent.eyeblink.outputs.report.page import report_page
from site_agent.eyeblink.session import AnalysedSession

__all__ = ["ReportHtml", "report_page"]


class ReportHtml:
    """Results first, then what they were read from, then how they were obtained."""

    name = "report"
    file_name = "report.html"
    essential = False

    def wanted(self, _: AnalysedSession, /) -> bool:
        return True

    def write(self, session: AnalysedSession, path: Path) -> None:
        path.write_text(report_page(session), encoding="utf-8")
