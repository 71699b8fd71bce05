"""``poolctl train gaze``: networks from a site's own eye patches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.frame.addresses import model_file, size_words
from cli.frame.errors import InputMissingError, goes_on_when_repeated
from cli.frame.existing_files import refuse_inputs
from cli.frame.options import DryRunOption, ForceOption, command, single
from cli.frame.output import Invocation, Reply
from cli.frame.quantities import count_words
from cli.frame.settings_options import SettingsOptions
from cli.vision.after_training import (
    UploadOption,
    plain_record,
    prepared,
    require_same_training,
    uploaded,
)
from site_agent.training.gaze.settings import GazeSettings

if TYPE_CHECKING:
    from site_agent.datasets.gaze import GazeDataset
    from site_agent.training import TrainingResult

app = single()

GAZE_SETTINGS = SettingsOptions(
    GazeSettings(),
    "settings train gaze",
    ("architecture", "persons", "epochs", "learning_rate", "seed", "device", "threads"),
)

GazeArgument = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="A folder with gaze.csv, its table, or MPIIGaze."),
]


@command(
    app,
    "gaze",
    examples=[
        "train gaze eyes/ -o gaze.safetensors",
        "train gaze eyes/ -o p07.safetensors --persons p07 --base gaze.safetensors --epochs 30",
        "train gaze eyes/ -o big.safetensors --architecture gaze-resnet18 --upload site-a/gaze",
    ],
    parameters=GAZE_SETTINGS.parameters(),
)
def gaze(
    invocation: Invocation,
    dataset: GazeArgument,
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Default: DATA.safetensors.",
        ),
    ] = None,
    base: Annotated[
        str, typer.Option(metavar="FILE|ADDRESS", help="The network to go on from.")
    ] = "",
    upload: UploadOption = None,
    force: ForceOption = False,
    dry_run: DryRunOption = False,
    **settings: Any,
) -> Reply:
    """Train a network that finds the gaze in eye patches, and write it as a safetensors file.

    A fifth of each person's sessions is held out: training stops when their error no longer falls,
    and keeps the network of the smallest error ('poolctl evaluate --sessions held-out' measures on
    the same ones). Run an interrupted training again to go on after its last epoch. Networks of one
    architecture can be merged.
    """
    from site_agent.training.gaze.training import recorded_settings, train_gaze

    chosen = GAZE_SETTINGS.take(settings)
    data = open_gaze_data(dataset)
    target = output or Path(f"{dataset.resolve().stem}.safetensors")
    start = model_file(invocation, base).path if base else None
    if start is not None:
        refuse_inputs([target], [start], "--output")
    if dry_run:
        return _planned(data, target, chosen, start)
    recorded = recorded_settings(chosen, start)
    require_same_training(target, recorded, lambda: _digest(data, chosen), force=force)
    after = prepared(invocation, None, None, upload)
    with goes_on_when_repeated(), invocation.progress("train gaze") as report:
        result = train_gaze(data, target, chosen, report, base=start)
    return uploaded(invocation, result, after, *_describe_result(invocation, result))


def open_gaze_data(path: Path) -> GazeDataset:
    """Open gaze data that the user named."""
    from site_agent.datasets.gaze import open_gaze

    if not path.exists():
        raise InputMissingError(f"{path}: no such file; expected gaze data")
    return open_gaze(path)


def _digest(data: GazeDataset, settings: GazeSettings) -> str:
    from site_agent.training.gaze.training import read_training_data

    return read_training_data(data, settings).digest


def _planned(
    dataset: GazeDataset, target: Path, settings: GazeSettings, base: Path | None
) -> Reply:
    from site_agent.training.gaze.training import (
        checkpoint_path,
        find_device,
        read_training_data,
        start_network,
    )

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
