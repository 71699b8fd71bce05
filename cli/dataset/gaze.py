"""``poolctl dataset`` with gaze data: rendered eyes, checks, numbers and sheets."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cli.frame.addresses import count_words
from cli.frame.errors import UsageError, VerificationError
from cli.frame.existing_files import refuse_inputs, require_free
from cli.frame.options import Argument, FolderArgument, ForceOption, Option, command, single
from cli.frame.output import Invocation, Reply, TableText

if TYPE_CHECKING:
    from site_agent.datasets.check import Finding
    from site_agent.datasets.gaze.check import PersonStatistics


_LINES_SHOWN = 5


def findings_table(
    findings: "list[Finding]", report_file: Path | None, *, strict: bool
) -> TableText:
    """Write the report, refuse errors, and return a table of the warnings."""
    if report_file is not None:
        from site_agent.plain_json import json_bytes

        report_file.write_bytes(json_bytes({"findings": findings}))
    bad = [finding for finding in findings if strict or finding.severity == "error"]
    kinds = _by_kind(findings)
    if bad:
        ordered = sorted(kinds, key=lambda group: group[0].severity != "error")
        lines = [f"{group[0]}{_more_of_kind(group)}" for group in ordered]
        all_of_them = "\n--report FILE writes all" if len(findings) > len(kinds) else ""
        raise VerificationError(
            f"{len(bad)} of {count_words(len(findings), 'finding')} must be mended:\n"
            + "\n".join(lines)
            + all_of_them
        )
    rows = [
        [first.severity, first.file.name, str(first.line or ""), first.text + _more_of_kind(group)]
        for group in kinds
        for first in group[:1]
    ]
    return TableText(
        ["severity", "file", "line", "finding"],
        rows,
        empty="no problems",
        keep=("finding", "file", "line"),
    )


def _by_kind(findings: "list[Finding]") -> "list[list[Finding]]":
    """Return the findings with those together that say the same of one file."""
    kinds: dict[tuple[str, str, Path], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.severity, finding.code, finding.file), []).append(finding)
    return list(kinds.values())


def _more_of_kind(group: "list[Finding]") -> str:
    lines = [str(finding.line) for finding in group[1:] if finding.line]
    if len(group) == 1:
        return ""
    named = ", ".join(lines[:_LINES_SHOWN]) + (" ..." if len(lines) > _LINES_SHOWN else "")
    where = f", in lines {named}" if lines else ""
    return f" (and {len(group) - 1} more of this kind{where})"


GlassesOption = Annotated[float, Option("Share of persons who wear glasses.", min=0, max=1)]
SeedOption = Annotated[int, Option("Seed; the same seed gives the same files.", min=0)]
PersonCountOption = Annotated[int, Option("Number of persons.", min=1)]
FirstPersonOption = Annotated[
    int, Option("Number of the first person; disjoint ranges share no person.", min=0)
]

# The commands.
app = single()


@command(
    app,
    "synth-eyes",
    "dataset synth-eyes eyes/ --person-count 30",
    "dataset synth-eyes siteB/ --person-count 5 --first-person 5 --both-eyes",
    "dataset synth-eyes equal/ --appearance-skew 0 --gaze-skew 0 --amount-ratio 1",
    "dataset synth-eyes desk/ --style webcam",
)
def synth_eyes(
    invocation: Invocation,
    folder: FolderArgument,
    *,
    person_count: PersonCountOption = 30,
    frame_count: Annotated[int, Option("Number of frames of a person, on average.", min=1)] = 1000,
    first_person: FirstPersonOption = 0,
    sessions: Annotated[str, Option("Number of sessions of a person.", "FEWEST-MOST")] = "3-8",
    both_eyes: Annotated[bool, Option("Both eyes of each frame, instead of one of them.")] = False,
    seed: SeedOption = 0,
    appearance_skew: Annotated[
        float, Option("How much looks, light and cameras differ; 1: as in people.", min=0, max=2)
    ] = 1.0,
    gaze_skew: Annotated[
        float, Option("How much ranges of gaze and head pose differ.", min=0, max=2)
    ] = 1.0,
    eyeball_skew: Annotated[
        float, Option("How much the angle kappa and the radius of eyeballs differ.", min=0, max=2)
    ] = 1.0,
    amount_ratio: Annotated[
        float, Option("Most over fewest frames of a person.", min=1, max=1000)
    ] = 20.0,
    glasses_share: GlassesOption = 0.25,
    style: Annotated[
        Literal["studio", "webcam"],
        Option("webcam: blurred and coarse, uneven light, turned heads, inexact patches."),
    ] = "studio",
    force: ForceOption = False,
) -> Reply:
    """Draw eye patches of synthetic persons whose gaze is known.

    Writes gaze.csv with angles in radians, and pictures of 36 x 60 pixels under images/. Persons
    differ in looks, light, cameras, gaze, head pose, amount of data, and in what no picture shows:
    the angle kappa and the radius of the eyeball. 'poolctl dataset preview' draws them.
    """
    from site_agent.datasets.gaze.generic_layout import TABLE_NAME
    from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, write_eye_dataset
    from site_agent.datasets.synthetic.eye_patches.persons import Skews

    settings = RenderSettings(
        persons=person_count,
        frames_per_person=frame_count,
        sessions=_range(sessions),
        both_eyes=both_eyes,
        glasses=glasses_share,
        camera=style,
        seed=seed,
        first_person=first_person,
        skews=Skews(appearance_skew, gaze_skew, eyeball_skew, amount_ratio),
    )
    require_free(folder / TABLE_NAME, force=force)
    with invocation.progress("render eyes") as report:
        table, count = write_eye_dataset(folder, settings, report)
    data = {"dataset": table, "persons": person_count, "samples": count}
    words = f"{count_words(person_count, 'person')}, {count_words(count, 'sample')}"
    return Reply(data, f"{table}  ({words})", [str(table)])


@command(
    app,
    "synth-egocentric",
    "dataset synth-egocentric clips/",
    "dataset synth-egocentric alike/ --heterogeneity 0 --person-count 5",
)
def synth_egocentric(
    invocation: Invocation,
    folder: Annotated[Path, Argument("A new folder, or an empty one.", "FOLDER")],
    *,
    person_count: PersonCountOption = 8,
    video_count: Annotated[int, Option("Videos of each person.", min=1)] = 20,
    seconds: Annotated[float, Option("Of a video.", min=0.5, max=600)] = 4.0,
    heterogeneity: Annotated[
        float, Option("How much persons differ in what they look at; 0: none.", min=0, max=2)
    ] = 1.0,
    seed: SeedOption = 0,
) -> Reply:
    """Draw clips of head-mounted cameras whose wearers' gaze is known.

    Persons look at objects by their own preferences, which no picture shows. A fifth of each
    person's videos is for tests, another for validation. The true gaze is beside the tracked one.
    """
    from site_agent.datasets.synthetic.egocentric_clips import ClipSettings, write_clips

    settings = ClipSettings(person_count, video_count, seconds, heterogeneity, seed=seed)
    with invocation.progress("draw clips") as report:
        count = write_clips(folder, settings, report)
    data = {"dataset": folder, "persons": person_count, "videos": count}
    words = f"{count_words(person_count, 'person')}, {count_words(count, 'video')}"
    return Reply(data, f"{folder}  ({words})", [str(folder)])


def check(
    invocation: Invocation, paths: list[Path], report_file: Path | None, *, strict: bool
) -> Reply:
    """Answer ``dataset check`` of gaze data."""
    from site_agent.datasets.gaze.check import check_gaze, open_gaze
    from site_agent.datasets.gaze.records import gaze_digest

    with invocation.progress("check") as report:
        findings = check_gaze(paths, report)
    table = findings_table(findings, report_file, strict=strict)
    opened = [open_gaze(path) for path in paths]
    digests = [gaze_digest(each) for each in opened]
    items = [
        {"dataset": path, "layout": each.layout, "digest": digest, "persons": len(each.persons)}
        for path, each, digest in zip(paths, opened, digests, strict=True)
    ]
    lines = [
        f"{item['dataset']}: {count_words(len(each.persons), 'person')}, digest {item['digest']}"
        for item, each in zip(items, opened, strict=True)
    ]
    return Reply({"datasets": items, "findings": findings}, [table, *lines], digests)


def stats(invocation: Invocation, paths: list[Path]) -> Reply:
    """Answer ``dataset stats`` of gaze data."""
    from site_agent.datasets.gaze.check import gaze_statistics, open_gaze
    from site_agent.datasets.gaze.records import join_digests

    path = _only(paths)
    dataset = open_gaze(path)
    with invocation.progress("read patches") as report:
        persons = gaze_statistics(dataset, report)
    digest = join_digests({each.person: each.digest for each in persons})
    samples = sum(each.samples for each in persons)
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
    table = TableText(columns, [_row(each) for each in persons], keep=keep)
    return Reply(data, [f"{path} holds {counted}.", table, *lines], [digest])


def preview(
    invocation: Invocation, paths: list[Path], output: Path, columns: int, rows: int
) -> Reply:
    """Answer ``dataset preview`` of gaze data."""
    from site_agent.datasets.gaze.check import open_gaze
    from site_agent.datasets.sheets import write_gaze_sheet

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


def _row(each: "PersonStatistics") -> list[str]:
    counts = (each.samples, each.sessions, each.left, each.right, each.both_eyes)
    spreads = (each.yaw, each.pitch, each.head_yaw, each.head_pitch)
    error = f"{each.constant_error_deg:.1f}"
    words = [f"{of.mean:z.0f} ({of.p5:z.0f} to {of.p95:z.0f})" for of in spreads]
    return [each.person, *map(str, counts), *words, error]


def _range(text: str) -> tuple[int, int]:
    words = text.split("-")
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise UsageError(f"--sessions {text!r}: expected FEWEST-MOST, for example 3-8")
    return int(words[0]), int(words[1])
