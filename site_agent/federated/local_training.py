"""A site's part in a round: training the round's network on its own samples.

The same inputs give the same bytes, so that all engines of rounds give equal results.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from site_agent.datasets.gaze import GazeSamples
from site_agent.errors import (
    ContributionWithheldError,
    TrainingDataError,
    TrainingFailedError,
)

_TRIAL_SHARE = 0.05
"""Of the time that a site allows: after it, the time of the whole training is estimated."""


def seed_of(seed: int, site: str, round_number: int) -> int:
    """Return the seed of a site's training in a round, from SHA-256."""
    text = f"poolctl-round/1|{seed}|{round_number}|{site}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def train_contribution(
    base: StateDict,
    base_digest: str,
    samples: GazeSamples,
    settings: LocalTraining,
    *,
    site: str,
    round_number: int,
    guarded: bool = True,
    max_hours: float = math.inf,
    privacy: Privacy | None = None,
) -> NetworkContribution:
    """Train a round's network on the samples of a site, and return the differences.

    It runs on the CPU in one thread, so that it can be repeated. A step takes at most an eighth of
    the samples, at least 8 steps are made, and rows that would show one sample are sent as zeros;
    see `site_agent.federated.leak_checks`.

    Parameters
    ----------
    base_digest : str
        SHA-256 of the base's file.
    round_number : int
        From 1.
    guarded : bool
        False only for the positive controls of attacks: nothing is kept back, and a step takes as
        many samples as the round asks for.
    privacy : Privacy, optional
        Of rounds with differential privacy (`site_agent.federated.private_training`), where what
        leaves the site is counted; nothing is then kept back, as the noise protects all rows.
    max_hours : float
        Stop as soon as the whole training will take longer than the site allows.

    Raises
    ------
    ContributionWithheldError
        The training takes too long.
    TrainingDataError
        The site has fewer than 2 samples.
    TrainingFailedError
        The loss is not finite.
    InvalidInputError
        The base is no network that this program can train.
    """
    import torch

    from site_agent.federated.leak_checks import DenseRows, batch_size_for, passes_for
    from site_agent.networks import from_module, to_module
    from site_agent.training.gaze.loop import repeatable, sgd, to_tensors, train_epoch

    if len(samples) < 2:
        raise TrainingDataError(None, [(0, f"found {len(samples)} samples, expected at least 2")])
    module = to_module(base, "the base")
    generator = torch.Generator().manual_seed(seed_of(settings.seed, site, round_number))
    optimiser = sgd(
        module,
        settings.learning_rate_in(round_number),
        settings.momentum,
        settings.weight_decay,
    )
    if settings.dp_epsilon is not None:
        return _train_private_contribution(
            base, base_digest, samples, settings, site=site, round_number=round_number,
            privacy=privacy or Privacy(),
        )  # fmt: skip
    with repeatable():
        data = to_tensors(samples)
        batch_size, epochs = settings.batch_size, settings.epochs
        if guarded:
            batch_size = batch_size_for(settings, len(samples))
            epochs = passes_for(settings, len(samples))
        rows = DenseRows(module, data, epochs)
        timer = _Timer(f"{round_number} of its series", epochs, max_hours)
        for epoch in range(epochs):
            loss = train_epoch(
                module, optimiser, data, batch_size, generator, progress=timer.at_epoch(epoch)
            )
            if not np.isfinite(loss):
                raise TrainingFailedError(
                    f"the loss is {loss} in round {round_number}: lower the learning rate "
                    f"({settings.learning_rate:g})"
                )
        rows.close()
        trained = from_module(module, base.metadata["architecture"])
        differences = _differences(trained, base)
        if guarded:
            rows.keep_back(differences)
    return NetworkContribution(
        network=StateDict(differences, dict(base.infos)),
        holds="differences",
        samples=len(samples),
        base_digest=base_digest,
        settings=settings.shared(),
    )


