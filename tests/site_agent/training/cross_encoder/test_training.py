"""Cross-encoders: pairs of frames, losses, trainings on drawn eyes, heads and baselines."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from aggregators.formats import write_model
from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import (
    GazeDataset,
    GazeSamples,
    angular_errors_deg,
    both_eyes,
    held_out_sessions,
)
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.errors import InvalidInputError, TrainingDataError
from site_agent.federated.in_process import run_rounds
from site_agent.federated.leak_checks import audit_base
from site_agent.federated.local_training import train_at_site
from site_agent.federated.plan import make_plan
from site_agent.federated.tasks import RepresentationTask, task_of
from site_agent.networks.files import read_network
from site_agent.networks.gaze_modules import EYE_SIZE, GAZE_SIZE, CrossEncoder
from site_agent.networks.modules import new_network, predict_gaze, to_inputs, to_module
from site_agent.training.cross_encoder import train_cross_encoder
from site_agent.training.cross_encoder.baselines import train_on_views, two_layer_error
from site_agent.training.cross_encoder.gaze_head import BASELINES, OWN, train_gaze_head
from site_agent.training.cross_encoder.loop import (
    FrameTensors,
    frames_of,
    pair_frames,
    pairs_loss,
    to_tensors,
)
from site_agent.training.gaze.loop import random_view
from site_agent.training.network_settings import CrossEncoderSettings, GazeHeadSettings
from tests.site_agent.datasets.gaze.made import folder_of, samples_of
from tests.site_agent.federated.small_sites import samples_at


def test_frames_without_both_eyes_are_left_out_whatever_the_order() -> None:
    samples = samples_of(count=24)
    kept = np.delete(np.arange(24), [3, 10])
    shuffled = samples[np.random.default_rng(0).permutation(kept)]
    pairs = both_eyes(shuffled)
    assert len(pairs) == 20
    assert pairs.eye.tolist() == ["left", "right"] * 10
    for name in ("person", "session", "frame"):
        values = getattr(pairs, name)
        np.testing.assert_array_equal(values[0::2], values[1::2])
    assert not {1, 5} & set(pairs.frame.tolist())
    assert len(both_eyes(samples[::2])) == 0


def test_right_eyes_are_turned_back_to_how_the_camera_saw_them() -> None:
    samples = samples_of(count=4)
    tensors = to_tensors(samples)
    left, right = both_eyes(samples)[0::2], both_eyes(samples)[1::2]
    assert len(tensors) == 4
    assert tensors.patches.shape == (4, 1, 36, 60)
    for place, patch in enumerate([*left.patches, *right.patches[:, :, ::-1]]):
        scaled = (patch - patch.mean()) / patch.std()
        np.testing.assert_allclose(tensors.patches[place, 0].numpy(), scaled, atol=1e-4)


def test_each_frame_is_in_one_pair_of_its_session() -> None:
    samples = GazeSamples.join([samples_of("a", 26, 1), samples_of("b", 20, 2)])
    session = to_tensors(samples).session
    pairs = pair_frames(session, torch.Generator().manual_seed(3))
    assert torch.equal(session[pairs[:, 0]], session[pairs[:, 1]])
    used = pairs.flatten().tolist()
    assert len(set(used)) == len(used)
    counts = torch.bincount(session)
    assert len(used) == int((counts - counts % 2).sum())
    again = pair_frames(session, torch.Generator().manual_seed(3))
    assert torch.equal(pairs, again)


class _Named(CrossEncoder):
    """Describes each patch by its own number, and notes which numbers draw a patch."""

    def __init__(self) -> None:
        super().__init__(nn.Identity(), nn.Identity())
        self.drawn: list[tuple[int, int]] = []

    def encode(self, patches: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        number = patches[:, 0, 0, 0][:, None]
        return number.repeat(1, GAZE_SIZE), number.repeat(1, EYE_SIZE)

    def decode(self, gaze: torch.Tensor, eye: torch.Tensor) -> torch.Tensor:
        self.drawn = list(zip(gaze[:, 0].int().tolist(), eye[:, 0].int().tolist(), strict=True))
        return torch.zeros(len(gaze), 1, 36, 60)


def test_half_of_the_pairs_change_eye_features_and_half_gaze_features() -> None:
    patches = torch.arange(16.0).reshape(4, 2, 2, 1, 1).expand(4, 2, 2, 36, 60)
    module = _Named()
    pairs_loss(module, patches)
    # Pairs 0 and 1: the eye feature is of the same eye in the other frame.
    # Pairs 2 and 3: the gaze feature is of the other eye in the same frame.
    assert module.drawn == [
        (0, 2), (1, 3), (2, 0), (3, 1), (4, 6), (5, 7), (6, 4), (7, 5),
        (9, 8), (8, 9), (11, 10), (10, 11), (13, 12), (12, 13), (15, 14), (14, 15),
    ]  # fmt: skip
    pairs_loss(module, patches, crossed=False)
    assert module.drawn == [(number, number) for number in range(16)]


def test_the_loss_is_that_of_the_paper() -> None:
    patches = torch.randn(6, 2, 2, 36, 60)
    loss = float(pairs_loss(_Named(), patches))
    x = patches.numpy()
    frames, eyes = x[:, 0] - x[:, 1], x[:, :, 0] - x[:, :, 1]
    expected = np.abs(x).mean() + np.abs(frames).mean() + 0.5 * np.abs(eyes).mean()
    assert loss == pytest.approx(expected, rel=1e-5)


def test_features_of_gaze_are_four_vectors_of_length_1() -> None:
    module = to_module(new_network("cross-encoder-small"))
    assert isinstance(module, CrossEncoder)
    data = to_tensors(samples_of(count=8))
    patches = frames_of(data, torch.tensor([[0, 2]]))
    assert patches.shape == (1, 2, 2, 36, 60)
    assert torch.equal(patches[0, 1, 1], data.patches[4 + 2, 0])
    gaze, eye = module.encode(data.patches)
    assert gaze.shape == (8, 12)
    assert eye.shape == (8, 32)
    lengths = gaze.reshape(8, 4, 3).norm(dim=2)
    assert torch.allclose(lengths, torch.ones(8, 4), atol=1e-5)
    assert module(data.patches).shape == (8, 1, 36, 60)


def test_a_head_of_two_layers_reads_directions() -> None:
    draw = np.random.default_rng(0)
    gaze, test = (draw.normal(size=(count, 2)) * 0.2 for count in (100, 50))
    mixed = draw.normal(size=(2, 6))
    read = two_layer_error(gaze @ mixed, gaze, test @ mixed, test, steps=300, seed=0)
    blind = two_layer_error(np.zeros((100, 6)), gaze, np.zeros((50, 6)), test, steps=300, seed=0)
    assert read < 3
    assert blind > 8


@pytest.mark.parametrize("method", ["simclr", "byol"])
def test_views_of_one_patch_become_alike(method: Literal["simclr", "byol"]) -> None:
    patches = to_inputs(samples_at(0, 16).patches)
    data = FrameTensors(patches, torch.zeros(8, dtype=torch.int64))

    def likeness(encoder: torch.nn.Module) -> float:
        assert isinstance(encoder, CrossEncoder)
        generator = torch.Generator().manual_seed(1)
        with torch.inference_mode():
            views = [
                encoder.eval().encode(random_view(patches, 3, 0.6, generator))[0] for _ in range(2)
            ]
        alike = functional.cosine_similarity(views[0][:, None], views[1][None], dim=2)
        return float(alike.diagonal().mean() - alike.mean())

    network = to_module(new_network("cross-encoder-small", 0))
    assert isinstance(network, CrossEncoder)
    before = likeness(network)
    trained = train_on_views(
        network, method, data, epochs=8, batch_size=16, learning_rate=0.003, seed=0
    )
    assert likeness(trained) > before


TASK = RepresentationTask()

PERSONS = ("p00", "p01", "p02")


@pytest.fixture(scope="module")
def eyes() -> dict[str, GazeSamples]:
    settings = RenderSettings(
        persons=3, frames_per_person=40, sessions=(3, 3), both_eyes=True, skews=Skews(amount=1)
    )
    return {f"p{number:02d}": render_person(settings, number) for number in range(3)}


@pytest.fixture(scope="module")
def dataset(eyes: dict[str, GazeSamples], tmp_path_factory: pytest.TempPathFactory) -> GazeDataset:
    return open_gaze(folder_of(tmp_path_factory.mktemp("eyes"), *eyes.values()))


@pytest.fixture(scope="module")
def encoder(dataset: GazeDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encoder") / "encoder.safetensors"
    settings = CrossEncoderSettings(epochs=3, batch_size=16, persons=PERSONS[:2])
    result = train_cross_encoder(dataset, path, settings)
    losses = result.record.details["losses"]
    assert losses[-1] < losses[0]
    return path


def test_a_gaze_head_leaves_its_encoder_as_it_is_and_is_a_gaze_network(
    dataset: GazeDataset, encoder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mine.safetensors"
    settings = GazeHeadSettings(persons=("p02",), shots=20)
    record = train_gaze_head(dataset, encoder, path, settings).record
    before, after = read_network(encoder), read_network(path)
    for name in after.infos:
        if name.startswith("encoder."):
            np.testing.assert_array_equal(after.tensors[name], before.tensors[name])
    errors = record.details["test_errors_deg"]
    assert list(errors) == [OWN, *BASELINES]
    samples = dataset.read(["p02"])
    test = samples[held_out_sessions(samples)]
    angles = predict_gaze(to_module(after), test.patches, test.head)
    measured = float(angular_errors_deg(angles, test.gaze).mean())
    assert measured == pytest.approx(errors[OWN], abs=1e-3)
    assert record.data.images == 20
    # Those whom the encoder knows, and the person of the shots.
    assert len(record.details["person_digests"]) == 3


def test_what_cannot_be_trained_is_refused_by_name(
    dataset: GazeDataset, encoder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "network.safetensors"
    lenet = tmp_path / "lenet.safetensors"
    write_model(new_network("gaze-lenet"), lenet)
    with pytest.raises(InvalidInputError, match="gaze-lenet is a gaze network; expected one of cr"):
        train_gaze_head(dataset, lenet, output)
    with pytest.raises(InvalidInputError, match="architecture: gaze-lenet is a gaze network"):
        train_cross_encoder(dataset, output, CrossEncoderSettings(architecture="gaze-lenet"))
    with pytest.raises(
        TrainingDataError, match="expected at least 500 shots; lower it with --set shots"
    ):
        train_gaze_head(dataset, encoder, output, GazeHeadSettings(shots=500))
    both, one = samples_of("both", 12), samples_of("one", 12)[::2]
    lacking = open_gaze(folder_of(tmp_path / "lacking", both, one))
    with pytest.raises(InvalidInputError, match="no session of one has two frames with both eyes"):
        train_cross_encoder(lacking, output)
    with pytest.raises(InvalidInputError, match="no session of one has two frames with both eyes"):
        TASK.read(lacking)
    assert len(TASK.read(lacking, ["both"])) == 12
    private = LocalTraining(dp_epsilon=1.0)
    with pytest.raises(InvalidInputError, match="dp_epsilon: cross-encoder-small is a represent"):
        train_at_site(
            new_network("cross-encoder-small"), "0" * 64, both, private, site="a", round_number=1
        )
    assert not output.exists()


@pytest.mark.slow
def test_rounds_train_encoders_that_sites_accept_again(eyes: dict[str, GazeSamples]) -> None:
    base = new_network("cross-encoder-small", 1)
    plan = make_plan("fedavg", {"batch_size": 8, "epochs": 2}, rounds=2)
    assert task_of("cross-encoder-small") == TASK
    assert task_of("auto-encoder-small") == RepresentationTask(crossed=False)
    held = [*run_rounds(base, eyes, plan)][-1].model
    backwards = [*run_rounds(base, dict(reversed(eyes.items())), plan)][-1].model
    assert held.digest == backwards.digest
    assert isinstance(held.network, StateDict)
    for samples in eyes.values():
        assert audit_base(held.network, samples) == []
    everyone = GazeSamples.join(list(eyes.values()))
    before, after = (
        TASK.score_home(to_module(network), everyone, everyone) for network in (base, held.network)
    )
    assert 0 <= before < after < 1
    scores = TASK.score_persons(to_module(held.network), everyone)
    assert set(scores) == set(PERSONS)


def test_a_base_whose_features_sort_samples_is_refused(eyes: dict[str, GazeSamples]) -> None:
    base = new_network("cross-encoder-small", 1)
    for layer, units in (("encoder.fc", 44), ("decoder.fc", 1280)):
        weight = base.tensors[f"{layer}.weight"].copy()
        weight[:] = weight[0]
        camera = StateDict({**base.tensors, f"{layer}.weight": weight}, base.infos, base.metadata)
        audit = audit_base(camera, eyes["p00"])
        assert f"{units} of the {units} units of {layer} measure the same" in audit[0]


def test_of_sessions_with_one_frame_nothing_is_learned() -> None:
    samples = samples_of(count=4)
    module = to_module(new_network("cross-encoder-small"))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    with pytest.raises(TrainingDataError, match="no session has two frames with both eyes"):
        TASK.train_epoch(module, optimiser, TASK.to_tensors(samples), 8, torch.Generator())


def test_a_simulation_holds_out_whole_frames(dataset: GazeDataset) -> None:
    division = TASK.divide(dataset.path, "persons", 0, lambda _share, _words: None)
    assert division.held_out is not None
    assert division.reference is not None
    names = set(division.held_out.person.tolist())
    assert (
        set(division.counts)
        == set(PERSONS) - names
        == set(PERSONS) - set(division.reference.by_person)
    )
    training, home = TASK.split_home(dataset.read(["p00"]))
    assert (len(training), len(home)) == (64, 16)
    assert home.eye.tolist() == ["left", "right"] * 8
