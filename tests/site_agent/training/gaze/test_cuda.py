"""Training on a GPU: every architecture learns there, and goes on after an interruption."""

from pathlib import Path

import pytest
import torch

from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, write_eye_dataset
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.networks.architectures import GAZE_ARCHITECTURES
from site_agent.training.gaze import train_gaze
from site_agent.training.network_settings import GazeSettings


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
@pytest.mark.parametrize("architecture", GAZE_ARCHITECTURES)
def test_a_network_is_trained_on_cuda(architecture: str, tmp_path: Path) -> None:
    table, _ = write_eye_dataset(
        tmp_path / "eyes", RenderSettings(3, 60, (2, 3), skews=Skews(amount=1.0))
    )
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