@dataclass(frozen=True)
class Privacy:
    """Where a site counts what it releases, in rounds with differential privacy.

    Attributes
    ----------
    ledger : Path or None
        Folder of the site's ledger; None in simulations, which release nothing.
    most_epsilon : float or None
        The site's budget for its data.
    honest_labs : int
        Of a secure round, so many labs at least add their noise.
    """

    ledger: Path | None = None
    most_epsilon: float | None = None
    honest_labs: int = 1


def _train_private_contribution(
    base: StateDict,
    base_digest: str,
    samples: GazeSamples,
    settings: LocalTraining,
    *,
    site: str,
    round_number: int,
    privacy: Privacy,
) -> NetworkContribution:
    from site_agent.federated import private_training as private
    from site_agent.networks import from_module, to_module
    from site_agent.training.gaze.loop import repeatable, to_tensors

    module = to_module(base, "the base")
    architecture = base.metadata["architecture"]
    private.require_private_network(module, architecture)
    plan = private.plan_privacy(settings, len(samples), privacy.honest_labs)
    if privacy.ledger is None:
        seed = seed_of(settings.seed, f"noise of {site}", round_number)
    else:
        private.PrivacyLedger(privacy.ledger).spend(
            plan,
            settings,
            np.unique(samples.person).tolist(),
            round_name=f"{round_number} on {base_digest[:16]}",
            most_epsilon=privacy.most_epsilon,
        )
        # Nobody may be able to draw the noise again.
        seed = secrets.randbits(63)
    with repeatable():
        units = private.train_privately(
            module,
            to_tensors(samples),
            samples,
            settings,
            plan,
            round_number=round_number,
            seed=seed,
        )
    differences = _differences(from_module(module, architecture), base)
    if not all(np.isfinite(each).all() for each in differences.values()):
        raise TrainingFailedError(
            f"the noise of epsilon {settings.dp_epsilon:g} has driven the network apart in round "
            f"{round_number}: lower the learning rate ({settings.learning_rate:g})"
        )
    return NetworkContribution(
        network=StateDict(differences, dict(base.infos)),
        holds="differences",
        samples=units,
        base_digest=base_digest,
        settings=settings.shared(),
    )


class _Timer:
    """Ends a training that will take longer than a site allows."""

    def __init__(self, round_name: str, epochs: int, max_hours: float) -> None:
        self._round, self._epochs, self._limit_s = round_name, epochs, 3600 * max_hours
        self._began_s = time.monotonic()

    def at_epoch(self, epoch: int) -> Callable[[float], None]:
        """Return a function that takes the share of an epoch that is done."""

        def check(share: float) -> None:
            spent_s = time.monotonic() - self._began_s
            total_s = spent_s * self._epochs / (epoch + share)
            # The first steps take longer than the others.
            if spent_s > _TRIAL_SHARE * self._limit_s and total_s > self._limit_s:
                raise ContributionWithheldError(
                    self._round,
                    [
                        f"its {self._epochs} passes over your samples would take "
                        f"{total_s / 3600:.2g} hours, and this site trains for at most "
                        f"{self._limit_s / 3600:.2g} (--max-hours)"
                    ],
                )

        return check


def _differences(trained: StateDict, base: StateDict) -> dict[str, NDArray[np.generic]]:
    """Return floating-point entries less the base's; the others as trained."""
    return {
        name: np.subtract(trained.tensors[name], base.tensors[name])
        if info.dtype.startswith("F")
        else trained.tensors[name]
        for name, info in base.infos.items()
    }


def clip_update(contribution: NetworkContribution, norm: float) -> NetworkContribution:
    """Return an update whose Euclidean norm over all trained numbers is at most `norm`."""
    network = contribution.network
    names = [name for name, info in network.infos.items() if info.dtype.startswith("F")]
    found = float(
        np.sqrt(sum(np.square(network.tensors[name].astype(np.float64)).sum() for name in names))
    )
    if found <= norm:
        return contribution
    tensors = dict(network.tensors)
    for name in names:
        values = tensors[name].astype(np.float64) * (norm / found)
        tensors[name] = values.astype(tensors[name].dtype)
    return replace(contribution, network=StateDict(tensors, dict(network.infos), network.metadata))
