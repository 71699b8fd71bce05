"""The journey of gaze networks on eyes drawn here: train alone, train together in rounds, compare.

Everything is done as a site would do it, through the same functions and a running pool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pool_server.wire.names import ModelAddress
from site_agent.datasets.gaze import GazeDataset, GazeSamples, angular_errors_deg, open_gaze
from site_agent.pool.cache import ModelCache
from site_agent.pool.client import PoolClient
from site_agent.quickstart.at_once import SharedProgress, run_two_at_once
from site_agent.quickstart.records import Reporter

_METHOD = "fedavg"
_TRAINING = {"epochs": 3, "learning_rate": 0.02}
_PERSONS, _FRAMES, _TEST_PERSONS, _TEST_FRAMES = 3, 100, 8, 50

_STEPS = (
    "Draw the eyes of {persons} persons for each of {sites} sites, and of others for the test",
    "Register the sites with the pool",
    "Train a network of its own at each site",
    "Train one network together in {rounds} rounds: only differences of parameters leave a site",
    "Evaluate all networks on persons nobody trained on",
)


@dataclass(frozen=True)
class ScoredNetwork:
    """One line of the table at the end.

    Attributes
    ----------
    made_by : str
        ``trained``, the method of the rounds, or ``constant`` for the mean gaze of all sites.
    error_deg, worst_person_deg : float
        Mean angular error over the test samples, and over those of the person with the largest.
    file : str
        Empty for the constant answer.
    """

    name: str
    made_by: str
    error_deg: float
    worst_person_deg: float
    file: str = ""


@dataclass(frozen=True)
class GazeQuickstartResult:
    """What the journey came to; written as ``summary.json``."""

    folder: str
    networks: tuple[ScoredNetwork, ...]
    rounds: int
    network: str
    test_dataset: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Site:
    name: str
    folder: Path
    token: str

    @property
    def data(self) -> GazeDataset:
        return open_gaze(self.folder / "eyes")

    @property
    def network(self) -> Path:
        return self.folder / f"{self.name}.safetensors"


def run_gaze_journey(
    folder: Path,
    endpoint: str,
    admin_token: str,
    reporter: Reporter,
    *,
    site_count: int = 3,
    rounds: int = 5,
    seed: int = 1,
) -> GazeQuickstartResult:
    """Go through the journey with a running pool.

    Data, networks, results and ``summary.json`` are kept in `folder`, which is empty.

    Raises
    ------
    SiteAgentError, AggregatorError
        From whichever step fails; finished files stay in `folder`.
    """
    titles = [title.format(persons=_PERSONS, sites=site_count, rounds=rounds) for title in _STEPS]
    names = [f"site-{chr(ord('a') + index)}" for index in range(site_count)]

    def begin(number: int) -> None:
        reporter.step(number, len(titles), titles[number - 1])

    begin(1)
    test = _draw(folder, names, seed, reporter)
    begin(2)
    sites = _register(folder, endpoint, admin_token, names)
    reporter.done(", ".join(names))
    begin(3)
    _train_alone(sites, seed, reporter)
    begin(4)
    joint = folder / "together.safetensors"
    _train_together(endpoint, sites, joint, reporter, rounds=rounds, seed=seed)
    begin(5)
    networks = _scored(sites, joint, test)
    reporter.done(f"{len(test.persons)} persons")
    result = GazeQuickstartResult(str(folder), networks, rounds, str(joint), str(folder / "test"))
    text = json.dumps(result.to_dict(), indent=2) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")
    return result


def _draw(folder: Path, names: Sequence[str], seed: int, reporter: Reporter) -> GazeDataset:
    from site_agent.datasets.synthetic.eye_patches import RenderSettings, write_eye_dataset

    def settings(first: int, persons: int, frames: int) -> RenderSettings:
        return RenderSettings(
            persons=persons, frames_per_person=frames, first_person=first, seed=seed
        )

    wanted = {
        folder / name / "eyes": settings(index * _PERSONS, _PERSONS, _FRAMES)
        for index, name in enumerate(names)
    }
    wanted[folder / "test"] = settings(len(names) * _PERSONS, _TEST_PERSONS, _TEST_FRAMES)
    shares = SharedProgress(len(wanted), reporter.progress)
    drawn = run_two_at_once(
        [
            partial(write_eye_dataset, target, each, shares.of(index))
            for index, (target, each) in enumerate(wanted.items())
        ]
    )
    counts = [count for _, count in drawn]
    reporter.done(f"{sum(counts[:-1])} patches to train on, {counts[-1]} to test")
    return open_gaze(folder / "test")


def _register(
    folder: Path, endpoint: str, admin_token: str, names: Sequence[str]
) -> tuple[_Site, ...]:
    sites = []
    with PoolClient(endpoint, admin_token) as pool:
        for name in names:
            pool.sites.create(name)
            token = pool.tokens.create(name, "quickstart").secret
            sites.append(_Site(name, folder / name, token))
    return tuple(sites)


def _train_alone(sites: Sequence[_Site], seed: int, reporter: Reporter) -> None:
    from site_agent.training.gaze.settings import GazeSettings
    from site_agent.training.gaze.training import train_gaze

    settings = GazeSettings(seed=seed, device="cpu", threads=1)
    for index, site in enumerate(sites):
        reporter.progress(index / len(sites), site.name)
        train_gaze(site.data, site.network, settings)
    reporter.done(", ".join(site.network.name for site in sites))


def _train_together(
    endpoint: str,
    sites: Sequence[_Site],
    output: Path,
    reporter: Reporter,
    *,
    rounds: int,
    seed: int,
) -> None:
    """Hold the rounds through the pool, and download the last network."""
    from aggregators.formats import write_model
    from site_agent.networks import new_network
    from site_agent.rounds.contract import ContributionRules
    from site_agent.rounds.contributing import contribute_to_round
    from site_agent.rounds.finishing import finish_round

    names = [site.name for site in sites]
    first = sites[0].folder / "new.safetensors"
    write_model(new_network("gaze-lenet", seed), first)
    rules = ContributionRules(trusted=frozenset(names))
    with ExitStack() as stack:
        pools = [
            stack.enter_context(
                PoolClient(endpoint, site.token, cache=ModelCache(site.folder / "cache"))
            )
            for site in sites
        ]
        base = ModelAddress(names[0], "gaze")
        version = pools[0].upload(first, base).version
        key = (
            pools[0]
            .rounds.start(
                version.address,
                names,
                deadline=datetime.now(UTC) + timedelta(days=1),
                method=_METHOD,
                options=_TRAINING,
                rounds=rounds,
            )
            .round_id
        )
        for number in range(rounds):
            for index, (pool, site) in enumerate(zip(pools, sites, strict=True)):
                done = (number * len(sites) + index) / (rounds * len(sites))
                reporter.progress(done, f"round {number + 1}, {site.name}")
                contribute_to_round(pool, key, site.data, rules=rules)
            finished = finish_round(pools[0], key)
            key = finished.round.successor or ""
        fetched = pools[0].fetch(finished.version)
        pools[0].cache.copy_to(fetched.version.digest, output)
    reporter.done(f"{finished.version.address}, combined by the pool")


def _scored(sites: Sequence[_Site], joint: Path, test: GazeDataset) -> tuple[ScoredNetwork, ...]:
    from site_agent.networks import predict_gaze, read_network, to_module

    samples = test.read()
    files: Mapping[Path, str] = {
        **dict.fromkeys((site.network for site in sites), "trained"),
        joint: _METHOD,
    }
    mean = np.concatenate([site.data.read().gaze for site in sites]).mean(axis=0)
    constant = np.broadcast_to(mean, samples.gaze.shape)
    scored = [_score("the mean gaze", "constant", constant, samples)]
    for path, made_by in files.items():
        found = predict_gaze(to_module(read_network(path)), samples.patches, samples.head)
        scored.append(_score(path.name, made_by, found, samples, str(path)))
    return tuple(scored)


def _score(
    name: str, made_by: str, found: np.ndarray[Any, Any], samples: GazeSamples, file: str = ""
) -> ScoredNetwork:
    errors = angular_errors_deg(found, samples.gaze)
    persons = [float(errors[samples.person == each].mean()) for each in set(samples.person)]
    return ScoredNetwork(name, made_by, float(errors.mean()), max(persons), file)
