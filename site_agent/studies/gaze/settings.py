"""Settings of a gaze study: its size, its protocols, and how each method trains.

``paper`` has the values that the paper states; eta, which it does not state, is such that its
order is found: at its learning rate the adaptive method has half the error of FedAvg (8.5 and 16.0
degrees on drawn eyes after 12 rounds). That needs a tau far below the updates.

``tuned`` has the best of `CANDIDATES`, equally many for each method, on drawn persons, starts and
splits of other seeds than the study's, as this finds them::

    poolctl study gaze --drawn --quick --tune -o tuning/

Source: Elfares et al. 2022, "Federated Learning for Appearance-based Gaze Estimation in the Wild".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from aggregators.methods.registry import METHODS as AGGREGATION_METHODS
from site_agent.errors import InvalidInputError
from site_agent.training.settings import require_number, require_whole

Method = Literal["individual", "data-centre", "fedavg", "adaptive"]
METHODS: tuple[Method, ...] = ("individual", "data-centre", "fedavg", "adaptive")
FEDERATED: tuple[Method, ...] = ("fedavg", "adaptive")
RULES = ("fedavg", "median", "trimmed-mean", "krum")
"""Compared by default; any aggregation method for networks can be."""
ATTACKS = ("none", "noise", "sign-flip", "x50")
PROTOCOLS = ("persons", "noise", "hostile")
_TUNING_SEED = 1000


@dataclass(frozen=True)
class TrainingSettings:
    """How networks are trained, at the sites or in one place: SGD with Nesterov's momentum.

    Attributes
    ----------
    learning_rate : float
        Of the first round. Networks that are trained in one place count an epoch as a round.
    batch_size : int
    epochs : int
        Of a site in a round; 1 in one place.
    eta, tau, beta : float
        Server learning rate, degree of adaptivity relative to the root mean square of the first
        mean update, and decay of both moments; of adaptive only.
    """

    learning_rate: float = 0.02
    batch_size: int = 8
    epochs: int = 1
    eta: float = 0.0003
    tau: float = 0.01
    beta: float = 0.9

    def __post_init__(self) -> None:
        require_number("learning_rate", self.learning_rate, above=0, most=10)
        require_whole("batch_size", self.batch_size, 1, 65_536)
        require_whole("epochs", self.epochs, 1, 1000)
        require_number("eta", self.eta, above=0)
        require_number("tau", self.tau, above=0)
        require_number("beta", self.beta, above=0, most=1)


@dataclass(frozen=True)
class MethodsTraining:
    """How each method trains."""

    individual: TrainingSettings = field(default_factory=TrainingSettings)
    data_centre: TrainingSettings = field(default_factory=TrainingSettings)
    fedavg: TrainingSettings = field(default_factory=TrainingSettings)
    adaptive: TrainingSettings = field(default_factory=TrainingSettings)

    def of(self, method: Method) -> TrainingSettings:
        found: TrainingSettings = getattr(self, method.replace("-", "_"))
        return found


_PAPER = TrainingSettings(learning_rate=1e-5, batch_size=32, eta=0.0003, tau=0.01)
# Errors of the tuned values on the persons that they were tuned on, person-independent: 7.54
# (individual, at 20 passes), 4.40, 5.61 and 5.63 degrees; always the mean gaze: 11.81 and 11.18.
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
    found: list[dict[str, Any]] = [{}]
    for name, choices in values.items():
        found = [{**each, name: choice} for each in found for choice in choices]
    return found


CANDIDATES: Mapping[Method, Sequence[Mapping[str, Any]]] = {
    "individual": [
        *_grid(learning_rate=(0.005, 0.01, 0.02), batch_size=(8, 16)),
        *_grid(learning_rate=(0.005, 0.01, 0.02), batch_size=(4,)),
        *_grid(learning_rate=(0.04,), batch_size=(4, 8, 16)),
    ],
    "data-centre": [
        *_grid(learning_rate=(0.005, 0.01, 0.02), batch_size=(16, 32)),
        *_grid(learning_rate=(0.005, 0.01, 0.02), batch_size=(8,)),
        *_grid(learning_rate=(0.04,), batch_size=(8, 16, 32)),
    ],
    "fedavg": [
        *_grid(learning_rate=(0.01, 0.02, 0.04), epochs=(1, 2)),
        *_grid(learning_rate=(0.01, 0.02, 0.04), epochs=(1, 2), batch_size=(8,)),
    ],
    "adaptive": [
        {"learning_rate": 0.02, "eta": eta, "tau": tau, "beta": beta}
        for eta, tau in ((0.0005, 0.1), (0.002, 1.0), (0.008, 10.0))
        for beta in (0.3, 0.6)
    ]
    + _grid(
        learning_rate=(0.01, 0.02, 0.04),
        epochs=(1, 2),
        batch_size=(8,),
        eta=(0.008,),
        tau=(10.0,),
        beta=(0.3,),
    ),
}
"""What `tuned` was chosen from."""


@dataclass(frozen=True)
class DrawnSettings:
    """The persons whose eyes are drawn, where no data are given.

    Attributes
    ----------
    drawn_persons : int
    frames : int
        Mean over the persons.
    amount : float
        Ratio of the largest to the smallest amount of data of a person.
    """

    drawn_persons: int = 15
    frames: int = 1000
    amount: float = 20.0


@dataclass(frozen=True)
class GazeStudySettings:
    """Everything that is chosen in a study, besides its data.

    Attributes
    ----------
    architecture : str
        Of all networks.
    protocols : tuple of str
        ``persons`` (person-specific and person-independent), ``noise``, ``hostile``.
    seeds : int
        How often everything is repeated with other starts, splits and orders.
    folds : int
        Of the persons; 0: leave one out.
    passes : int
        How often a method passes over the data of a site: rounds times epochs.
    individual_passes : int
        The same of the networks of one person alone.
    cohort : float
        Share of the sites in each round; all of them for ``noise`` and ``hostile``.
    learning_rate_decay : float
        Inverse decay over rounds.
    most_frames : int
        Samples of a person that are used, spread over sessions; 0: all.
    robust_sites : int
        Persons who are sites for ``noise`` and ``hostile``; the others are the test.
    robust_seeds : int
        Like `seeds`.
    noise_shares : tuple of float
        Shares of sites whose training images are noisy.
    noise_sd : float
        Standard deviation of that noise, in `noise_unit`.
    noise_unit : {'image-sd', 'range'}
        The standard deviation of the picture itself, at which the paper's figures are found; or
        the range from black to white.
    hostile_sites : int
        Sites that send hostile updates.
    rules : tuple of str
        Aggregation methods that combine them, with the method's own defaults.
    first_seed : int
        Of the drawn persons, too.
    secure : bool
        Fedavg and adaptive see only secure sums over the sites of a round.
    """

    architecture: str = "gaze-lenet"
    protocols: tuple[str, ...] = PROTOCOLS
    seeds: int = 5
    folds: int = 5
    passes: int = 60
    individual_passes: int = 60
    cohort: float = 0.8
    learning_rate_decay: float = 0.1
    most_frames: int = 0
    robust_sites: int = 10
    robust_seeds: int = 3
    noise_shares: tuple[float, ...] = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    noise_sd: float = 0.5
    noise_unit: Literal["image-sd", "range"] = "image-sd"
    hostile_sites: int = 3
    rules: tuple[str, ...] = RULES
    first_seed: int = 0
    secure: bool = False
    training: MethodsTraining = field(default_factory=lambda: PRESETS["tuned"])
    drawn: DrawnSettings = field(default_factory=DrawnSettings)

    def __post_init__(self) -> None:
        require_whole("seeds", self.seeds, 1, 100)
        require_whole("robust_seeds", self.robust_seeds, 1, 100)
        require_whole("folds", self.folds, 0, 1000)
        require_whole("passes", self.passes, 1, 100_000)
        require_whole("individual_passes", self.individual_passes, 1, 100_000)
        require_whole("most_frames", self.most_frames, 0, 1_000_000)
        require_whole("robust_sites", self.robust_sites, 2, 1000)
        require_whole("hostile_sites", self.hostile_sites, 0, self.robust_sites)
        require_number("cohort", self.cohort, above=0, most=1)
        require_number("noise_sd", self.noise_sd, above=0, most=100)
        if self.noise_unit not in ("image-sd", "range"):
            raise InvalidInputError(f"noise_unit: {self.noise_unit}; expected image-sd or range")
        unknown = [name for name in self.protocols if name not in PROTOCOLS]
        if unknown or not self.protocols:
            raise InvalidInputError(
                f"protocols: {', '.join(unknown) or 'none'}; expected some of "
                f"{', '.join(PROTOCOLS)}"
            )
        methods = [name for name, each in AGGREGATION_METHODS.items() if each.kind == "network"]
        if unknown := [name for name in self.rules if name not in methods]:
            raise InvalidInputError(
                f"rules: {', '.join(unknown)}; expected some of {', '.join(methods)}"
            )
        if any(not 0 <= share <= 1 for share in self.noise_shares):
            raise InvalidInputError(f"noise_shares: {self.noise_shares}; expected shares of 0 to 1")


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
