"""Settings of a study of split training, and its runs."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from site_agent.errors import InvalidInputError
from site_agent.settings import Settings
from site_agent.split.plan import SplitPlan, read_split_plan
from site_agent.studies.eyes import DrawnSettings, MethodRun

METHODS: Mapping[str, str] = {
    "mean-gaze": "mean gaze",
    "head-pose": "head pose only",
    "individual": "individual",
    "data-centre": "data centre",
    "fedavg": "FedAvg",
    "v1": "split, V1",
    "v2": "split, V2",
    "mean-smashed": "split, means of smashed data",
    "frozen-client": "split, frozen random client part",
    "dp-client": "V1, DP of the client part",
    "dp-whole": "V1, DP of both parts",
    "dp-person": "V1, DP of persons",
}
"""Names for people."""
INVERSION = "inversion"
_FEWEST_VICTIMS = 2
_ADAM_RATE = 0.001


class SplitStudySettings(Settings, error=InvalidInputError):
    """What a study compares."""

    architecture: str = "gaze-lenet"
    """Of all networks."""
    cut: str = "pool1"
    """Where they are cut ('split cuts')."""
    methods: tuple[str, ...] = Field(default=tuple(METHODS), description=", ".join(METHODS) + ".")
    seeds: int = Field(default=3, ge=1, le=1000)
    """Repetitions with other starts."""
    folds: int = Field(default=5, ge=1, le=1000)
    """Persons that are left out, one after the other."""
    images: int = Field(default=200, ge=8, le=1_000_000)
    """Of each person at most, evenly spaced."""
    rounds: int = Field(default=6, ge=1, le=10_000)
    """All persons take part in each."""
    epochs: int = Field(default=1, ge=1, le=1000)
    """Passes of a person in a round."""
    batch_size: int = Field(default=8, ge=1, le=65_536)
    """Images in a step."""
    learning_rate: float = Field(default=0.02, gt=0, le=10)
    """For SGD with momentum."""
    alone: int = Field(default=2, ge=1, le=1000)
    """Persons of whom a network is trained alone."""
    dp_epsilon: float = Field(default=8.0, gt=0, le=1000)
    """Of all rounds, at delta 1e-5."""
    levels: tuple[Annotated[float, Field(ge=0)], ...] = (0.0, 0.2, 0.5, 1.0, 2.0)
    """Laplace noise on smashed data under attack, in units of the sensitivity."""
    passes: int = Field(default=6, ge=1, le=1000)
    """Of the attackers' training over shadow persons."""
    first_seed: int = Field(default=0, ge=0, le=2**31)
    """Of the drawn persons, too."""
    drawn: DrawnSettings = Field(
        default_factory=lambda: DrawnSettings(drawn_persons=15, frames=200, amount=1)
    )

    def __post_init__(self) -> None:
        if unknown := [name for name in self.methods if name not in METHODS]:
            raise InvalidInputError(
                f"methods: {', '.join(unknown)}; expected some of {', '.join(METHODS)}"
            )
        self.plan("v1", 0)

    def plan(
        self, method: str, seed: int, level: float = 0.0, *, by_adam: bool = False
    ) -> SplitPlan:
        """Return the plan of a method of split training."""
        covers = method.removeprefix("dp-")
        private = {"dp_epsilon": self.dp_epsilon} if method != covers else {}
        return read_split_plan(
            {
                "architecture": self.architecture, "cut": self.cut,
                "variant": "v1" if private else method,
                "optimiser": "adam" if by_adam else "sgd",
                "rounds": self.rounds, "noise_level": level,
                "dp_covers": covers if private else "client",
                "training": {
                    "epochs": self.epochs, "batch_size": self.batch_size,
                    "learning_rate": _ADAM_RATE if by_adam else self.learning_rate,
                    "seed": seed, **private,
                },
            }
        )  # fmt: skip


QUICK = SplitStudySettings(
    rounds=3,
    seeds=1,
    folds=2,
    images=120,
    alone=1,
    passes=4,
    drawn=DrawnSettings(drawn_persons=6, frames=120, amount=1),
)
"""A study of some minutes on one core."""


def plan_runs(persons: Sequence[str], settings: SplitStudySettings) -> tuple[MethodRun, ...]:
    """Return all runs of a study: all of the first seed, then of the next one.

    Raises `InvalidInputError`: too few persons for averages over 3 sites.
    """
    victims = max(_FEWEST_VICTIMS, len(persons) // 3)
    if len(persons) - victims < 3:
        raise InvalidInputError(f"{len(persons)} persons; expected at least 5")
    runs = []
    for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
        for left_out in persons[: settings.folds]:
            sites = tuple(name for name in persons if name != left_out)
            runs += [
                MethodRun(name, seed, sites, (left_out,), left_out) for name in settings.methods
            ]
        if settings.levels:
            runs.append(
                MethodRun(INVERSION, seed, tuple(persons[:-victims]), tuple(persons[-victims:]))
            )
    return tuple(runs)
