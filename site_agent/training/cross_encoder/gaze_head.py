"""A gaze head from few labelled shots, on an encoder that stays as it is.

The head is linear (`site_agent.evaluation.gaze`) and is written together with the encoder as a
gaze network, which is evaluated and run as any other. It is meant for one's own person: a minute of
looking at known points gives the shots.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aggregators.formats import file_digest
from aggregators.models import StateDict
from site_agent.datasets.gaze import records as gaze
from site_agent.datasets.soundness import require_sound
from site_agent.errors import TrainingDataError
from site_agent.evaluation.gaze import draw_shots, few_shot_error, find_components, fit_head
from site_agent.networks import modules
from site_agent.networks.architectures import require_kind
from site_agent.networks.files import read_network
from site_agent.training.network_settings import GazeHeadSettings
from site_agent.training.overlap import training_records
from site_agent.training_record import DataSummary, TrainingResult, begin_training
from site_agent.work import Progress, no_progress

Float64 = NDArray[np.float64]
OWN = "this encoder"
BASELINES = ("random encoder", "PCA-12", "head pose only", "mean gaze")
_COMPONENTS = 12


@dataclass(frozen=True, eq=False)
class Shots:
    """The samples to which a head is fitted, and those on which it is tested."""

    labelled: gaze.GazeSamples
    offered: gaze.GazeSamples
    test: gaze.GazeSamples
    """The shots; the samples they were drawn from, without their labels; and the held-out
    sessions."""
    digests: Mapping[str, str]
    """Digest of all samples of each person."""


def read_shots(dataset: gaze.GazeDataset, settings: GazeHeadSettings) -> Shots:
    """Read the samples of persons, hold sessions out, and draw the shots from the others.

    Raises `TrainingDataError`: there are fewer samples than shots. `InvalidInputError`: a person
    that the data set does not have. `AnnotationFileError`: a file is damaged or missing.
    """
    samples = dataset.read(settings.persons or None)
    held = gaze.held_out_sessions(samples, settings.validation)
    offered = samples[~held]
    count = settings.shots or len(offered)
    if len(offered) < max(1, count):
        problem = (
            f"has {len(offered)} samples outside the held-out sessions, expected at least "
            f"{max(1, count)} shots; lower it with --set shots=N"
        )
        raise TrainingDataError(dataset.path, problem)
    drawn = draw_shots(len(offered), count, settings.seed)
    return Shots(offered[np.sort(drawn)], offered, samples[held], gaze.person_digests(samples))


def train_gaze_head(
    dataset: gaze.GazeDataset,
    encoder: Path | str,
    output: Path | str,
    settings: GazeHeadSettings = GazeHeadSettings(),
    progress: Progress = no_progress,
    *,
    despite_findings: bool = False,
) -> TrainingResult:
    """Fit a gaze head to few shots, and write encoder and head as one gaze network.

    ``details["test_errors_deg"]`` of the record has the mean angle in degrees on the held-out
    sessions, with heads on other features of the same shots; it is empty where nothing is held
    out.

    Raises `TrainingDataError`, `AnnotationFileError`: as `read_shots`. `InvalidInputError`: as
    `read_shots`; or the encoder is of another kind of network. `TrainingFailedError`: the output
    cannot be written.
    """
    encoder, output = Path(encoder), Path(output)
    sound = require_sound(
        dataset, persons=settings.persons, despite_findings=despite_findings, progress=progress
    )
    begun = begin_training(output, sound.details)
    network = read_network(encoder)
    module = modules.to_module(network, str(encoder))
    architecture = network.metadata["architecture"]
    require_kind(architecture, "representation", str(encoder))
    progress(0.1, "read patches")
    shots = read_shots(dataset, settings)
    progress(0.5, "fit heads")
    headed = add_head(network, module, shots.labelled)
    errors = score_heads(module, architecture, shots, settings.seed) if len(shots.test) else {}
    marks, digests = set(gaze.sample_marks(shots.labelled.patches)), set(shots.digests.values())
    # The new network keeps the knowledge of the encoder.
    for _, before in training_records(encoder):
        marks.update(before["data"]["image_marks"])
        digests.update(before["details"].get("person_digests", ()))
    data = DataSummary(
        digest=gaze.join_digests(gaze.person_digests(shots.labelled)),
        images=len(shots.labelled),
        persons=len(np.unique(shots.labelled.person)),
        image_marks=tuple(sorted(marks)),
    )
    details = {
        "architecture": headed.metadata["architecture"],
        "person_digests": sorted(digests),
        "test_images": len(shots.test),
        "test_errors_deg": errors,
    }
    return begun.publish_network(headed, data, recorded_settings(settings, encoder), details)


def recorded_settings(settings: GazeHeadSettings, encoder: Path | str) -> dict[str, Any]:
    """Return the settings as the metadata file has them, with the encoder's digest."""
    plain: dict[str, Any] = json.loads(json.dumps(asdict(settings)))
    return plain | {"encoder_digest": file_digest(encoder)}


