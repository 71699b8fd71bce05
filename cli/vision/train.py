"""``poolctl train``: sub-models from a site's own annotated images."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from cli.frame.options import Option, command, group
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.options.data import FacesArgument, ImagesOption, read_joined_faces, reading_from
from cli.vision import train_networks
from cli.vision.train_networks import TrainingOptions, plain_record
from site_agent.training.detector_plan import HOG_SVM_DEFAULTS
from site_agent.training.ert import ErtSettings, settings_for_blinks, train_ert
from site_agent.training.hog_svm import train_hog_svm
from site_agent.training_record import TrainingResult
from site_agent.wording import size_words

app = group("Train a face detector, a landmark model or a network.")
app.add_typer(train_networks.app)

HOG_SVM_SETTINGS = CommandSettings(HOG_SVM_DEFAULTS)
ERT_SETTINGS = CommandSettings(ErtSettings())

_LEFT_OUT_SHOWN = 20


@dataclass(frozen=True)
class FaceTrainingOptions(TrainingOptions):
    """The options of training a model of faces, besides its settings."""

    training_scores: Annotated[bool, Option("Score the model on its training data at the end.")] = (
        True
    )
    images: ImagesOption = None


@command(
    app,
    "hog-svm",
    "train hog-svm faces.xml -o siteA.svm",
    "train hog-svm faces.xml -o siteA.svm --set flips=true --set upsample=2",
    "train hog-svm faces.xml -o siteA.svm --set by_label=true",
)
def hog_svm(
    invocation: Invocation,
    datasets: FacesArgument,
    *,
    training: FaceTrainingOptions,
    settings: SettingsOptions,
) -> Reply:
    """Train a face detector (HOG features, linear SVM) and write it as a dlib file.

    Images without boxes are used as background. Detectors can be merged only if their windows are
    equal, so change target_size_px only if all sites do. With --set by_label=true the file has one
    detector for each label of the boxes (front, left, right ...), like dlib's own.
    """
    reading = reading_from(training.images)
    chosen = HOG_SVM_SETTINGS.read(settings)
    target = training.target(datasets[0].stem, ".svm")
    faces = read_joined_faces(datasets, reading)
    with invocation.progress("train hog-svm") as report:
        result = train_hog_svm(
            faces, target, chosen, report,
            training_scores=training.training_scores, despite_findings=training.despite_findings,
        )  # fmt: skip
    return _reply(invocation, result)


@command(
    app,
    "ert",
    "train ert faces.xml -o siteA.dat",
    "train ert faces.xml -o quick.dat --set num_trees_per_cascade_level=100 --set tree_depth=4",
    "train ert faces.xml -o eyes.dat --for blinks",
)
def ert(
    invocation: Invocation,
    datasets: FacesArgument,
    *,
    training: FaceTrainingOptions,
    purpose: Annotated[
        Literal["blinks"] | None,
        Option("blinks: the landmarks of the eyes, by settings that suit the lids.", name="--for"),
    ] = None,
    settings: SettingsOptions,
) -> Reply:
    """Train a landmark model (an ensemble of regression trees) and write it as a dlib file.

    For blinks, train with --for blinks. Models can be merged by wba-cascade if they have the same
    landmarks and the same number of levels (cascade_depth).
    """
    reading = reading_from(training.images)
    parts = ERT_SETTINGS.read(settings).parts
    same_parts = purpose is None and not parts
    target = training.target(datasets[0].stem, ".dat")
    faces = read_joined_faces(datasets, reading, same_parts=same_parts)
    count = sum(1 for _ in faces.boxes())
    chosen = ERT_SETTINGS.read(settings, settings_for_blinks(count) if purpose else None)
    with invocation.progress("train ert") as report:
        result = train_ert(
            faces, target, chosen, report,
            training_scores=training.training_scores, despite_findings=training.despite_findings,
        )  # fmt: skip
    return _reply(invocation, result)


def _reply(invocation: Invocation, result: TrainingResult) -> Reply:
    record = result.record
    for warning in record.warnings:
        invocation.warn(warning)
    scores = ", ".join(f"{name} {value:.4g}" for name, value in record.training_scores.items())
    expected = record.details.get("estimated_memory_bytes", 0)
    text: list[str | TableText] = [
        f"{result.model_path}  ({record.kind}, {size_words(record.model_bytes)}, "
        f"{record.data.boxes} faces in {record.data.images} images, {record.duration_s:.0f} s)",
        "images were doubled: some faces are smaller than the window"
        if record.details.get("upsampling")
        else "",
        *_left_out_lines(result.left_out),
        f"on the images it was trained on: {scores}; this flatters it, so score it on other "
        "faces (poolctl evaluate)"
        if scores
        else "",
        f"about it {result.metadata_path}",
        f"memory {size_words(record.peak_memory_bytes)}, about {size_words(expected)} expected",
    ]
    data: dict[str, Any] = {
        "output": result.model_path,
        "metadata_file": result.metadata_path,
        **plain_record(record),
        "left_out": [{"line": line, "text": text} for line, text in result.left_out],
    }
    return Reply(data, text, [str(result.model_path)])


def _left_out_lines(problems: Any) -> list[str]:
    lines = [
        f"left out: {f'line {line}: ' if line else ''}{text}"
        for line, text in problems[:_LEFT_OUT_SHOWN]
    ]
    more = len(problems) - _LEFT_OUT_SHOWN
    return [*lines, f"... and {more} more (--json lists all)"] if more > 0 else lines
