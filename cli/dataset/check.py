"""``poolctl dataset check`` and ``preview``: describe data sets."""

from itertools import chain
from pathlib import Path
from typing import Annotated, Any

from cli.frame.errors import VerificationError
from cli.frame.existing_files import refuse_inputs
from cli.frame.options import Argument, Option, ReportOption, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.options import data as data_options
from site_agent.datasets.check import Finding, check_datasets, count_more, kinds_of
from site_agent.datasets.conversion import recognise_annotations
from site_agent.datasets.egocentric import check_clips, is_egocentric, open_egocentric
from site_agent.datasets.gaze.check import check_gaze, open_gaze
from site_agent.datasets.gaze.records import gaze_digest
from site_agent.datasets.records import FaceDataset, dataset_digest
from site_agent.datasets.sheets import sheet_paths, write_contact_sheets
from site_agent.errors import writing_to
from site_agent.networks.views import EYE
from site_agent.plain_json import json_bytes
from site_agent.training.detector_plan import HOG_SVM_DEFAULTS
from site_agent.training.ert import unlearnable_boxes
from site_agent.wording import count_words

app = single()


@command(
    app,
    "check",
    "dataset check faces.xml",
    "dataset check train.xml test.xml --json",
    "dataset check faces.xml --set target_size_px=60x60 --report findings.json",
)
def check(
    invocation: Invocation,
    datasets: Annotated[
        list[Path], Argument("Annotations or gaze data; several must not share images.", "DATA...")
    ],
    *,
    strict: Annotated[bool, Option("Treat warnings as errors.")] = False,
    settings: SettingsOptions,
    report_file: ReportOption = None,
    images: data_options.ImagesOption = None,
) -> Reply:
    """Find mistakes that would stop or spoil a training.

    Finds missing, broken and repeated images, images in two of the data sets, boxes and landmarks
    outside the image, landmarks that are missing or in the wrong order (left and right exchanged,
    sorted as text), and boxes that a detector with the settings of 'train hog-svm' cannot learn. In
    gaze data: missing and broken patches, repeated samples, angles out of range, and eyes of a
    frame that look apart. In clips: videos that cannot be read or come twice, and gaze of other
    frames. Every training, test and contribution checks the same. Exit code 5 if there are errors.

    A folder holds gaze by gaze.csv (file, person, session, frame, eye, yaw, pitch, head_yaw,
    head_pitch; angles in radians, pictures of 60 x 36 pixels), or clips by clips.csv (clip, file,
    person, split) with gaze.csv (clip, frame, x, y, kind; x and y from 0 to 1, kind fixation,
    moving or untracked).
    """
    chosen = CommandSettings(HOG_SVM_DEFAULTS).read(settings)
    if report_file is not None:
        refuse_inputs([report_file], datasets, "--report")
    if data_options.holds_gaze(datasets) or any(map(is_egocentric, datasets)):
        return _check_gaze(invocation, datasets, report_file, strict=strict)
    reading = data_options.reading_from(images)
    read = [data_options.read_face_file(path, reading) for path in datasets]
    with invocation.progress("check") as report:
        findings = check_datasets(read, report)
        if not chosen.ignore_unreachable:
            report(None, "boxes that a detector cannot learn")
            findings += chain.from_iterable(unlearnable_boxes(faces, chosen) for faces in read)
    table = _findings_table(findings, report_file, strict=strict)
    digests = [dataset_digest(faces) for faces in read]
    unlearnable = sum(finding.code == "unreachable-box" for finding in findings)
    counts = [_counts(faces) for faces in read]
    data: dict[str, Any] = {
        "datasets": [
            {"dataset": path, "digest": digest, **count}
            for path, digest, count in zip(datasets, digests, counts, strict=True)
        ],
        "images": sum(count["images"] for count in counts),
        "boxes": sum(count["boxes"] for count in counts),
        "findings": findings,
    }
    lines = [
        f"{path}: faces ({recognise_annotations(path).summary}), "
        f"{count_words(count['images'], 'image')}, "
        f"{count_words(count['boxes'], 'box', 'boxes')}, digest {digest}"
        for path, digest, count in zip(datasets, digests, counts, strict=True)
    ]
    if unlearnable:
        lines.append(
            f"'train hog-svm' stops at {unlearnable} of these boxes, unless upsample reaches "
            "them or --set ignore_unreachable=true leaves them out; 'train ert' can use them"
        )
    return Reply(data, [table, *lines], digests)


@command(app, "preview", "dataset preview faces.xml", "dataset preview faces.xml -o sheet.png")
def preview(
    invocation: Invocation,
    datasets: data_options.FacesArgument,
    *,
    output: Annotated[
        Path | None, Option("The picture to write. Default: DATA.png.", "PNG")
    ] = None,
    images: data_options.ImagesOption = None,
) -> Reply:
    """Draw all faces with their boxes and landmarks on a sheet.

    Further pages are called NAME-2.png and so on. Ignored boxes are red.
    """
    output = output or Path(f"{datasets[0].stem}.png")
    faces = data_options.read_joined_faces(datasets, data_options.reading_from(images))
    inputs = [*datasets, *(image.path for image in faces.images)]
    refuse_inputs(sheet_paths(faces, output), inputs, "--output")
    with invocation.progress("draw") as report:
        written = write_contact_sheets(faces, output, progress=report)
    names = [str(path) for path in written]
    return Reply({"datasets": datasets, "pages": written}, names, names)


def _counts(faces: FaceDataset) -> dict[str, int]:
    boxes = sum(len(image.boxes) for image in faces.images)
    return {"images": len(faces.images), "boxes": boxes}


def _findings_table(
    findings: list[Finding], report_file: Path | None, *, strict: bool
) -> TableText:
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
        [first.severity, first.text + count_more(group), first.file.name, str(first.line or "")]
        for group in kinds
        for first in group[:1]
    ]
    return TableText(["severity", "finding", "file", "line"], rows, empty="no problems")


def _check_gaze(
    invocation: Invocation, paths: list[Path], report_file: Path | None, *, strict: bool
) -> Reply:
    """Check gaze data, or clips of head-mounted cameras."""
    of_clips = any(map(is_egocentric, paths))
    with invocation.progress("check") as report:
        if of_clips:
            findings = check_clips(*map(open_egocentric, paths))
        else:
            findings = check_gaze(paths, report)
    table = _findings_table(findings, report_file, strict=strict)
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
        target = dataset.view.target
        axes = " and ".join(target.axes)
        facts["words"] = f"{dataset.view.description} ({axes} in {target.unit}), "
    return facts | {"persons": len(dataset.persons), "view": dataset.view.name}


def _describe_clips(path: Path) -> dict[str, Any]:
    dataset = open_egocentric(path)
    facts = {"dataset": dataset.path, "layout": dataset.layout, "digest": dataset.digest}
    return facts | {"persons": len(dataset.persons), "clips": len(dataset.clips)}
