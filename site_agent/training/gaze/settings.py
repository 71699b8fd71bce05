"""How a gaze network is trained."""

from typing import Literal

from pydantic import Field

from site_agent.datasets.gaze.records import HELD_OUT_SHARE
from site_agent.errors import TrainingSettingsError
from site_agent.settings import Settings

Device = Literal["auto", "cpu", "cuda"]


class GazeSettings(Settings, error=TrainingSettingsError):
    """How a gaze network is trained; the learning rate falls to 0 along half a cosine."""

    architecture: str | None = Field(
        default=None,
        description="gaze-lenet, gaze-lenet-wide or gaze-resnet18. None: that of the base, or "
        "gaze-lenet.",
    )
    persons: tuple[str, ...] = Field(default=(), description="The persons to train on; empty: all.")
    epochs: int = Field(
        default=15, ge=1, le=100_000, description="The largest number of passes over the samples."
    )
    patience: int = Field(
        default=5,
        ge=1,
        le=100_000,
        description="Stop after so many epochs without a smaller validation error.",
    )
    validation: float = Field(
        default=HELD_OUT_SHARE,
        ge=0,
        lt=1,
        description="Share of each person's sessions that is held out for validation, below 1. "
        "0: none, and the network after the last epoch is kept.",
    )
    optimiser: Literal["adam", "sgd"] = Field(
        default="adam",
        description="adam, or sgd with Nesterov's momentum, for which a learning rate of 0.01 "
        "suits.",
    )
    learning_rate: float = Field(default=0.001, gt=0, le=10, description="Of the first epoch.")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="Of sgd, below 1.")
    weight_decay: float = Field(default=0.0, ge=0, lt=1, description="L2 penalty.")
    batch_size: int = Field(default=64, ge=1, le=65_536, description="Samples in a step.")
    shift_px: int = Field(
        default=1, ge=0, le=10, description="Shift each patch at random by up to so many pixels."
    )
    light: float = Field(
        default=0.4,
        ge=0,
        lt=1,
        description="Change the light of each patch at random: the standard deviation of a "
        "gradient from edge to middle, in units of the patch's own; 0: none.",
    )
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**63,
        description="Of the first parameters, of the order of samples, of shifts and light.",
    )
    device: Device = Field(
        default="auto",
        description="auto is CUDA where there is one, with mixed precision, and the CPU "
        "otherwise. Only on the CPU equal settings give equal bytes.",
    )
    threads: int = Field(
        default=0,
        ge=0,
        le=256,
        description="On the CPU; 0: as many as torch chooses (OMP_NUM_THREADS, or one for each "
        "core). The result depends on it. With other work on the same cores 1 is "
        "fastest.",
    )