def add_head(network: StateDict, module: nn.Module, shots: gaze.GazeSamples) -> StateDict:
    """Return the gaze network of an encoder, with a head that is fitted to shots."""
    small = network.metadata["architecture"].endswith("-small")
    name = "cross-encoder-small-gaze" if small else "cross-encoder-gaze"
    # The first parameters are replaced, all of them.
    headed = modules.to_module(modules.new_network(name))
    head = fit_head(encoder_features(module)(shots), shots.gaze, shots.session)
    values = {
        **{
            name: tensor
            for name, tensor in module.state_dict().items()
            if name.startswith("encoder.")
        },
        "head.weight": _tensor(head.weight),
        "head.bias": _tensor(head.bias),
    }
    headed.load_state_dict(values)
    return modules.from_module(headed, name)


def score_heads(
    module: nn.Module, architecture: str, shots: Shots, seed: int
) -> Mapping[str, float]:
    """Return the error on the test samples, in degrees, of heads on several features.

    The random encoder has the same layers; PCA-12 sees all patches that were offered, as an encoder
    could.
    """
    features = {
        OWN: encoder_features(module),
        BASELINES[0]: encoder_features(modules.to_module(modules.new_network(architecture, seed))),
        BASELINES[1]: component_features(shots.offered),
        BASELINES[2]: head_features,
        BASELINES[3]: no_features,
    }
    labelled, test = shots.labelled, shots.test
    return {
        name: round(
            few_shot_error(
                describe(labelled), labelled.gaze, describe(test), test.gaze, labelled.session
            ),
            6,
        )
        for name, describe in features.items()
    }


def verdict_on_heads(errors: Mapping[str, float]) -> str:
    """Tell whether the head is better than all baselines."""
    others = {name: error for name, error in errors.items() if name != OWN}
    best = min(others, key=lambda name: others[name])
    return (
        f"{errors[OWN]:.2f} degrees, {'better' if errors[OWN] < others[best] else 'no better'} "
        f"than {best} ({others[best]:.2f})"
    )


Features = Callable[[gaze.GazeSamples], Float64]
"""Describes samples by float64 (n, features)."""


def encoder_features(module: nn.Module) -> Features:
    """Return the gaze features of an encoder, with the head angles."""
    return lambda eyes: np.concatenate(
        [modules.encode_gaze(module, eyes.patches), eyes.head], axis=1
    )


def component_features(everyone: gaze.GazeSamples) -> Features:
    """Return the 12 principal components of patches, with the head angles."""
    components = find_components(_pixels(everyone), _COMPONENTS)
    return lambda eyes: np.concatenate([components(_pixels(eyes)), eyes.head], axis=1)


def head_features(samples: gaze.GazeSamples) -> Float64:
    """Return the head angles only."""
    return samples.head


def no_features(samples: gaze.GazeSamples) -> Float64:
    """Return nothing: the head answers the mean gaze."""
    return np.empty((len(samples), 0))


def _pixels(samples: gaze.GazeSamples) -> Float64:
    return modules.to_inputs(samples.patches).flatten(1).numpy().astype(np.float64)


def _tensor(values: Float64) -> Any:
    return torch.from_numpy(values.astype(np.float32))
