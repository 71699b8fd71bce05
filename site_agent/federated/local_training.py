"""A site's part in a round: training the round's network on its own samples.

The same inputs give the same bytes, so that all engines of rounds give equal results.
"""

import hashlib
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from aggregators.methods.contract import MethodOptions
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
from site_agent import errors
from site_agent.federated import personal as own
from site_agent.federated import private_training as private
from site_agent.federated.contribution_ledger import norm_of
from site_agent.federated.leak_checks import WatchedRows, batch_size_for, passes_for
from site_agent.federated.prototypes import HeadAndBody
from site_agent.federated.tasks import task_of
from site_agent.networks.architectures import require_kind
from site_agent.networks.modules import from_module, last_layer, personal_head, to_module
from site_agent.training.gaze.loop import make_optimiser, repeatable, to_tensors

if TYPE_CHECKING:
    from torch import nn

    from site_agent.federated.personal import Bits, PersonalPart

_TRIAL_SHARE = 0.05
"""Of the time that a site allows: after it, the time of the whole training is estimated."""


def seed_of(seed: int, site: str, round_number: int) -> int:
    """Return the seed of a site's training in a round, from SHA-256."""
    text = f"poolctl-round/1|{seed}|{round_number}|{site}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def train_contribution(
    base: StateDict,
    base_digest: str,
    samples: Any,
    settings: LocalTraining,
    *,
    site: str,
    round_number: int,
    guarded: bool = True,
    max_hours: float = math.inf,
    privacy: "Privacy | None" = None,
) -> NetworkContribution:
    """Return a site's contribution to a round of a method without personal parts.

    The parameters are those of `train_at_site`.
    """
    return train_at_site(
        base, base_digest, samples, settings, site=site, round_number=round_number,
        guarded=guarded, max_hours=max_hours, privacy=privacy,
    ).contribution  # fmt: skip


@dataclass(frozen=True, eq=False)
class SiteUpdate:
    """The result of a site's training: its contribution, and its personal part."""

    contribution: NetworkContribution
    part: "PersonalPart | None" = None
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
    before: "PersonalPart | None" = None,
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
    half = own.find_half(method)
    start, masks = own.assemble(base, before), {}
    module = to_module(start, "the base")
    task = task_of(architecture)
    home = samples[:0]
    if half is not None:
        masks = dict(
            before.chosen
            if before is not None
            else half.begins_with(
                own.trained_shapes(base),
                last_layer(module) if half.takes_replies else personal_head(module),
            )
        )
        if half.scores_at_home and getattr(options, "rho", 0) > 0:
            samples, home = task.split_home(samples)
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
        pull = _pull_to_start(module, float(getattr(options, "mu", 0.0)))
        hold = _hold_frozen(module, masks if getattr(options, "freeze", False) else {})
        parted = None
        if half is not None and half.takes_replies:
            parted = HeadAndBody(module, base, task, samples, data)
            pull = parted.pull(
                None if before is None else before.prototypes, getattr(options, "lam", 0.0)
            )
        rows = WatchedRows(module, data, epochs)
        one_pass = partial(
            task.train_epoch, module, optimiser, data, batch_size, generator,
            extra_loss=pull, after_step=hold,
        )  # fmt: skip
        _train(one_pass, epochs, parted, settings, round_number=round_number, max_hours=max_hours)
        rows.close()
        trained = from_module(module, architecture)
        # With replies, personal parts are sent too, because the server mixes them.
        kept = {} if parted is not None else masks
        differences = _without_personal(subtract_network(trained, base), kept)
        if guarded:
            rows.keep_back(differences)
        part = None
        if half is not None:
            score = task.score_home(module, home, samples) if len(home) else math.nan
            part = own.next_part(
                half, options, method=method, site=site, base_digest=base_digest,
                round_number=round_number, before=before, personal=masks, start=start,
                trained=trained, score=score,
                seed=seed_of(settings.seed, f"personal part of {site}", round_number),
            )  # fmt: skip
    contribution = NetworkContribution(
        network=StateDict(differences, dict(base.infos)),
        holds="differences",
        samples=len(samples),
        base_digest=base_digest,
        settings=settings.shared(),
        shared={name: ~mask for name, mask in kept.items() if mask.any()},
        statistics=None if parted is None else parted.statistics,
    )
    return SiteUpdate(_shorten(contribution, base, settings) if guarded else contribution, part)


def _shorten(
    contribution: NetworkContribution, base: StateDict, settings: LocalTraining
) -> NetworkContribution:
    """Shorten an update as the round asks, so that no result is further from its base."""
    return clip_update(contribution, settings.most_change * norm_of(base))


def _without_personal(
    differences: Mapping[str, NDArray[np.generic]], masks: "Mapping[str, Bits]"
) -> dict[str, NDArray[np.generic]]:
    """Return the differences, with zeros where a number stays at home."""
    kept = {name: differences[name].dtype.type(0) for name in masks}
    return {
        name: np.where(masks[name], kept[name], value) if name in masks else value
        for name, value in differences.items()
    }


def _train(
    one_pass: Callable[..., float],
    epochs: int,
    parted: "HeadAndBody | None",
    settings: LocalTraining,
    *,
    round_number: int,
    max_hours: float,
) -> None:
    """Train for some passes, and before them for one of the head alone where it is apart."""
    passes = epochs if parted is None else epochs + 1
    timer = _Timer(f"{round_number} of its series", passes, max_hours)
    for number in range(passes):
        if parted is not None:
            parted.begin(number)
        loss = one_pass(progress=timer.at_epoch(number))
        if not np.isfinite(loss):
            raise errors.TrainingFailedError(
                f"the loss is {loss} in round {round_number}: lower the learning rate "
                f"({settings.learning_rate:g})"
            )


def _pull_to_start(
    module: "nn.Module", mu: float
) -> "Callable[[torch.Tensor], torch.Tensor] | None":
    """Return FedProx's term, ``mu / 2`` times the squared distance from the network as it is."""
    if mu == 0:
        return None
    start = [parameter.detach().clone() for parameter in module.parameters()]

    def term(_batch: torch.Tensor) -> torch.Tensor:
        pairs = zip(module.parameters(), start, strict=True)
        return mu / 2 * torch.stack([(now - then).square().sum() for now, then in pairs]).sum()

    return term


def _hold_frozen(module: "nn.Module", masks: "Mapping[str, Bits]") -> Callable[[], None] | None:
    """Return a function that restores the current numbers of `masks`."""
    held = [
        (parameter, torch.from_numpy(masks[name]), parameter.detach().clone())
        for name, parameter in module.named_parameters()
        if name in masks and masks[name].any()
    ]
    if not held:
        return None

    def hold() -> None:
        with torch.no_grad():
            for round_, mask, value in held:
                round_.copy_(torch.where(mask, value, round_))

    return hold


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
