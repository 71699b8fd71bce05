"""``poolctl train gaze`` and ``train saliency``: networks from a site's own data."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cli.frame.addresses import model_file
from cli.frame.errors import InputMissingError, UsageError, goes_on_when_repeated
from cli.frame.existing_files import refuse_inputs, require_free
from cli.frame.options import (
    Argument,
    DespiteFindingsOption,
    DryRunOption,
    ForceOption,
    Option,
    command,
    single,
)
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import SettingsOptions
from cli.options.data import read_face_file
from cli.options.versions import NewVersionOptions, model_address
from cli.transfers.upload import upload
from cli.vision.clips import score_table
from site_agent.datasets.egocentric import open_egocentric
from site_agent.datasets.gaze.check import open_gaze
from site_agent.errors import ForbiddenError
from site_agent.training.network_settings import GazeSettings, SaliencySettings
from site_agent.training_record import TrainingRecord, TrainingResult, read_training_metadata
from site_agent.wording import count_words, size_words

if TYPE_CHECKING:
    from site_agent.datasets.conversion import ReadingOptions
    from site_agent.datasets.gaze.records import GazeDataset
    from site_agent.datasets.records import FaceDataset

Tested = tuple["Path | None", "ReadingOptions | None"]
"""A test set of faces, and how it is read."""


# Checks before every training, and what follows it: upload, tables.
@dataclass(frozen=True)
class TrainingOptions:
    """The options of where a trained model goes."""

    output: Annotated[Path | None, Option("The model to write. Default: named like the data.")] = (
        None
    )
    upload: Annotated[
        str | None,
        Option("Upload the model with labels and scores, never the images.", "[SITE/]NAME"),
    ] = None
    force: ForceOption = False
    despite_findings: DespiteFindingsOption = False

    def target(self, data_name: str, suffix: str = ".safetensors") -> Path:
        """Return the file of the model."""
        return self.output or Path(f"{data_name}{suffix}")

    def prepare(
        self,
        invocation: Invocation,
        target: Path,
        settings: Mapping[str, Any],
        digest: Callable[[], str],
        tested: Tested = (None, None),
    ) -> "Afterwards":
        """Check before hours of training whether the model can be written and uploaded.

        A file is replaced unasked only by the same training: the same settings and data.
        """
        force = self.force
        record = None if force or not target.is_file() else read_training_metadata(target)
        if record is not None and record["settings"] == settings:
            force = record["data"]["digest"] == digest()
        require_free(target, force=force)
        test, reading = tested
        faces = None if test is None else read_face_file(test, reading)
        if faces is not None and not any(True for _ in faces.boxes()):
            raise UsageError(f"--test {test}: has no face boxes")
        address = None
        if self.upload is not None:
            with invocation.pool() as pool:
                address = model_address(pool, self.upload)
                if pool.whoami().role == "viewer":
                    raise ForbiddenError(f"--upload {self.upload}: a viewer's token cannot upload")
        return Afterwards(test, faces, address, self.despite_findings)


@dataclass(frozen=True)
class Afterwards:
    """The test and the upload that follow a training."""

    test_path: Path | None = None
    test_faces: "FaceDataset | None" = None
    address: str | None = None
    despite_findings: bool = False


def upload_trained(
    invocation: Invocation,
    result: TrainingResult,
    after: Afterwards,
    data: dict[str, Any],
    text: Sequence[str | TableText],
) -> Reply:
    """Upload a trained model if asked to, and return the reply of the command."""
    identifiers = [str(result.model_path)]
    if after.address is None:
        return Reply(data, text, identifiers)
    # Should the pool not take it, the training is not lost.
    invocation.note(f"trained {result.model_path}")
    sent = upload(invocation, result.model_path, name=after.address, version=NewVersionOptions())
    assert sent is not None
    return Reply(
        data | {"upload": sent.data}, [*text, str(sent.text)], [*identifiers, *sent.identifiers]
    )


def plain_record(record: TrainingRecord) -> dict[str, Any]:
    """Return the content of the metadata file without the marks of images."""
    plain = record.to_dict()
    return plain | {"data": {k: v for k, v in plain["data"].items() if k != "image_marks"}}


# ``poolctl train gaze``.
app = single()

GAZE_SETTINGS = SettingsOptions(
    GazeSettings(),
    "settings train gaze",
    ("architecture", "persons", "epochs", "learning_rate", "seed", "device", "threads"),
)

GazeArgument = Annotated[Path, Argument("A folder with gaze.csv, its table, or MPIIGaze.", "DATA")]


@command(
    app,
    "gaze",
    "train gaze eyes/ -o gaze.safetensors",
    "train gaze eyes/ -o p07.safetensors --persons p07 --base gaze.safetensors --epochs 30",
    "train gaze eyes/ -o big.safetensors --architecture gaze-resnet18 --upload site-a/gaze",
    parameters=GAZE_SETTINGS.parameters(),
)
def gaze(
    invocation: Invocation,
    dataset: GazeArgument,
    *,
    training: TrainingOptions,
    base: Annotated[str, Option("The network to go on from.", "FILE|ADDRESS")] = "",
    dry_run: DryRunOption = False,
    **settings: Any,
) -> Reply:
    """Train a network that finds the gaze in eye patches, and write it as a safetensors file.

    A fifth of each person's sessions is held out: training stops when their error no longer falls,
    and keeps the network of the smallest error ('poolctl evaluate --sessions held-out' measures on
    the same ones). Run an interrupted training again to go on after its last epoch. Networks of one
    architecture can be merged.
    """
    from site_agent.training.gaze import recorded_settings, train_gaze

    chosen = GAZE_SETTINGS.take(settings)
    data = open_gaze_data(dataset)
    target = training.target(dataset.resolve().stem)
    start = model_file(invocation, base).path if base else None
    if start is not None:
        refuse_inputs([target], [start], "--output")
    if dry_run:
        return _describe_plan(data, target, chosen, start)
    recorded = recorded_settings(chosen, start)
    after = training.prepare(invocation, target, recorded, lambda: _digest(data, chosen))
    with goes_on_when_repeated(), invocation.progress("train gaze") as report:
        result = train_gaze(
            data, target, chosen, report, base=start, despite_findings=training.despite_findings
        )
    return upload_trained(invocation, result, after, *_describe_result(invocation, result))


def open_gaze_data(path: Path) -> "GazeDataset":
    """Open gaze data that the user named."""
    if not path.exists():
        raise InputMissingError(f"{path}: no such file; expected gaze data")
    return open_gaze(path)


def _digest(data: "GazeDataset", settings: GazeSettings) -> str:
    from site_agent.training.gaze import read_training_data

    return read_training_data(data, settings).digest


def _describe_plan(
    dataset: "GazeDataset", target: Path, settings: GazeSettings, base: Path | None
) -> Reply:
    from site_agent.training.gaze import find_device, read_training_data, start_network
    from site_agent.training.gaze.loop import checkpoint_path

    network = start_network(settings, base)
    device = find_device(settings.device)
    data = read_training_data(dataset, settings)
    counts = (len(data.training), len(data.validation))
    plain = {
        "output": target,
        "trained": False,
        "architecture": network.metadata["architecture"],
        "persons": sorted(data.digests),
        "images": counts[0],
        "validation_images": counts[1],
        "device": device,
        "goes_on": checkpoint_path(target).is_file(),
    }
    text = (
        f"would train {target}: {plain['architecture']} on {device}, {counts[0]} samples of "
        f"{count_words(len(data.digests), 'person')}, {counts[1]} for validation"
    )
    return Reply(plain, text, [str(target)])


def _describe_result(
    invocation: Invocation, result: TrainingResult
) -> tuple[dict[str, Any], list[str]]:
    record = result.record
    for warning in record.warnings:
        invocation.warn(warning)
    details = record.details
    text = [
        f"{result.model_path}  ({details['architecture']}, {size_words(record.model_bytes)}, "
        f"{record.data.images} samples of {count_words(record.data.persons, 'person')}, "
        f"{count_words(details['epochs'], 'epoch')} on {details['device']}, "
        f"{record.duration_s:.0f} s)"
    ]
    if details["resumed_at_epoch"]:
        text.append(f"went on after epoch {details['resumed_at_epoch']}")
    if details["validation_error_deg"] is not None:
        text.append(
            f"mean error on {details['validation_images']} samples of held-out sessions: "
            f"{details['validation_error_deg']:.2f} degrees, after epoch {details['best_epoch']}"
        )
    text.append(f"about it {result.metadata_path}")
    data = {
        "output": result.model_path,
        "metadata_file": result.metadata_path,
        **plain_record(record),
    }
    return data, text


SALIENCY_SETTINGS = SettingsOptions(
    SaliencySettings(),
    "settings train saliency",
    ("architecture", "persons", "epochs", "learning_rate", "seed"),
)


@command(
    app,
    "saliency",
    "train saliency clips/ -o look.safetensors",
    "train saliency clips/ -o p01.safetensors --persons P01 --epochs 30",
    "train saliency clips/ -o small.safetensors --architecture glc-small",
    parameters=SALIENCY_SETTINGS.parameters(),
)
def saliency(
    invocation: Invocation,
    dataset: Annotated[
        Path, Argument("A folder with clips.csv, or as EGTEA Gaze+ or Ego4D has it.", "CLIPS")
    ],
    *,
    training: TrainingOptions,
    **settings: Any,
) -> Reply:
    """Train a network that finds where a person looks in clips of a head-mounted camera.

    The network of the best validation score is kept, and scored on the test clips against maps that
    know no picture: each person's mean, the centre, and the uniform one. Run an interrupted
    training again to go on. 'poolctl dataset draw clips' draws clips to try it with.
    """
    from site_agent.training.saliency import train_saliency

    chosen = SALIENCY_SETTINGS.take(settings)
    if not dataset.is_dir():
        raise InputMissingError(f"{dataset}: no such folder; expected egocentric clips")
    data = open_egocentric(dataset)
    target = training.target(dataset.resolve().name)
    recorded = json.loads(json.dumps(asdict(chosen)))
    after = training.prepare(invocation, target, recorded, lambda: data.digest)
    with goes_on_when_repeated(), invocation.progress("train saliency") as report:
        result, scores = train_saliency(
            data, target, chosen, report, despite_findings=training.despite_findings
        )
    record = result.record
    lines = [
        f"{result.model_path}  ({record.details['architecture']}, "
        f"{count_words(record.data.persons, 'person')}, {record.data.images} frames, "
        f"{count_words(record.details['epochs'], 'epoch')}, {record.duration_s:.0f} s)"
    ]
    text: list[str | TableText] = list(lines)
    if scores is not None:
        text.insert(0, scores.verdict)
        text.append(score_table(scores))
    plain = {"model": result.model_path, "test_scores": record.details["test_scores"]}
    return upload_trained(invocation, result, after, plain, text)
