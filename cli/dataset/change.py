"""``poolctl dataset split``, ``convert`` and ``draw``: data sets made from others, or drawn."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cli.frame.errors import UsageError
from cli.frame.existing_files import refuse_inputs, require_free, require_free_copies
from cli.frame.options import Argument, ForceOption, Option, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.options import data as data_options
from site_agent.datasets.conversion import (
    ReadingOptions,
    choose_parts,
    copy_images,
    copy_places,
    rebox_dataset,
    renumber_parts,
)
from site_agent.datasets.imglab_xml import write_imglab_xml
from site_agent.datasets.landmark_schemes import PART_GROUPS, expand_parts
from site_agent.datasets.part_order import unsorted_names
from site_agent.datasets.records import FaceDataset, dataset_digest, part_names
from site_agent.datasets.split import GroupOf, site_shares, split_dataset
from site_agent.faces.models import open_detector
from site_agent.pictures.images import read_image
from site_agent.wording import count_words

app = single()

_MISSING_SHOWN = 5
CopyOption = Annotated[bool, Option("Also copy the images.")]


@command(
    app,
    "split",
    "dataset split faces.xml --site-count 6 -o sites/",
    "dataset split faces.xml --test-share 0.2 --together person --persons persons.csv",
    "dataset split faces.xml --site-count 3 --together person --person-pattern '(p[0-9]+)_'",
)
def split(
    invocation: Invocation,
    datasets: data_options.FacesArgument,
    *,
    site_count: Annotated[int, Option("Number of equal parts.", min=1)] = 1,
    test_share: Annotated[
        float, Option("Share of the images for a test set.", min=0.0, max=0.99)
    ] = 0.0,
    grouping: data_options.GroupingOptions,
    seed: Annotated[int, Option("Seed of the split.", min=0)] = 0,
    output: Annotated[
        Path | None, Option("Folder for the results. Default: that of FACES.", "FOLDER")
    ] = None,
    force: ForceOption = False,
    images: data_options.ImagesOption = None,
) -> Reply:
    """Split a data set into sites, or into a training and a test set.

    Writes one imglab XML file for each part: NAME-site-1.xml, ..., NAME-train.xml, NAME-test.xml.
    Images stay where they are. Copies of the same image stay together; with --together person, all
    images of a person do. Existing files are replaced only with --force.
    """
    faces = data_options.read_joined_faces(datasets, data_options.reading_from(images))
    group_of = grouping.group_of(faces)
    shares = site_shares(site_count, test_share)
    parts = split_dataset(faces, shares, group_of=group_of, seed=seed)
    first = datasets[0]
    folder = output or (first if first.is_dir() else first.parent)
    targets = {name: folder / f"{first.stem}-{name}.xml" for name in parts}
    for path in targets.values():
        require_free(path, force=force)
    folder.mkdir(parents=True, exist_ok=True)
    items = []
    with invocation.progress("split") as report:
        for name, part in parts.items():
            named = replace(part, name=f"{part.name} {name}".strip())
            report(None, name)
            write_imglab_xml(named, targets[name])
            items.append({"part": name, "dataset": targets[name], **_counts_of(part, group_of)})
    columns = ["part", "images", "dataset", "faces", *(["groups"] if group_of else [])]
    rows = [[str(item[column]) for column in columns] for item in items]
    data = {"datasets": datasets, "together": grouping.together, "seed": seed, "items": items}
    return Reply(data, TableText(columns, rows), [str(path) for path in targets.values()])


def _counts_of(part: FaceDataset, group_of: GroupOf | None) -> dict[str, Any]:
    groups = {group_of(image) for image in part.images} if group_of else None
    return {
        "images": len(part.images),
        "faces": sum(1 for _ in part.boxes()),
        "groups": None if groups is None else len(groups),
        "digest": dataset_digest(part),
    }


READING_SETTINGS = CommandSettings(ReadingOptions(), ("images",))


@command(
    app,
    "convert",
    "dataset convert 300w/ -o 300w.xml --detector stock",
    "dataset convert keypoints.json -o faces.xml --images val2017/",
    "dataset convert faces.xml -o eyes.xml --parts eyes",
)
def convert(
    invocation: Invocation,
    datasets: data_options.FacesArgument,
    *,
    output: Annotated[Path, Option("The file to write: NAME.xml.")],
    detector: Annotated[
        str | None,
        Option("Give faces the boxes of a detector; 'stock' is dlib's own.", "FILE|ADDRESS"),
    ] = None,
    upsample: Annotated[
        int, Option("How often images are doubled for the detector.", min=0, max=4)
    ] = 0,
    parts: Annotated[
        str | None,
        Option("Landmarks to keep: names, numbers (36-47), or groups: eyes, mouth, ...", "A,B,..."),
    ] = None,
    upright: Annotated[
        bool, Option("Copy the images as EXIF turns them, if they were annotated so.")
    ] = False,
    copy: CopyOption = False,
    force: ForceOption = False,
    images: data_options.ImagesOption = None,
    changes: SettingsOptions,
) -> Reply:
    """Convert annotations to imglab XML, to other boxes, or to fewer landmarks.

    imglab XML has landmarks in whole pixels, and numbers of one length ('1' becomes '01' where
    there is a '10'), as dlib orders them as text. Pixels in .pts files start at 1
    (--set pts_origin=0 where not), and boxes around their landmarks get a box_margin.
    With --detector, a face that the detector misses gets the box that it typically draws
    around such landmarks. Existing files, including images, are replaced only with --force.
    """
    if output.suffix.lower() != ".xml":
        raise UsageError(f"--output {output}: expected NAME.xml")
    reading = READING_SETTINGS.read(changes, data_options.reading_from(images))
    faces = data_options.read_joined_faces(datasets, reading)
    if unsorted_names(part_names(faces)):
        faces = renumber_parts(faces)
    # Refused before a detector looks at every image.
    refuse_inputs([output], [*datasets, *(image.path for image in faces.images)], "--output")
    require_free(output, force=force)
    copy = copy or upright
    copies = copy_places(faces, output.with_suffix("")) if copy else {}
    require_free_copies(copies.items(), force=force)
    data: dict[str, Any] = {"datasets": datasets, "output": output}
    lines = []
    if detector is not None:
        faces, box_counts = _rebox(invocation, faces, detector, upsample)
        data |= box_counts
        lines.append(
            f"boxes: {box_counts['boxes_found']} found, {box_counts['boxes_estimated']} estimated"
        )
    if parts:
        faces = _choose_parts(faces, parts)
    output.parent.mkdir(parents=True, exist_ok=True)
    faces = _write_imglab(faces, output, copy=copy, upright=upright)
    return _describe_converted(invocation, faces, output, data, lines)


def _describe_converted(
    invocation: Invocation,
    faces: FaceDataset,
    output: Path,
    data: dict[str, Any],
    lines: Sequence[str],
) -> Reply:
    counts = {
        "images": len(faces.images),
        "boxes": sum(len(image.boxes) for image in faces.images),
        "parts": len(part_names(faces)),
    }
    missing = [image.path for image in faces.images if not image.path.is_file()]
    if missing:
        shown = ", ".join(str(path) for path in missing[:_MISSING_SHOWN])
        more = " ..." if len(missing) > _MISSING_SHOWN else ""
        invocation.warn(
            f"{count_words(len(missing), 'image is', 'images are')} missing: {shown}{more}"
        )
    data |= counts | {"missing_images": missing}
    counted = ", ".join(f"{count} {name}" for name, count in counts.items())
    return Reply(data, [f"{output}  ({counted})", *lines], [str(output)])


def _write_imglab(
    faces: FaceDataset, path: Path, *, copy: bool, upright: bool = False
) -> FaceDataset:
    if copy:
        faces = copy_images(faces, path.with_suffix(""), upright=upright)
    write_imglab_xml(faces, path)
    return faces


def _rebox(
    invocation: Invocation, faces: FaceDataset, detector: str, upsample: int
) -> tuple[FaceDataset, dict[str, Any]]:
    path = None if detector == "stock" else invocation.model_file(detector).path
    opened = open_detector(path)

    def find(image: Path) -> list[tuple[float, float, float, float]]:
        pixels = read_image(image, apply_orientation=False)
        return [(d.left, d.top, d.right, d.bottom) for d in opened.detect(pixels, upsample)]

    with invocation.progress("find faces") as report:
        reboxed = rebox_dataset(faces, find, report)
    facts = {
        "boxes_found": reboxed.detected,
        "boxes_estimated": len(reboxed.estimated),
        "estimated": [{"image": image.path, "line": box.line} for image, box in reboxed.estimated],
    }
    return reboxed.dataset, facts


def _choose_parts(faces: FaceDataset, parts: str) -> FaceDataset:
    names = part_names(faces)
    chosen, unknown = expand_parts([word.strip() for word in parts.split(",")], names)
    if unknown:
        groups = ", ".join(PART_GROUPS)
        raise UsageError(
            f"--parts {', '.join(unknown)}: no such landmarks; there are {', '.join(names[:6])}"
            f"{' ...' if len(names) > 6 else ''}, and of the 68 the groups {groups}"
        )
    return choose_parts(faces, chosen)


# ``poolctl dataset draw``.
Kind = Literal["faces", "eyes", "clips", "video", "trials"]


@command(
    app,
    "draw",
    "dataset draw faces siteB/ --set images=150 --set persons=50 --set style=infant-lab",
    "dataset draw eyes eyes/ --set persons=30 --set first_person=5 --set both_eyes=true",
    "dataset draw clips clips/ --set persons=5 --set heterogeneity=0",
    "dataset draw video session.mp4 --set seconds=30",
    "dataset draw video conditioned.mp4 --set trials=20 --set frame_rate_hz=60",
    "dataset draw trials all_trials.csv --set animals=6 --set groups=control,lesion --set seed=1",
)
def draw(
    invocation: Invocation,
    kind: Annotated[Kind, Argument("The kind of data.")],
    path: Annotated[Path, Argument("The folder, or the video, to write.", "PATH")],
    *,
    force: ForceOption = False,
    settings: SettingsOptions,
) -> Reply:
    """Draw a synthetic data set or video with known truth; equal settings give equal files.

    faces: images with exact boxes and 68 exact landmarks. eyes: patches with gaze angles, of
    persons with different looks, light, cameras, gaze, head pose and eyeballs. clips: videos of
    head-mounted cameras with the wearers' gaze, for a new folder. video: a blinking person with the
    eyelid closure of every frame and the blinks; with trials, a person learning to blink before
    an air puff, and the list of trials for 'poolctl blink --trials'. trials: a table of a study of
    learning animals for 'poolctl blink fit-together'. 'poolctl settings dataset draw
    KIND' lists all settings, 'poolctl dataset preview' shows faces.
    """
    from site_agent.datasets.synthetic.drawing import KINDS

    chosen = CommandSettings(KINDS[kind].settings).read(settings)
    for file in KINDS[kind].list_targets(path, chosen):
        require_free(file, force=force)
    with invocation.progress(f"draw {kind}") as report:
        drawn = KINDS[kind].draw(path, chosen, report)
    data = {"dataset": drawn.path, **drawn.counts, "files": drawn.files}
    counts = ", ".join(f"{count:g} {name}" for name, count in drawn.counts.items())
    lines = [f"{drawn.path}  ({counts})", *(f"{role} {file}" for role, file in drawn.files.items())]
    return Reply(data, lines, [str(drawn.path)])
