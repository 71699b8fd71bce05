"""The study of personalised rounds, a network for each person or one for all, and its runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from site_agent.datasets.egocentric import EgocentricDataset
from site_agent.errors import InvalidInputError
from site_agent.settings import Settings

METHODS = ("local", "fedavg", "fedprox", "fedper", "fedpac", "fedselect", "cpf-random", "fedcpf")
PLAIN = ("local", "fedavg", "fedprox")
"""Methods with one network for all sites, or with each site's own."""

MASKED = ("fedselect", "cpf-random", "fedcpf")
"""Methods that choose the personal numbers one by one."""

EYES, DATA = "eyes", "data"
_TUNING_SEED = 1000


Rates = tuple[Annotated[float, Field(gt=0, le=10)], ...]
Shares = tuple[Annotated[float, Field(ge=0, le=1)], ...]


class EgocentricStudySettings(Settings):
    """The size of a study."""

    methods: tuple[str, ...] = METHODS
    """Methods to compare."""
    seeds: int = Field(default=5, ge=1, le=100)
    """How often everything is repeated with other persons and starts."""
    people: int = Field(default=8, ge=2, le=1000)
    """Persons of each drawn world."""
    videos: int = Field(default=60, ge=5, le=10_000)
    """Drawn videos of each person."""
    seconds: float = Field(default=8.0, ge=2, le=600)
    """Length of a drawn video."""
    held_out: float = Field(default=0.2, gt=0, lt=0.5)
    """Share of a person's videos for tests; the same share is for validation."""
    first_people: int = Field(default=60, ge=0, le=10_000)
    """Further persons; their clips train the network with which all methods begin in drawn worlds.
    0: they begin with a new one, as with CLIPS."""
    first_epochs: int = Field(default=6, ge=1, le=1000)
    """Passes over the clips of those persons."""
    heterogeneities: tuple[Annotated[float, Field(ge=0, le=2)], ...] = (0.0, 0.5, 1.0)
    """How much the persons of a world differ; one world each."""
    rounds: int = Field(default=20, ge=1, le=10_000)
    """Rounds on clips."""
    epochs: int = Field(default=1, ge=1, le=1000)
    """Passes over its clips that a site makes in a round."""
    rates: Rates = (0.0002, 0.0006, 0.002)
    """Candidates for the learning rate of AdamW on clips."""
    rhos: Shares = (0.1, 0.3, 0.5, 0.7)
    """Shares of personal numbers in FedCPF's sweep, in the world of the largest heterogeneity."""
    accs: Shares = (0.02, 0.05, 0.1)
    """Growth of the masks in FedCPF's sweep."""
    eye_people: int = Field(default=15, ge=0, le=1000)
    """Persons for the comparison of gaze networks; 0: none."""
    eye_frames: int = Field(default=300, ge=20, le=100_000)
    """Drawn frames of each of them."""
    eye_rounds: int = Field(default=20, ge=1, le=10_000)
    """Rounds on eyes."""
    eye_rates: Rates = (0.01, 0.02, 0.04)
    """Candidates for the learning rate of SGD on eyes."""
    architecture: str = "glc-tiny"
    """Of the saliency networks."""

    def __post_init__(self) -> None:
        for name in ("methods", "heterogeneities", "rates", "eye_rates"):
            if not getattr(self, name):
                raise self.refused(name, "", "one value at least")
        if unknown := [name for name in self.methods if name not in METHODS]:
            raise InvalidInputError(
                f"methods: {', '.join(unknown)}; expected some of {', '.join(METHODS)}"
            )


QUICK = EgocentricStudySettings(
    seeds=3, people=5, videos=20, heterogeneities=(0.0, 1.0), first_people=20, first_epochs=5,
    rounds=3, epochs=1, rates=(0.003, 0.006), rhos=(0.05,), accs=(), eye_frames=260, eye_rounds=2,
    eye_rates=(0.02,),
)  # fmt: skip
"""A study that takes at most 90 minutes on two cores."""


@dataclass(frozen=True)
class Run:
    """One method in one world."""

    world: str
    """``h=1``, ``eyes`` or ``data``."""
    method: str
    rate: float
    seed: int
    options: tuple[tuple[str, float], ...] = ()
    """Options other than the method's own defaults; they name the run."""
    tuning: bool = False
    """It chooses the learning rate, by validation, and is not in the tables."""

    @property
    def key(self) -> str:
        """The name of its result's file, without the ending."""
        parts = [f"{name}{value:g}" for name, value in self.options]
        kind = [f"tune{self.rate:g}"] if self.tuning else []
        return "_".join([self.world, self.method, *parts, *kind, f"seed{self.seed}"])


def plan_tuning(worlds: Sequence[str], settings: EgocentricStudySettings) -> list[Run]:
    """Return the runs that choose learning rates: of clips in the last world, and of eyes.

    None where there is one candidate.
    """
    chosen = [world for world in worlds if world != EYES][-1:] + [
        world for world in worlds if world == EYES
    ]
    return [
        Run(world, method, rate, _TUNING_SEED, tuning=True)
        for world in chosen
        if len(_rates(world, settings)) > 1
        for method in settings.methods
        for rate in _rates(world, settings)
    ]


def plan_runs(
    worlds: Sequence[str],
    settings: EgocentricStudySettings,
    rates: Mapping[tuple[bool, str], float],
) -> list[Run]:
    """Return the runs of the tables; `rates` by (of eyes, method)."""
    runs = [
        Run(world, method, rates[world == EYES, method], seed)
        for world in worlds
        for method in settings.methods
        for seed in range(settings.seeds)
    ]
    clips = [world for world in worlds if world != EYES]
    if "fedcpf" in settings.methods and clips:
        sweeps = [(("rho", value),) for value in settings.rhos]
        sweeps += [(("acc", value),) for value in settings.accs]
        runs += [
            Run(clips[-1], "fedcpf", rates[False, "fedcpf"], seed, options)
            for options in sweeps
            for seed in range(settings.seeds)
        ]
    return runs


def worlds_of(settings: EgocentricStudySettings, dataset: EgocentricDataset | None) -> list[str]:
    """Return the names of the worlds, the most heterogeneous clips last but the eyes."""
    if dataset is not None:
        return [DATA]
    clips = [f"h={value:g}" for value in sorted(settings.heterogeneities)]
    return clips + [EYES] * (settings.eye_people > 0)


def _rates(world: str, settings: EgocentricStudySettings) -> tuple[float, ...]:
    return settings.eye_rates if world == EYES else settings.rates


def first_rates(settings: EgocentricStudySettings) -> dict[tuple[bool, str], float]:
    """Return any rate of each method, to count the runs of a study."""
    return {
        (of_eyes, method): rates[0]
        for of_eyes, rates in ((False, settings.rates), (True, settings.eye_rates))
        for method in settings.methods
    }


def choose_rates(
    tuning: Sequence[Run], results: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[bool, str], float]:
    """Return the best learning rate of each method on validation samples."""
    best: dict[tuple[bool, str], tuple[float, float]] = {}
    for run in tuning:
        if run.key not in results:
            continue
        of_eyes = run.world == EYES
        score = float(np.mean(list(results[run.key]["validation"].values())))
        # Errors are the better the smaller, F1 the larger.
        value = -score if of_eyes else score
        best[of_eyes, run.method] = max(
            best.get((of_eyes, run.method), (-np.inf, 0.0)), (value, run.rate)
        )
    for run in tuning:
        if (run.world == EYES, run.method) not in best:
            raise InvalidInputError(f"{run.method}: all trainings in {run.world} failed")
    return {key: rate for key, (_, rate) in best.items()}
