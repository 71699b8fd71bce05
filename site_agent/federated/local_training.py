"""A site's part in a round: training the round's network on its own samples.

The same inputs give the same bytes, so that all engines of rounds give equal results.
"""

import math
import secrets
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aggregators.methods.contract import MethodOptions
from aggregators.methods.registry import find_method
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from site_agent import errors
from site_agent.federated import private_training as private
from site_agent.federated.contribution_ledger import norm_of
from site_agent.federated.halves import find_half
from site_agent.federated.halves.contract import LocalRound, SiteHalf
from site_agent.federated.leak_checks import WatchedRows, batch_size_for, passes_for
from site_agent.federated.personal import PersonalPart, assemble
from site_agent.federated.plan import seed_of
from site_agent.federated.tasks import task_of
from site_agent.networks.architectures import require_kind
from site_agent.networks.modules import from_module, to_module
from site_agent.training.gaze.loop import make_optimiser, repeatable, to_tensors

_TRIAL_SHARE = 0.05
"""Of the time that a site allows: after it, the time of the whole training is estimated."""


@dataclass(frozen=True, eq=False)
class SiteUpdate:
    """The result of a site's training: its contribution, and its personal part."""

    contribution: NetworkContribution
    part: PersonalPart | None = None
    """None for methods without personal parts."""


def train_at_site(
    base: StateDict,
    base_digest: str,
    samples: Any,
    settings: LocalTraining,
    *,
    site: str,
    round_number: int,
    method: str = "fedavg",
    options: MethodOptions | None = None,
    before: PersonalPart | None = None,
    guarded: bool = True,
    max_hours: float = math.inf,
    privacy: "Privacy | None" = None,
    order_seed: int | None = None,
) -> SiteUpdate:
    """Train a round's network on the samples of a site, and return the differences.

    It runs on the CPU in one thread, so that it can be repeated. A step takes at most an eighth of
    the samples, at least 8 steps are made, rows that would show one sample are sent as zeros, and
    the update is shortened to `LocalTraining.most_change`; see `site_agent.federated.leak_checks`.

    Parameters
    ----------
    base_digest : str
        SHA-256 of the base's file.
    samples : GazeSamples or ClipSamples
        As the base's task takes them.
    round_number : int
        From 1.
    method, options
        The round's method with its own options.
    before : PersonalPart, optional
        The site's personal part from the last round that it took part in.
    guarded : bool
        False only for the positive controls of attacks: nothing is kept back, and a step takes the
        whole batch of the round.
    privacy : Privacy, optional
        Of rounds with differential privacy (`site_agent.federated.private_training`), which count
        each release; nothing is then kept back, as the noise protects all rows.
    order_seed : int, optional
        Seed of the order of samples, from a secret of the site
        (`site_agent.federated.contribution_ledger`); by default the round's, for simulations.
    max_hours : float
        Stop as soon as the whole training will take longer than the site allows.

    Raises
    ------
    ContributionWithheldError
        The training takes too long.
    TrainingDataError
        The site has fewer samples than the round asks for, at least 2.
    TrainingFailedError
        The loss is not finite.
    InvalidInputError
        The base is no network that this program can train, or `before` does not fit it.
    """
    if len(samples) < settings.least_samples:
        text = f"found {len(samples)} samples, expected at least {settings.least_samples}"
        raise errors.TrainingDataError(None, text)
    if settings.dp_epsilon is not None:
        return SiteUpdate(
            _train_private_contribution(
                base, base_digest, samples, settings, site=site, round_number=round_number,
                privacy=privacy or Privacy(),
            )
        )  # fmt: skip
    architecture = base.metadata.get("architecture", "")
    task, start = task_of(architecture), assemble(base, before)
    half = find_half(method)(
        LocalRound(
            method, (options or find_method(method).options_type()).over(1), settings, site,
            round_number, base, base_digest, start, before, task,
        )
    )  # fmt: skip
    module = to_module(start, "the base")
    samples = half.hold_back(samples)
    generator = torch.Generator().manual_seed(
        seed_of(settings.seed, site, round_number) if order_seed is None else order_seed
    )
    optimiser = make_optimiser(
        settings.optimiser,
        module,
        settings.learning_rate_in(round_number),
        settings.momentum,
        settings.weight_decay,
    )
    with repeatable():
        data = task.to_tensors(samples)
        batch_size, epochs = settings.batch_size, settings.epochs
        if guarded:
            batch_size = batch_size_for(settings, len(samples))
            epochs = passes_for(settings, len(samples))
        half.prepare(module, samples, data)
        rows = WatchedRows(module, data, epochs)
        one_pass = partial(
            task.train_epoch, module, optimiser, data, batch_size, generator,
            extra_loss=half.extra_loss, after_step=half.after_step,
        )  # fmt: skip
        _train(one_pass, half, epochs, settings, round_number=round_number, max_hours=max_hours)
        rows.close()
        trained = from_module(module, architecture)
        shared = half.share(module, trained, subtract_network(trained, base))
        if guarded:
            rows.keep_back(shared.differences)
    contribution = NetworkContribution(
        network=StateDict(shared.differences, dict(base.infos)),
        holds="differences",
        samples=len(samples),
        base_digest=base_digest,
        settings=settings.shared(),
        shared={name: ~mask for name, mask in shared.kept.items() if mask.any()},
        statistics=shared.statistics,
    )
    if guarded:
        # So no result is further from its base than the round allows.
        contribution = clip_update(contribution, settings.most_change * norm_of(base))
    return SiteUpdate(contribution, shared.part)


