"""The runs of a study of split training, and doing one of them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from site_agent.attacks.smashed import InversionSettings, attack_smashed_data, write_sheet
from site_agent.datasets.gaze import GazeSamples, angular_errors_deg, join_samples
from site_agent.federated.in_process import run_rounds
from site_agent.networks import new_network, predict_gaze, to_module
from site_agent.runs.progress import Progress
from site_agent.split.cuts import split_network
from site_agent.split.in_process import run_split_rounds
from site_agent.split.noise import SmashedNoise
from site_agent.split.plan import SplitPlan

SPLIT_METHODS = ("v1", "v2", "mean-smashed", "frozen-client")
METHODS = ("mean gaze", "head pose", "individual", "data centre", "fedavg", *SPLIT_METHODS)
INVERSION = "inversion"


@dataclass(frozen=True)
class SplitStudySettings:
    """What a study compares.

    Attributes
    ----------
    folds : int
        Persons that are left out, one after the other; the first ones by name.
    images : int
        Of each person at most, evenly spaced.
    alone : int
        Persons of whom a network is trained alone, for the mean error of such networks.
    levels : tuple of float
        Noise on smashed data under attack, in units of the sensitivity.
    """

    architecture: str = "gaze-lenet"
    cut: str = "pool1"
    rounds: int = 10
    epochs: int = 1
    batch_size: int = 8
    learning_rate: float = 0.02
    seeds: int = 3
    folds: int = 15
    images: int = 400
    alone: int = 3
    levels: tuple[float, ...] = (0.0, 0.2, 0.5, 1.0, 2.0)
    passes: int = 12

    def plan(self, variant: str, seed: int) -> SplitPlan:
        """Return the plan of a variant."""
        training = LocalTraining(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=seed,
        )
        return SplitPlan.model_validate(
            {
                "architecture": self.architecture, "cut": self.cut, "variant": variant,
                "rounds": self.rounds, "training": training,
            }
        )  # fmt: skip


def make_settings(*, quick: bool) -> SplitStudySettings:
    """Return the settings of a study; a quick one takes some minutes."""
    if quick:
        return SplitStudySettings(
            rounds=4, seeds=1, folds=2, images=120, alone=1, levels=(0.0, 0.5, 2.0), passes=4
        )
    return SplitStudySettings()


@dataclass(frozen=True)
class SplitRun:
    """One training, or one attack.

    Attributes
    ----------
    method : str
        One of `METHODS`, or ``inversion``.
    left_out : str
        The person to test on, or the first victim.
    level : float
        Noise under attack.
    """

    method: str
    left_out: str
    seed: int
    level: float = 0.0

    @property
    def key(self) -> str:
        words = self.method.replace(" ", "-")
        level = f"-{self.level:g}" if self.method == INVERSION else ""
        return f"{words}{level}.{self.left_out}.{self.seed}"


def list_runs(persons: tuple[str, ...], settings: SplitStudySettings) -> Iterator[SplitRun]:
    """Yield all runs of a study."""
    for seed in range(settings.seeds):
        for person in persons[: settings.folds]:
            for method in METHODS:
                yield SplitRun(method, person, seed)
        for level in settings.levels:
            yield SplitRun(INVERSION, persons[0], seed, level)


@dataclass(frozen=True)
class SplitJob:
    """A run with all that it takes; `samples` is the file of the samples by person."""

    run: SplitRun
    samples: Path
    settings: SplitStudySettings
    sheets: Path


def do_run(job: SplitJob, progress: Progress) -> dict[str, Any]:
    """Do a run, and return its scores: plain data."""
    progress(0.0, job.run.method)
    people = _load(job.samples)
    if job.run.method == INVERSION:
        return _attack(job, people)
    test = people[job.run.left_out]
    sites = {name: own for name, own in people.items() if name != job.run.left_out}
    errors = [
        float(angular_errors_deg(found, test.gaze).mean())
        for found in _predictions(job.run, job.settings, sites, test)
    ]
    return {"error_deg": float(np.mean(errors))}


def _predictions(
    run: SplitRun, settings: SplitStudySettings, sites: Mapping[str, GazeSamples], test: GazeSamples
) -> Iterator[NDArray[np.float64]]:
    """Yield the gaze that each network of a run finds in the patches of the person left out."""
    union = join_samples([*sites.values()])
    base = new_network(settings.architecture, run.seed)
    if run.method == "mean gaze":
        yield np.tile(union.gaze.mean(axis=0), (len(test), 1))
        return
    if run.method == "head pose":
        known = np.column_stack([union.head, np.ones(len(union))])
        weights, *_ = np.linalg.lstsq(known, union.gaze, rcond=None)
        yield np.column_stack([test.head, np.ones(len(test))]) @ weights
        return
    plan = settings.plan(run.method if run.method in SPLIT_METHODS else "v1", run.seed)
    if run.method == "fedavg":
        networks = [[*run_rounds(base, sites, plan.averaging)][-1].model.network]
    else:
        groups: list[Mapping[str, GazeSamples]] = [sites]
        if run.method == "data centre":
            groups = [{"all": union}]
        elif run.method == "individual":
            groups = [{name: sites[name]} for name in sorted(sites)[: settings.alone]]
        networks = [_last(base, group, plan) for group in groups]
    for network in networks:
        yield predict_gaze(to_module(network), test.patches, test.head)


def _last(base: StateDict, sites: Mapping[str, GazeSamples], plan: SplitPlan) -> StateDict:
    *_, held = run_split_rounds(base, sites, plan)
    return held.network


def _attack(job: SplitJob, people: Mapping[str, GazeSamples]) -> dict[str, Any]:
    """Attack the last third of the persons, with the others as shadows, by a trained part."""
    run, settings = job.run, job.settings
    names = sorted(people)
    victims = join_samples([people[name] for name in names[-max(2, len(names) // 3) :]])
    shadows = {name: people[name] for name in names[: -max(2, len(names) // 3)]}
    plan = settings.plan("v1", run.seed)
    network = _last(new_network(settings.architecture, run.seed), shadows, plan)
    module, cut = to_module(network), plan.found_cut
    attacked = attack_smashed_data(
        split_network(network, cut).client, cut, join_samples([*shadows.values()]),
        victims[:: max(1, len(victims) // 60)], SmashedNoise("laplace", run.level),
        settings=InversionSettings(
            passes=settings.passes, releases=settings.rounds * settings.epochs, seed=run.seed
        ),
        estimate=lambda pictures, head: predict_gaze(module, pictures, head),
    )  # fmt: skip
    write_sheet(attacked, job.sheets / f"{run.key}.png")
    ratio = attacked.signal_to_noise_db
    scores = {name: each.facts() for name, each in attacked.results.items()}
    return {"signal_to_noise_db": None if math.isinf(ratio) else ratio, "attackers": scores}


@lru_cache(maxsize=1)
def _load(path: Path) -> dict[str, GazeSamples]:
    found: dict[str, GazeSamples] = pickle.loads(path.read_bytes())
    return found
