"""How findings in a data set are told: a table, a report, an error."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cli.frame.errors import VerificationError
from cli.frame.output import TableText
from cli.frame.quantities import count_words

if TYPE_CHECKING:
    from site_agent.datasets import Finding

_LINES_SHOWN = 5


def findings_table(findings: list[Finding], report_file: Path | None, *, strict: bool) -> TableText:
    """Write the report, refuse errors, and return a table of the warnings.

    Raises
    ------
    VerificationError
        There are errors, or with `strict` any findings.
    """
    if report_file is not None:
        _write_report(report_file, findings)
    bad = [finding for finding in findings if strict or finding.severity == "error"]
    kinds = _by_kind(findings)
    if bad:
        told = [f"{group[0]}{_more_of_kind(group)}" for group in sorted(kinds, key=_errors_first)]
        all_of_them = "\n--report FILE writes all" if len(findings) > len(kinds) else ""
        raise VerificationError(
            f"{len(bad)} of {count_words(len(findings), 'finding')} must be mended:\n"
            + "\n".join(told)
            + all_of_them
        )
    rows = [
        [first.severity, first.file.name, str(first.line or ""), first.text + _more_of_kind(group)]
        for group in kinds
        for first in group[:1]
    ]
    return TableText(["severity", "file", "line", "finding"], rows, empty="no problems")


def _write_report(path: Path, findings: list[Finding]) -> None:
    plain = [{**asdict(finding), "file": str(finding.file)} for finding in findings]
    text = json.dumps({"findings": plain}, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _by_kind(findings: list[Finding]) -> list[list[Finding]]:
    """Return the findings with those together that say the same of one file."""
    kinds: dict[tuple[str, str, Path], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.severity, finding.code, finding.file), []).append(finding)
    return list(kinds.values())


def _more_of_kind(group: list[Finding]) -> str:
    lines = [str(finding.line) for finding in group[1:] if finding.line]
    if len(group) == 1:
        return ""
    named = ", ".join(lines[:_LINES_SHOWN]) + (" ..." if len(lines) > _LINES_SHOWN else "")
    where = f", in lines {named}" if lines else ""
    return f" (and {len(group) - 1} more of this kind{where})"


def _errors_first(group: list[Finding]) -> bool:
    return group[0].severity != "error"
