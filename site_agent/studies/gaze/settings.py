"""Settings of a gaze study: its size, its protocols, and how each method trains.

``paper`` has the values that the paper states; eta, which it does not state, is such that its
order is found: at its learning rate the adaptive method has half the error of FedAvg (8.5 and 16.0
degrees on drawn eyes after 12 rounds). That needs a tau far below the updates.

``tuned`` has the best of `CANDIDATES`, equally many for each method, on drawn persons, starts and
splits of other seeds than the study's, as this finds them::

    poolctl study gaze-tuning --drawn --quick -o tuning/

Source: Elfares et al. 2022, "Federated Learning for Appearance-based Gaze Estimation in the Wild".
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Field

from aggregators.methods.registry import METHODS as AGGREGATION_METHODS
from site_agent.errors import InvalidInputError
from site_agent.settings import Settings
from site_agent.studies.eyes import DrawnSettings

Method = Literal["individual", "data-centre", "fedavg", "adaptive"]
METHODS: tuple[Method, ...] = ("individual", "data-centre", "fedavg", "adaptive")
FEDERATED: tuple[Method, ...] = ("fedavg", "adaptive")
RULES = ("fedavg", "median", "trimmed-mean", "krum")
"""Compared by default; any aggregation method for networks can be."""
ATTACKS = ("none", "noise", "sign-flip", "x50")
PROTOCOLS = ("persons", "noise", "hostile")
_TUNING_SEED = 1000


class TrainingSettings(Settings, error=InvalidInputError):
    """Settings of training networks, at the sites or in one place: SGD with Nesterov's momentum."""

    learning_rate: float = Field(default=0.02, gt=0, le=10)
    """Of the first round. Networks that are trained in one place count an epoch as a round."""
    batch_size: int = Field(default=8, ge=1, le=65_536)
    """Samples in a step."""
    epochs: int = Field(default=1, ge=1, le=1000)
    """Of a site in a round; 1 in one place."""
    eta: float = Field(default=0.0003, gt=0)
    """Server learning rate; of adaptive only."""
    tau: float = Field(default=0.01, gt=0)
    """Degree of adaptivity relative to the root mean square of the first mean update; of adaptive
    only."""
    beta: float = Field(default=0.9, gt=0, le=1)
    """Decay of both moments; of adaptive only."""


class MethodsTraining(Settings, error=InvalidInputError):
    """Settings of training, one set a method."""

    individual: TrainingSettings = Field(default_factory=TrainingSettings)
    data_centre: TrainingSettings = Field(default_factory=TrainingSettings)
    fedavg: TrainingSettings = Field(default_factory=TrainingSettings)
    adaptive: TrainingSettings = Field(default_factory=TrainingSettings)

    def of(self, method: Method) -> TrainingSettings:
        training: TrainingSettings = getattr(self, method.replace("-", "_"))
        return training


_PAPER = TrainingSettings(learning_rate=1e-5, batch_size=32, eta=0.0003, tau=0.01)
# Errors of the tuned values on the persons that they were tuned on, person-independent: 6.61
# (individual, at its 40 passes, three persons), 4.40, 5.61 and 5.63 degrees; always the mean gaze:
# 11.81 and 11.18.
PRESETS: Mapping[str, MethodsTraining] = {
    "paper": MethodsTraining(_PAPER, _PAPER, _PAPER, _PAPER),
    "tuned": MethodsTraining(
        individual=TrainingSettings(learning_rate=0.02, batch_size=4),
        data_centre=TrainingSettings(learning_rate=0.02, batch_size=16),
        fedavg=TrainingSettings(learning_rate=0.02, batch_size=8, epochs=2),
        adaptive=TrainingSettings(
            learning_rate=0.02, batch_size=8, epochs=1, eta=0.008, tau=10.0, beta=0.3
        ),
    ),
}


