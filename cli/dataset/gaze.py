"""``poolctl dataset check`` of gaze data and clips."""

from itertools import chain
from pathlib import Path
from typing import Any

from cli.frame.errors import VerificationError
from cli.frame.output import Invocation, Reply, TableText
from site_agent.datasets.check import Finding, count_more, kinds_of
from site_agent.datasets.egocentric import check_clips, is_egocentric, open_egocentric
from site_agent.datasets.gaze.check import check_gaze, open_gaze
from site_agent.datasets.gaze.records import gaze_digest
from site_agent.errors import writing_to
from site_agent.networks.views import EYE, Target
from site_agent.plain_json import json_bytes
from site_agent.wording import count_words


def findings_table(findings: list[Finding], report_file: Path | None, *, strict: bool) -> TableText:
    """Write the report, refuse errors, and return a table of the warnings."""
    if report_file is not None:
        with writing_to(report_file):
            report_file.write_bytes(json_bytes({"findings": findings}))
    bad = [finding for finding in findings if strict or finding.severity == "error"]
    kinds = kinds_of(findings)
    if bad:
        ordered = sorted(kinds, key=lambda group: group[0].severity != "error")
        lines = [f"{group[0]}{count_more(group)}" for group in ordered]
        all_of_them = "\n--report FILE writes all" if len(findings) > len(kinds) else ""
        raise VerificationError(
            f"{len(bad)} of {count_words(len(findings), 'finding')} must be mended:\n"
            + "\n".join(lines)
            + all_of_them
        )
    rows = [
        [first.severity, first.file.name, str(first.line or ""), first.text + count_more(group)]
        for group in kinds
        for first in group[:1]
    ]
    return TableText(
        ["severity", "file", "line", "finding"],
        rows,
        empty="no problems",
        keep=("finding", "file", "line"),
    )


def check(
    invocation: Invocation, paths: list[Path], report_file: Path | None, *, strict: bool
) -> Reply:
    """Answer ``dataset check`` of gaze data, and of clips of head-mounted cameras."""
    of_clips = any(map(is_egocentric, paths))
    with invocation.progress("check") as report:
        if of_clips:
            findings = list(chain.from_iterable(check_clips(open_egocentric(p)) for p in paths))
        else:
            findings = check_gaze(paths, report)
    table = findings_table(findings, report_file, strict=strict)
    items = [_describe_clips(path) if of_clips else _describe_gaze(path) for path in paths]
    lines = [
        f"{item['dataset']}: {'clips' if of_clips else 'gaze'} ({item['layout']}), "
        + item.get("words", "")
        + (f"{count_words(item['clips'], 'video')} of " if of_clips else "")
        + f"{count_words(item['persons'], 'person')}, digest {item['digest']}"
        for item in items
    ]
    data = {"datasets": items, "findings": findings}
    return Reply(data, [table, *lines], [item["digest"] for item in items])


def _describe_gaze(path: Path) -> dict[str, Any]:
    dataset = open_gaze(path)
    facts = {"dataset": path, "layout": dataset.layout, "digest": gaze_digest(dataset)}
    if dataset.view != EYE:
        facts["words"] = f"{dataset.view.description} ({target_words(dataset.view.target)}), "
    return facts | {"persons": len(dataset.persons), "view": dataset.view.name}


def target_words(target: Target) -> str:
    """Describe the numbers of a target: their names and unit."""
    return f"{' and '.join(target.axes)} in {target.unit}"


def _describe_clips(path: Path) -> dict[str, Any]:
    dataset = open_egocentric(path)
    facts = {"dataset": dataset.path, "layout": dataset.layout, "digest": dataset.digest}
    return facts | {"persons": len(dataset.persons), "clips": len(dataset.clips)}
