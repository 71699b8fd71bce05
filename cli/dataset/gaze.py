"""``poolctl dataset`` with gaze data: checks, statistics and preview sheets."""

from pathlib import Path

from cli.frame.errors import UsageError, VerificationError
from cli.frame.existing_files import refuse_inputs
from cli.frame.output import Invocation, Reply, TableText
from site_agent.datasets.check import Finding, count_more, kinds_of
from site_agent.datasets.egocentric import check_clips, open_egocentric
from site_agent.datasets.gaze.check import PersonStatistics, check_gaze, gaze_statistics, open_gaze
from site_agent.datasets.gaze.records import gaze_digest, join_digests
from site_agent.datasets.sheets import write_gaze_sheet
from site_agent.errors import writing_to
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
    """Answer ``dataset check`` of gaze data."""
    with invocation.progress("check") as report:
        findings = check_gaze(paths, report)
    table = findings_table(findings, report_file, strict=strict)
    opened = [open_gaze(path) for path in paths]
    digests = [gaze_digest(dataset) for dataset in opened]
    items = [
        {
            "dataset": path,
            "layout": dataset.layout,
            "digest": digest,
            "persons": len(dataset.persons),
        }
        for path, dataset, digest in zip(paths, opened, digests, strict=True)
    ]
    lines = [
        f"{item['dataset']}: gaze ({dataset.layout}), "
        f"{count_words(len(dataset.persons), 'person')}, digest {item['digest']}"
        for item, dataset in zip(items, opened, strict=True)
    ]
    return Reply({"datasets": items, "findings": findings}, [table, *lines], digests)


def check_egocentric(paths: list[Path], report_file: Path | None, *, strict: bool) -> Reply:
    """Answer ``dataset check`` of clips of head-mounted cameras."""
    opened = [open_egocentric(path) for path in paths]
    findings = [finding for dataset in opened for finding in check_clips(dataset)]
    table = findings_table(findings, report_file, strict=strict)
    items = [
        {
            "dataset": dataset.path,
            "layout": dataset.layout,
            "digest": dataset.digest,
            "persons": len(dataset.persons),
            "clips": len(dataset.clips),
        }
        for dataset in opened
    ]
    lines = [
        f"{dataset.path}: clips ({dataset.layout}), {count_words(len(dataset.clips), 'video')} of "
        f"{count_words(len(dataset.persons), 'person')}, digest {dataset.digest}"
        for dataset in opened
    ]
    digests = [dataset.digest for dataset in opened]
    return Reply({"datasets": items, "findings": findings}, [table, *lines], digests)


def stats(invocation: Invocation, paths: list[Path]) -> Reply:
    """Answer ``dataset stats`` of gaze data."""
    path = _only(paths)
    dataset = open_gaze(path)
    with invocation.progress("read patches") as report:
        persons = gaze_statistics(dataset, report)
    digest = join_digests({person.person: person.digest for person in persons})
    samples = sum(person.samples for person in persons)
    data = {
        "dataset": path,
        "layout": dataset.layout,
        "digest": digest,
        "samples": samples,
        "persons": persons,
    }
    columns = ["person", "samples", "sessions", "left", "right", "both"]
    columns += ["yaw", "pitch", "head yaw", "head pitch", "constant"]
    keep = ("samples", "yaw", "pitch", "constant", "sessions")
    counted = f"{count_words(len(persons), 'person')}, {count_words(samples, 'sample')}"
    lines = [
        "angles: mean (5 % to 95 %) in degrees; constant: mean error of the person's mean gaze",
        f"digest {digest}",
    ]
    table = TableText(columns, [_row(person) for person in persons], keep=keep)
    return Reply(data, [f"{path} holds {counted}.", table, *lines], [digest])


def preview(
    invocation: Invocation, paths: list[Path], output: Path, columns: int, rows: int
) -> Reply:
    """Answer ``dataset preview`` of gaze data."""
    path = _only(paths)
    dataset = open_gaze(path)
    refuse_inputs([output], [dataset.path], "--output")
    with invocation.progress("draw") as report:
        write_gaze_sheet(dataset, output, columns=columns, rows=rows, progress=report)
    return Reply({"datasets": paths, "pages": [output]}, str(output), [str(output)])


def _only(paths: list[Path]) -> Path:
    if len(paths) > 1:
        raise UsageError("expected one set of gaze data: give several one by one")
    return paths[0]


def _row(person: PersonStatistics) -> list[str]:
    counts = (person.samples, person.sessions, person.left, person.right, person.both_eyes)
    spreads = (person.yaw, person.pitch, person.head_yaw, person.head_pitch)
    error = f"{person.constant_error_deg:.1f}"
    ranges = [f"{of.mean:z.0f} ({of.p5:z.0f} to {of.p95:z.0f})" for of in spreads]
    return [person.person, *map(str, counts), *ranges, error]