def _grid(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """Return every combination of values."""
    return [
        dict(zip(values, combination, strict=True)) for combination in product(*values.values())
    ]


CANDIDATES: Mapping[Method, Sequence[Mapping[str, Any]]] = {
    "individual": _grid(learning_rate=(0.005, 0.01, 0.02, 0.04), batch_size=(4, 8, 16)),
    "data-centre": _grid(learning_rate=(0.005, 0.01, 0.02, 0.04), batch_size=(8, 16, 32)),
    "fedavg": _grid(learning_rate=(0.01, 0.02, 0.04), epochs=(1, 2), batch_size=(8, 32)),
    "adaptive": [
        {"learning_rate": 0.02, "batch_size": 32, "eta": eta, "tau": tau, "beta": beta}
        for eta, tau in ((0.0005, 0.1), (0.002, 1.0), (0.008, 10.0))
        for beta in (0.3, 0.6)
    ]
    + [
        {**candidate, "eta": 0.008, "tau": 10.0, "beta": 0.3}
        for candidate in _grid(learning_rate=(0.01, 0.02, 0.04), epochs=(1, 2))
    ],
}
"""The candidates for `tuned`."""


class GazeStudySettings(Settings, error=InvalidInputError):
    """Everything that is chosen in a study, besides its data."""

    architecture: str = "gaze-lenet"
    """Of all networks."""
    protocols: tuple[str, ...] = PROTOCOLS
    """persons (person-specific and person-independent), noise, hostile."""
    seeds: int = Field(default=5, ge=1, le=100)
    """How often everything is repeated with other starts, splits and orders."""
    folds: int = Field(default=5, ge=0, le=1000)
    """Of the persons; 0: leave one out."""
    passes: int = Field(default=60, ge=1, le=100_000)
    """How often a method passes over the data of a site: rounds times epochs."""
    individual_passes: int = Field(default=60, ge=1, le=100_000)
    """The same of the networks of one person alone."""
    cohort: float = Field(default=0.8, gt=0, le=1)
    """Share of the sites in each round; all of them for noise and hostile."""
    learning_rate_decay: float = 0.1
    """Inverse decay over rounds."""
    most_frames: int = Field(default=0, ge=0, le=1_000_000)
    """Samples of a person that are used, spread over sessions; 0: all."""
    robust_sites: int = Field(default=10, ge=2, le=1000)
    """Number of persons that are sites for noise and hostile; the others are the test."""
    robust_seeds: int = Field(default=3, ge=1, le=100)
    """Like seeds."""
    noise_shares: tuple[Annotated[float, Field(ge=0, le=1)], ...] = (
        0,
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
        0.6,
        0.7,
        0.8,
        0.9,
    )
    """Shares of sites with noisy training images."""
    noise_sd: float = Field(default=0.5, gt=0, le=100)
    """Standard deviation of that noise, in noise_unit."""
    noise_unit: Literal["image-sd", "range"] = "image-sd"
    """The standard deviation of the picture itself, at which the paper's figures are found; or the
    range from black to white."""
    hostile_sites: int = Field(default=3, ge=0)
    """Sites that send hostile updates."""
    rules: tuple[str, ...] = RULES
    """Aggregation methods that combine them, with the method's own defaults."""
    first_seed: int = 0
    """Of the drawn persons, too."""
    secure: bool = False
    """Fedavg and adaptive see only secure sums over the sites of a round."""
    training: MethodsTraining = Field(default_factory=lambda: PRESETS["tuned"])
    drawn: DrawnSettings = Field(default_factory=DrawnSettings)

    def __post_init__(self) -> None:
        if self.hostile_sites > self.robust_sites:
            raise self.refused(
                "hostile_sites", self.hostile_sites, f"at most robust_sites, {self.robust_sites}"
            )
        unknown = [name for name in self.protocols if name not in PROTOCOLS]
        if unknown or not self.protocols:
            raise InvalidInputError(
                f"protocols: {', '.join(unknown) or 'none'}; expected some of "
                f"{', '.join(PROTOCOLS)}"
            )
        methods = [name for name, method in AGGREGATION_METHODS.items() if method.kind == "network"]
        if unknown := [name for name in self.rules if name not in methods]:
            raise InvalidInputError(
                f"rules: {', '.join(unknown)}; expected some of {', '.join(methods)}"
            )


QUICK = GazeStudySettings(
    seeds=3,
    passes=8,
    individual_passes=40,
    most_frames=300,
    robust_seeds=1,
    noise_shares=(0, 0.3, 0.6, 0.9),
    drawn=DrawnSettings(frames=160, amount=10),
)
"""A study that takes less than an hour on two cores."""


def make_settings(*, preset: str = "tuned", quick: bool = False) -> GazeStudySettings:
    """Return the settings of a study as it is held without further choices."""
    return replace(QUICK if quick else GazeStudySettings(), training=PRESETS[preset])


def for_tuning(settings: GazeStudySettings) -> GazeStudySettings:
    """Return the settings with one seed that no study uses."""
    return replace(settings, seeds=1, first_seed=settings.first_seed + _TUNING_SEED)
