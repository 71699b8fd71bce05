"""``poolctl train cross-encoder`` and ``gaze-head``: gaze from few labels."""

from typing import Annotated, Any

from cli.frame.addresses import model_file
from cli.frame.errors import goes_on_when_repeated
from cli.frame.existing_files import refuse_inputs
from cli.frame.options import Option, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import SettingsOptions
from cli.vision import train_gaze
from site_agent.datasets.gaze.records import join_digests, person_digests
from site_agent.plain_json import plain
from site_agent.training.network_settings import CrossEncoderSettings, GazeHeadSettings
from site_agent.wording import count_words

app = single()

CROSS_ENCODER_SETTINGS = SettingsOptions(
    CrossEncoderSettings(),
    "settings train cross-encoder",
    ("architecture", "persons", "epochs", "learning_rate", "seed"),
)
GAZE_HEAD_SETTINGS = SettingsOptions(
    GazeHeadSettings(), "settings train gaze-head", ("persons", "shots", "seed")
)


@command(
    app,
    "cross-encoder",
    "train cross-encoder eyes/ -o encoder.safetensors",
    "train cross-encoder eyes/ -o encoder.safetensors --persons p01,p02 --epochs 60",
    parameters=CROSS_ENCODER_SETTINGS.parameters(),
)
def cross_encoder(
    invocation: Invocation,
    dataset: train_gaze.GazeArgument,
    *,
    training: train_gaze.TrainingOptions,
    **settings: Any,
) -> Reply:
    """Train a network on frames with both eyes to represent gaze, without labels.

    It describes an eye patch by a part that changes with the gaze and one that stays. 'poolctl
    train gaze-head' makes a gaze network of it from few labelled samples. Run an interrupted
    training again to go on. Several sites train one together in rounds: give 'poolctl federated
    init' the same architecture.
    """
    from site_agent.training.cross_encoder import read_frames, train_cross_encoder

    chosen = CROSS_ENCODER_SETTINGS.take(settings)
    data = train_gaze.open_gaze_data(dataset)
    target = training.target(dataset.resolve().stem)

    def digest() -> str:
        return join_digests(person_digests(read_frames(data, chosen)))

    after = training.prepare(invocation, target, plain(chosen), digest)
    with goes_on_when_repeated(), invocation.progress("train cross-encoder") as report:
        result = train_cross_encoder(
            data, target, chosen, report, despite_findings=training.despite_findings
        )
    record = result.record
    losses = record.details["losses"]
    text = [
        f"{result.model_path}  ({record.details['architecture']}, {record.data.images} patches of "
        f"{count_words(record.data.persons, 'person')}, {count_words(len(losses), 'epoch')}, "
        f"{record.duration_s:.0f} s)",
        f"loss {losses[0]:.3f} in the first epoch, {losses[-1]:.3f} in the last",
    ]
    facts = {"output": result.model_path, **train_gaze.plain_record(record)}
    return train_gaze.upload_trained(invocation, result, after, facts, text)


@command(
    app,
    "gaze-head",
    "train gaze-head eyes/ --encoder encoder.safetensors --persons p07 -o p07.safetensors",
    "train gaze-head eyes/ --encoder site-a/encoder --persons p07 --shots 20 -o me.safetensors",
    parameters=GAZE_HEAD_SETTINGS.parameters(),
)
def gaze_head(
    invocation: Invocation,
    dataset: train_gaze.GazeArgument,
    *,
    encoder: Annotated[
        str, Option("As 'train cross-encoder' or rounds made it; not changed.", "FILE|ADDRESS")
    ],
    training: train_gaze.TrainingOptions,
    **settings: Any,
) -> Reply:
    """Make a gaze network of a cross-encoder from few labelled samples, best of one's own person.

    A linear head is fitted to the shots, and tested on held-out sessions against heads on a random
    encoder, on principal components, on the head pose alone, and the mean gaze. The network is a
    gaze network like any other, for 'poolctl evaluate' and 'poolctl predict'.
    """
    from site_agent.training.cross_encoder.gaze_head import (
        read_shots,
        recorded_settings,
        train_gaze_head,
        verdict_on_heads,
    )

    chosen = GAZE_HEAD_SETTINGS.take(settings)
    data = train_gaze.open_gaze_data(dataset)
    target = training.target(dataset.resolve().stem)
    base = model_file(invocation, encoder).path
    refuse_inputs([target], [base], "--output")

    def digest() -> str:
        return join_digests(person_digests(read_shots(data, chosen).labelled))

    after = training.prepare(invocation, target, recorded_settings(chosen, base), digest)
    with invocation.progress("train gaze-head") as report:
        result = train_gaze_head(
            data, base, target, chosen, report, despite_findings=training.despite_findings
        )
    record = result.record
    errors = record.details["test_errors_deg"]
    text: list[str | TableText] = [
        f"{result.model_path}  ({record.details['architecture']}, {record.data.images} shots of "
        f"{count_words(record.data.persons, 'person')})"
    ]
    if errors:
        text.insert(0, verdict_on_heads(errors))
        rows = [[name, f"{error:.2f}"] for name, error in errors.items()]
        text.append(TableText(["head on", "mean error"], rows))
        text.append(f"degrees, on {record.details['test_images']} samples of held-out sessions")
    else:
        invocation.warn("no person has two sessions: the head was not tested")
    facts = {"output": result.model_path, **train_gaze.plain_record(record)}
    return train_gaze.upload_trained(invocation, result, after, facts, text)
