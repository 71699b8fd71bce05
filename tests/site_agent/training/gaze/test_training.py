"""Training gaze networks: held-out samples, when it stops, going on, and GPUs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from aggregators.formats import file_digest, write_model
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import GazeDataset, gaze_digest
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, write_eye_dataset
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.errors import InvalidInputError, TrainingDataError, TrainingFailedError
from site_agent.networks.architectures import GAZE_ARCHITECTURES
from site_agent.networks.files import read_network
from site_agent.networks.modules import new_network
from site_agent.training.gaze import train_gaze
from site_agent.training.gaze.loop import checkpoint_path
from site_agent.training.network_settings import GazeSettings
from site_agent.training_record import TrainingResult, read_training_metadata

SHORT = GazeSettings(epochs=3, threads=1, device="cpu", batch_size=16)


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> GazeDataset:
    settings = RenderSettings(3, 30, (2, 3), skews=Skews(amount=1.0))
    table = write_eye_dataset(tmp_path_factory.mktemp("eyes"), settings).path
    return open_gaze(table)


@pytest.fixture(scope="module")
def trained(eyes: GazeDataset, tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return train_gaze(eyes, tmp_path_factory.mktemp("trained") / "a.safetensors", SHORT)


def test_the_record_says_what_was_trained_on(eyes: GazeDataset, trained: TrainingResult) -> None:
    record = read_training_metadata(trained.model_path)
    assert record is not None
    assert record["data"]["digest"] == gaze_digest(eyes)
    details = record["details"]
    assert record["data"]["images"] + details["validation_images"] == 90
    assert len(record["data"]["image_marks"]) == record["data"]["images"]
    assert record["suggested_labels"] == {"images": str(record["data"]["images"]), "subjects": "3"}
    held = [name.split("/") for name in details["validation_sessions"]]
    assert {person for person, _ in held} == {"p00", "p01", "p02"}
    losses = details["losses"]
    assert losses[-1] < losses[0]
    assert details["validation_error_deg"] == min(details["validation_errors_deg"])
    assert not checkpoint_path(trained.model_path).exists()


def test_an_interrupted_training_goes_on_to_the_same_network(
    eyes: GazeDataset, trained: TrainingResult, tmp_path: Path
) -> None:
    output = tmp_path / "a.safetensors"

    def stop_in_epoch(number: int) -> None:
        def progress(share: float | None, text: str) -> None:
            if f"epoch {number} of" in text and (share or 0) > (number - 0.5) / SHORT.epochs:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train_gaze(eyes, output, SHORT, progress)

    stop_in_epoch(2)
    assert checkpoint_path(output).exists()
    assert not output.exists()
    stop_in_epoch(3)
    result = train_gaze(eyes, output, SHORT)
    assert result.record.details["resumed_at_epoch"] == 2
    assert output.read_bytes() == trained.model_path.read_bytes()


def test_a_state_of_other_settings_is_not_used(
    eyes: GazeDataset, trained: TrainingResult, tmp_path: Path
) -> None:
    output = tmp_path / "a.safetensors"

    def progress(_share: float | None, text: str) -> None:
        if "epoch 2 of" in text:
            raise KeyboardInterrupt

    other = GazeSettings(epochs=3, threads=1, device="cpu", batch_size=16, seed=1)
    with pytest.raises(KeyboardInterrupt):
        train_gaze(eyes, output, other, progress)
    result = train_gaze(eyes, output, SHORT)
    assert result.record.details["resumed_at_epoch"] == 0
    assert output.read_bytes() == trained.model_path.read_bytes()


def test_it_stops_early_and_keeps_the_best_network(eyes: GazeDataset, tmp_path: Path) -> None:
    settings = GazeSettings(
        epochs=50, patience=2, threads=1, device="cpu", learning_rate=0.005, shift_px=0
    )
    details = train_gaze(eyes, tmp_path / "a.safetensors", settings).record.details
    assert details["epochs"] == details["best_epoch"] + 2 < 50
    assert details["epochs"] == len(details["validation_errors_deg"])


def test_a_training_goes_on_from_a_base(eyes: GazeDataset, tmp_path: Path) -> None:
    base, output = tmp_path / "base.safetensors", tmp_path / "a.safetensors"
    write_model(new_network("gaze-lenet-wide", seed=5), base)
    settings = GazeSettings(
        epochs=1, threads=1, device="cpu", optimiser="sgd", learning_rate=1e-9, persons=("p01",)
    )
    result = train_gaze(eyes, output, settings, base=base)
    assert result.record.data.persons == 1
    assert result.record.settings["base_digest"] == file_digest(base)
    first, after = read_network(base), read_network(output)
    assert after.metadata["architecture"] == "gaze-lenet-wide"
    for name in first.infos:
        np.testing.assert_allclose(after.tensors[name], first.tensors[name], atol=1e-6)
    assert len(result.record.details["person_digests"]) == 1
    further = tmp_path / "b.safetensors"
    other = replace(settings, persons=("p02",))
    after_both = train_gaze(eyes, further, other, base=output).record
    assert len(after_both.details["person_digests"]) == 2, "the base's persons are known, too"
    assert set(result.record.data.image_marks) < set(after_both.data.image_marks)
    with pytest.raises(InvalidInputError, match="found gaze-lenet-wide, expected gaze-lenet"):
        train_gaze(eyes, output, GazeSettings(architecture="gaze-lenet"), base=base)


def test_what_cannot_be_trained_is_refused(eyes: GazeDataset, tmp_path: Path) -> None:
    output = tmp_path / "a.safetensors"
    with pytest.raises(InvalidInputError, match="has no person p77"):
        train_gaze(eyes, output, GazeSettings(persons=("p77",)))
    wild = GazeSettings(optimiser="sgd", learning_rate=10, device="cpu", threads=1)
    with pytest.raises(TrainingFailedError, match="lower the learning rate"):
        train_gaze(eyes, output, wild)
    settings = RenderSettings(1, 2, (2, 2), skews=Skews(amount=1.0))
    table = write_eye_dataset(tmp_path / "few", settings).path
    with pytest.raises(TrainingDataError, match="has 1 samples to train on"):
        train_gaze(open_gaze(table), output)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize("architecture", GAZE_ARCHITECTURES)
def test_a_network_is_trained_on_cuda(architecture: str, tmp_path: Path) -> None:
    drawing = RenderSettings(3, 60, (2, 3), skews=Skews(amount=1.0))
    table = write_eye_dataset(tmp_path / "eyes", drawing).path
    settings = GazeSettings(architecture=architecture, epochs=6, device="cuda", batch_size=16)

    def progress(_share: float | None, text: str) -> None:
        if "epoch 4 of" in text:
            raise KeyboardInterrupt

    output = tmp_path / "a.safetensors"
    with pytest.raises(KeyboardInterrupt):
        train_gaze(open_gaze(table), output, settings, progress)
    details = train_gaze(open_gaze(table), output, settings).record.details
    assert (details["device"], details["resumed_at_epoch"]) == ("cuda", 3)
    assert details["losses"][-1] < details["losses"][0]
