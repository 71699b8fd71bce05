"""``poolctl train saliency``: networks that say where in a clip a person looks."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cli.frame.addresses import count_words
from cli.frame.errors import InputMissingError, goes_on_when_repeated
from cli.frame.options import Argument, command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.settings_options import SettingsOptions
from cli.vision.clips import score_table
from cli.vision.train_gaze import TrainingOptions, upload_trained
from site_agent.datasets.egocentric import open_egocentric
from site_agent.training.saliency import SaliencySettings, train_saliency

app = single()

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

    The network of the best validation score is kept, and scored on the test clips beside maps that
    know no picture: each person's mean, the centre, and the uniform one. Run an interrupted
    training again to go on. 'poolctl dataset synth-egocentric' draws clips to try it with.
    """
    chosen = SALIENCY_SETTINGS.take(settings)
    if not dataset.is_dir():
        raise InputMissingError(f"{dataset}: no such folder; expected egocentric clips")
    data = open_egocentric(dataset)
    target = training.target(dataset.resolve().name)
    recorded = json.loads(json.dumps(asdict(chosen)))
    after = training.prepare(invocation, target, recorded, lambda: data.digest)
    with goes_on_when_repeated(), invocation.progress("train saliency") as report:
        result, scores = train_saliency(data, target, chosen, report)
    record = result.record
    words = [
        f"{result.model_path}  ({record.details['architecture']}, "
        f"{count_words(record.data.persons, 'person')}, {record.data.images} frames, "
        f"{count_words(record.details['epochs'], 'epoch')}, {record.duration_s:.0f} s)"
    ]
    text: list[str | TableText] = list(words)
    if scores is not None:
        text.insert(0, scores.verdict)
        text.append(score_table(scores))
    plain = {"model": result.model_path, "test_scores": record.details["test_scores"]}
    return upload_trained(invocation, result, after, plain, text)
