"""Settings of training networks; importing them does not load torch, which takes seconds."""

from typing import Literal

from pydantic import Field

from site_agent.datasets.gaze.records import HELD_OUT_SHARE
from site_agent.errors import InvalidInputError
from site_agent.settings import Settings

Device = Literal["auto", "cpu", "cuda"]


class GazeSettings(Settings, error=InvalidInputError):
    """Settings of training a gaze network; the learning rate falls to 0 along half a cosine."""

    architecture: str | None = None
    """Of eye patches gaze-lenet, gaze-lenet-wide, gaze-resnet18; of faces gaze-face-resnet18,
    gaze-face-resnet18-448; itracker; of near-eye cameras near-eye, near-eye-pupil; or PACKAGE:CLASS
    of your own. None: that of the base, or gaze-lenet."""
    persons: tuple[str, ...] = ()
    """The persons to train on; empty: all."""
    epochs: int = Field(default=15, ge=1, le=100_000)
    """The largest number of passes over the samples."""
    patience: int = Field(default=5, ge=1, le=100_000)
    """Stop after this many epochs without a smaller validation error."""
    validation: float = Field(default=HELD_OUT_SHARE, ge=0, lt=1)
    """Share of each person's sessions that is held out for validation, below 1. 0: none, and the
    network after the last epoch is kept."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """adam, or sgd with Nesterov's momentum, for which a learning rate of 0.01 suits."""
    learning_rate: float = Field(default=0.001, gt=0, le=10)
    """Of the first epoch."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of sgd, below 1."""
    weight_decay: float = Field(default=0.0, ge=0, lt=1)
    """L2 penalty."""
    batch_size: int = Field(default=64, ge=1, le=65_536)
    """Samples in a step."""
    shift_px: int = Field(default=1, ge=0, le=10)
    """Shift each patch at random by at most this many pixels."""
    light: float = Field(default=0.4, ge=0, lt=1)
    """Change the light of each patch at random: the standard deviation of a gradient from edge to
    middle, in units of the patch's own; 0: none."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Of the first parameters, of the order of samples, of shifts and light."""
    device: Device = "auto"
    """auto is CUDA where there is one, with mixed precision, and the CPU otherwise. Only on the CPU
    equal settings give equal bytes."""
    threads: int = Field(default=0, ge=0, le=256)
    """On the CPU; 0: as many as torch chooses (OMP_NUM_THREADS, or one for each core). The result
    depends on it. With other work on the same cores 1 is fastest."""


class SaliencySettings(Settings, error=InvalidInputError):
    """Settings of training a saliency network; the learning rate falls along half a cosine."""

    architecture: str = "glc-tiny"
    """glc-tiny, glc-small, glc-8 or glc-paper."""
    persons: tuple[str, ...] = ()
    """Those to train on; empty: all."""
    epochs: int = Field(default=20, ge=1, le=100_000)
    """Passes over the training clips; the network with the best validation F1 is kept."""
    learning_rate: float = Field(default=0.001, gt=0, le=10)
    """Of the first epoch, for AdamW."""
    weight_decay: float = 0.05
    """Of AdamW."""
    batch_size: int = Field(default=8, ge=1, le=65_536)
    """Clips in a step."""
    loss: Literal["ce", "kl-reverse"] = "ce"
    """ce, the cross-entropy, or kl-reverse, as GLC trains: with a softmax of temperature 2."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Of the first parameters and of the order of clips."""


class CrossEncoderSettings(Settings, error=InvalidInputError):
    """Settings of training a cross-encoder; the learning rate falls to 0 along half a cosine."""

    architecture: str = "cross-encoder-small"
    """cross-encoder-small or cross-encoder; auto-encoder-small or auto-encoder, which learn to draw
    each patch from its own features, are there to compare."""
    persons: tuple[str, ...] = ()
    """Those to train on; empty: all."""
    epochs: int = Field(default=30, ge=1, le=100_000)
    """Passes over the frames. The last network is kept: no label says which is the best."""
    learning_rate: float = Field(default=0.002, gt=0, le=10)
    """Of the first epoch, for AdamW."""
    weight_decay: float = 0.0
    """Of AdamW."""
    batch_size: int = Field(default=32, ge=4, le=65_536)
    """Patches in a step; four are a pair of frames."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Of the first parameters and of the pairs."""


class GazeHeadSettings(Settings, error=InvalidInputError):
    """Settings of fitting a gaze head."""

    persons: tuple[str, ...] = ()
    """Persons that give the shots; empty: all."""
    shots: int = Field(default=100, ge=0, le=1_000_000)
    """Labelled samples, drawn from the sessions that are not held out; 0: all."""
    validation: float = Field(default=HELD_OUT_SHARE, ge=0, lt=1)
    """Share of each person's sessions that is held out to test the head, below 1; 0: none."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Of the shots, and of the random encoder for comparison."""