def _train(
    one_pass: Callable[..., float],
    half: SiteHalf,
    epochs: int,
    settings: LocalTraining,
    *,
    round_number: int,
    max_hours: float,
) -> None:
    passes = epochs + half.more_passes
    timer = _Timer(f"{round_number} of its series", passes, max_hours)
    for number in range(passes):
        half.begin_pass(number)
        loss = one_pass(progress=timer.at_epoch(number))
        if not np.isfinite(loss):
            raise errors.TrainingFailedError(
                f"the loss is {loss} in round {round_number}: lower the learning rate "
                f"({settings.learning_rate:g})"
            )


def count_honest(labs: Collection[object], least_summed: int | None = None) -> int:
    """Return how many labs of a secure round can be relied on to add their share of the noise.

    Half of the invited labs are taken to be honest, and any of these may be missing from the sum.

    `least_summed`: Fewest labs that are summed; all of them by default.
    """
    summed = len(labs) if least_summed is None else min(least_summed, len(labs))
    return max(1, summed - (len(labs) - len(labs) // 2))


@dataclass(frozen=True)
class Privacy:
    """The ledger and budget of a site in rounds with differential privacy."""

    ledger: Path | None = None
    """Folder of the site's ledger; None in simulations, which release nothing."""
    most_epsilon: float | None = None
    """The site's budget for its data."""
    honest_labs: int = 1
    """Smallest number of labs that add their noise in a secure round."""


def _train_private_contribution(
    base: StateDict,
    base_digest: str,
    samples: Any,
    settings: LocalTraining,
    *,
    site: str,
    round_number: int,
    privacy: Privacy,
) -> NetworkContribution:
    if settings.optimiser != "sgd":
        raise errors.InvalidInputError(
            f"dp_epsilon: the noise is counted for sgd; the round asks for {settings.optimiser}"
        )
    module = to_module(base, "the base")
    architecture = base.metadata["architecture"]
    require_kind(architecture, "gaze", "dp_epsilon")
    private.require_private_network(module, architecture)
    plan = private.plan_privacy(settings, len(samples), privacy.honest_labs)
    if privacy.ledger is None:
        seed = seed_of(settings.seed, f"noise of {site}", round_number)
    else:
        private.PrivacyLedger(privacy.ledger).spend(
            plan,
            settings,
            samples,
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
    differences = subtract_network(from_module(module, architecture), base)
    if not all(np.isfinite(difference).all() for difference in differences.values()):
        raise errors.TrainingFailedError(
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
                raise errors.ContributionWithheldError(
                    self._round,
                    [
                        f"its {self._epochs} passes over your samples would take "
                        f"{total_s / 3600:.2g} hours, and this site trains for at most "
                        f"{self._limit_s / 3600:.2g} (--max-hours)"
                    ],
                )

        return check


def subtract_network(trained: StateDict, base: StateDict) -> dict[str, NDArray[np.generic]]:
    """Return floating-point entries less the base's; the others as trained."""
    return {
        name: np.subtract(trained.tensors[name], base.tensors[name])
        if info.dtype.startswith("F")
        else trained.tensors[name]
        for name, info in base.infos.items()
    }


def clip_update(contribution: NetworkContribution, norm: float) -> NetworkContribution:
    """Scale an update to a Euclidean norm of at most `norm` over all trained numbers."""
    network = contribution.network
    names = [name for name, info in network.infos.items() if info.dtype.startswith("F")]
    length = norm_of(network)
    if length <= norm:
        return contribution
    tensors = dict(network.tensors)
    for name in names:
        values = tensors[name].astype(np.float64) * (norm / length)
        tensors[name] = values.astype(tensors[name].dtype)
    return replace(contribution, network=StateDict(tensors, dict(network.infos), network.metadata))
