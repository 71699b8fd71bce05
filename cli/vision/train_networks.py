"""``poolctl train network``: networks from a site's own data."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cli.frame.errors import InputMissingError, UsageError
from cli.frame.existing_files import refuse_inputs, require_free
from cli.frame.options import Argument, DespiteFindingsOption, ForceOption, Option, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import CommandSettings, SettingsOptions
from cli.vision.clips import score_table
from site_agent.datasets.egocentric import open_egocentric
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import GazeDataset
from site_agent.networks.architectures import find_architecture
from site_agent.networks.lab_networks import name_network
from site_agent.networks.views import EYE, View
from site_agent.training.network_settings import (
    CrossEncoderSettings,
    GazeHeadSettings,
    GazeSettings,
    SaliencySettings,
)
from site_agent.training_record import TrainingRecord, TrainingResult
from site_agent.wording import count_words, size_words


@dataclass(frozen=True)
class TrainingOptions:
    """The options of where a trained model goes."""

    output: Annotated[Path | None, Option("The model to write. Default: named like the data.")] = (
        None
    )
    force: ForceOption = False
    despite_findings: DespiteFindingsOption = False

    def target(self, data_name: str, suffix: str = ".safetensors") -> Path:
        """Return the file of the model, which must be free before hours of training."""
        target = self.output or Path(f"{data_name}{suffix}")
        require_free(target, force=self.force)
        return target


def plain_record(record: TrainingRecord) -> dict[str, Any]:
    """Return the content of the metadata file without the marks of images."""
    plain = record.to_dict()
    return plain | {"data": {k: v for k, v in plain["data"].items() if k != "image_marks"}}


# ``poolctl train network``.
app = single()

NETWORK_SETTINGS: dict[str, CommandSettings[Any]] = {
    "gaze": CommandSettings(GazeSettings()),
    "saliency": CommandSettings(SaliencySettings()),
    "cross-encoder": CommandSettings(CrossEncoderSettings()),
    "gaze-head": CommandSettings(GazeHeadSettings()),
}
NetworkKind = Literal["gaze", "saliency", "cross-encoder", "gaze-head"]


@dataclass(frozen=True)
class _Order:
    """One training of a network."""

    invocation: Invocation
    dataset: Path
    target: Path
    settings: Any
    base: Path | None
    training: TrainingOptions

    @property
    def despite_findings(self) -> bool:
        return self.training.despite_findings


@command(
    app,
    "network",
    "train network gaze eyes/ -o gaze.safetensors",
    "train network gaze eyes/ --base gaze.safetensors --set persons=p07 --set epochs=30",
    "train network gaze eyes/ -o big.safetensors --set architecture=gaze-resnet18",
    "train network saliency clips/ -o p01.safetensors --set persons=P01",
    "train network cross-encoder eyes/ -o encoder.safetensors --set epochs=60",
    "train network gaze-head eyes/ --base encoder.safetensors --set persons=p07 --set shots=20",
)
def network(
    invocation: Invocation,
    kind: Annotated[NetworkKind, Argument("The kind of network.")],
    dataset: Annotated[
        Path,
        Argument(
            "A folder with gaze.csv, its table, or the folder of MPIIGaze, MPIIFaceGaze "
            "(normalised), GazeCapture, NVGaze or LPW; of saliency networks, a folder with "
            "clips.csv, or as EGTEA Gaze+ or Ego4D has it.",
            "DATA",
        ),
    ],
    *,
    training: TrainingOptions,
    base: Annotated[
        str, Option("gaze: the network to go on from. gaze-head: the encoder.", "FILE|ADDRESS")
    ] = "",
    settings: SettingsOptions,
) -> Reply:
    """Train a network and write it as a safetensors file.

    gaze finds the gaze in eye patches, faces or near-eye pictures; saliency, where a person looks
    in clips of a head-mounted camera; cross-encoder represents gaze, without labels, from frames
    with both eyes; gaze-head makes a gaze network of a cross-encoder from few labelled samples,
    best of one's own person.
    'poolctl settings train network KIND' explains all settings.

    A fifth of each person's sessions is held out: the network of their smallest error is kept
    ('poolctl evaluate --sessions held-out' measures on the same ones), and compared with baselines
    that know no picture. Run an interrupted training again to go on after its last epoch. Networks
    of one architecture can be merged.
    """
    chosen = NETWORK_SETTINGS[kind].read(settings)
    name_network(getattr(chosen, "architecture", None))
    if bool(base) < (kind == "gaze-head") or (base and not kind.startswith("gaze")):
        raise UsageError("--base goes with gaze, and with gaze-head, which needs an encoder")
    target = training.target(dataset.resolve().stem)
    start = invocation.model_file(base).path if base else None
    if start is not None:
        refuse_inputs([target], [start], "--output")
    order = _Order(invocation, dataset, target, chosen, start, training)
    return _TRAIN[kind](order)


def _train_gaze(order: _Order) -> Reply:
    from site_agent.training import gaze

    chosen, start, target = order.settings, order.base, order.target
    data = open_gaze_data(order.dataset, gaze.view_of(chosen, start))
    with order.invocation.progress("train gaze") as report:
        result = gaze.train_gaze(
            data, target, chosen, report, base=start, despite_findings=order.despite_findings
        )
    return _describe_result(order.invocation, result)


def open_gaze_data(path: Path, view: View = EYE) -> GazeDataset:
    """Open gaze data that the user named, in a view."""
    if not path.exists():
        raise InputMissingError(f"{path}: no such file; expected gaze data")
    return open_gaze(path).seen_as(view)


def _describe_result(invocation: Invocation, result: TrainingResult) -> Reply:
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
    unit = find_architecture(details["architecture"]).view.target
    if (error := details[unit.named("validation_error_deg")]) is not None:
        text.append(
            f"mean error on {details['validation_images']} samples of held-out sessions: "
            f"{error:.2f} {unit.unit}, after epoch {details['best_epoch']}"
        )
    text.append(f"about it {result.metadata_path}")
    data = {
        "output": result.model_path,
        "metadata_file": result.metadata_path,
        **plain_record(record),
    }
    return Reply(data, text, [str(result.model_path)])


def _train_saliency(order: _Order) -> Reply:
    from site_agent.training.saliency import train_saliency

    if not order.dataset.is_dir():
        raise InputMissingError(f"{order.dataset}: no such folder; expected egocentric clips")
    data = open_egocentric(order.dataset)
    with order.invocation.progress("train saliency") as report:
        result, scores = train_saliency(
            data, order.target, order.settings, report, despite_findings=order.despite_findings
        )
    record = result.record
    text: list[str | TableText] = [
        f"{result.model_path}  ({record.details['architecture']}, "
        f"{count_words(record.data.persons, 'person')}, {record.data.images} frames, "
        f"{count_words(record.details['epochs'], 'epoch')}, {record.duration_s:.0f} s)"
    ]
    if scores is not None:
        text.insert(0, scores.verdict)
        text.append(score_table(scores))
    facts = {"model": result.model_path, "test_scores": record.details["test_scores"]}
    return Reply(facts, text, [str(result.model_path)])


def _train_cross_encoder(order: _Order) -> Reply:
    from site_agent.training.cross_encoder import train_cross_encoder

    data, chosen = open_gaze_data(order.dataset), order.settings
    with order.invocation.progress("train cross-encoder") as report:
        result = train_cross_encoder(
            data, order.target, chosen, report, despite_findings=order.despite_findings
        )
    record = result.record
    losses = record.details["losses"]
    text = [
        f"{result.model_path}  ({record.details['architecture']}, {record.data.images} patches of "
        f"{count_words(record.data.persons, 'person')}, {count_words(len(losses), 'epoch')}, "
        f"{record.duration_s:.0f} s)",
        f"loss {losses[0]:.3f} in the first epoch, {losses[-1]:.3f} in the last",
    ]
    facts = {"output": result.model_path, **plain_record(record)}
    return Reply(facts, text, [str(result.model_path)])


def _train_gaze_head(order: _Order) -> Reply:
    from site_agent.training.cross_encoder import gaze_head as heads

    data, chosen, base = open_gaze_data(order.dataset), order.settings, order.base
    assert base is not None
    with order.invocation.progress("train gaze-head") as report:
        result = heads.train_gaze_head(
            data, base, order.target, chosen, report, despite_findings=order.despite_findings
        )
    record = result.record
    errors = record.details["test_errors_deg"]
    text: list[str | TableText] = [
        f"{result.model_path}  ({record.details['architecture']}, {record.data.images} shots of "
        f"{count_words(record.data.persons, 'person')})"
    ]
    if errors:
        text.insert(0, heads.verdict_on_heads(errors))
        rows = [[name, f"{error:.2f}"] for name, error in errors.items()]
        text.append(TableText(["head on", "mean error"], rows))
        text.append(f"degrees, on {record.details['test_images']} samples of held-out sessions")
    else:
        order.invocation.warn("no person has two sessions: the head was not tested")
    facts = {"output": result.model_path, **plain_record(record)}
    return Reply(facts, text, [str(result.model_path)])


_TRAIN: dict[str, Callable[[_Order], Reply]] = {
    "gaze": _train_gaze,
    "saliency": _train_saliency,
    "cross-encoder": _train_cross_encoder,
    "gaze-head": _train_gaze_head,
}
