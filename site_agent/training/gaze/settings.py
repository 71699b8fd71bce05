"""How a gaze network is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from site_agent.datasets.gaze.records import HELD_OUT_SHARE
from site_agent.errors import TrainingSettingsError
from site_agent.training.settings import require_number, require_whole

Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True)
class GazeSettings:
    """How a gaze network is trained; the learning rate falls to 0 along half a cosine.

    Attributes
    ----------
    architecture : str or None
        gaze-lenet, gaze-lenet-wide or gaze-resnet18. None: that of the base, or gaze-lenet.
    persons : tuple of str
        The persons to train on; empty: all.
    epochs : int
        The largest number of passes over the samples.
    patience : int
        Stop after so many epochs without a smaller validation error.
    validation : float
        Share of each person's sessions that is held out for validation, below 1. 0: none, and
        the network after the last epoch is kept.
    optimiser : str
        adam, or sgd with Nesterov's momentum, for which a learning rate of 0.01 suits.
    learning_rate : float
        Of the first epoch.
    momentum : float
        Of sgd, below 1.
    weight_decay : float
        L2 penalty.
    batch_size : int
        Samples in a step.
    shift_px : int
        Shift each patch at random by up to so many pixels.
    light : float
        Change the light of each patch at random: the standard deviation of a gradient from edge
        to middle, in units of the patch's own; 0: none.
    seed : int
        Of the first parameters, of the order of samples, of shifts and light.
    device : str
        auto is CUDA where there is one, with mixed precision, and the CPU otherwise. Only on the
        CPU equal settings give equal bytes.
    threads : int
        On the CPU; 0: as many as torch chooses (OMP_NUM_THREADS, or one for each core). The result
        depends on it. With other work on the same cores 1 is fastest.
    """

    architecture: str | None = None
    persons: tuple[str, ...] = ()
    epochs: int = 15
    patience: int = 5
    validation: float = HELD_OUT_SHARE
    optimiser: Literal["adam", "sgd"] = "adam"
    learning_rate: float = 0.001
    momentum: float = 0.9
    weight_decay: float = 0.0
    batch_size: int = 64
    shift_px: int = 1
    light: float = 0.4
    seed: int = 0
    device: Device = "auto"
    threads: int = 0

    def __post_init__(self) -> None:
        require_whole("epochs", self.epochs, 1, 100_000)
        require_whole("patience", self.patience, 1, 100_000)
        require_whole("batch_size", self.batch_size, 1, 65_536)
        require_whole("shift_px", self.shift_px, 0, 10)
        require_whole("seed", self.seed, 0, 2**63 - 1)
        require_whole("threads", self.threads, 0, 256)
        require_number("learning_rate", self.learning_rate, above=0, most=10)
        for name, value in (
            ("validation", self.validation),
            ("momentum", self.momentum),
            ("light", self.light),
            ("weight_decay", self.weight_decay),
        ):
            if not 0 <= value < 1:
                raise TrainingSettingsError(name, value, "a number from 0 to below 1")
