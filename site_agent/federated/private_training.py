"""Training with differential privacy: bounds on the leaks about one sample, or one person.

Two ways, by the protected unit (`LocalTraining.dp_unit`):

- ``sample``: DP-SGD (Abadi et al. 2016). Each step draws each sample with the probability batch /
  samples, clips its gradient to the norm `clip`, and adds Gaussian noise to the sum.
- ``person``: each person's update is trained from the base as without privacy, and clipped as a
  whole (McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models"); noise is
  added to the sum over the site's persons, once a round.

The noise on each number does not depend on the number of trained numbers, so its norm grows with
their square root. So the last layer alone is trained (`LocalTraining.dp_layers`), on a base that
has learned to see from other data. From such a base all layers gain the same in three times the
time: 15 drawn persons at epsilon 8 go from 5.55 to 4.77 degrees, by the last layer to 4.79
(measured in aggregators/README.md). From a new base neither learns much; in a small site the noise
covers all (`noise_words` warns of it).

The noise is such that all rounds of a series together stay within `dp_epsilon`
(`find_noise_multiplier`), by Opacus' accountant of privacy loss variables (PRV), or of Renyi
differential privacy where that bound is lower; the latter alone asks for some 7 % more noise.
Before a training begins, its release is written to the site's ledger and is on disk
(`PrivacyLedger`); a site that is killed and trains again has spent twice, never less than it
released.

Covered: the update that leaves the site, against anybody, for a neighbouring data set with one
sample (or person) more or less. Not covered: the number of samples, and that the site took part.
Bases of rounds are not audited, as a refusal would tell of the site's data; parts of split
trainings are, and a refusal of one is not covered. In a secure round of ``person``
each lab adds only its share of the noise, so that the sum has all of it: with half of the labs
honest the epsilon holds for the sum, and nobody sees a part of it. ``sample`` adds all noise at
each lab, as training is not linear in it. Networks with BatchNorm mix samples and are refused.
"""

import hashlib
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from aggregators.methods.round_options import FALSE_ALARMS, LocalTraining
from site_agent.datasets.gaze.records import GazeSamples, sample_marks
from site_agent.errors import ContributionWithheldError, InvalidInputError
from site_agent.federated.leak_checks import batch_size_for
from site_agent.networks.modules import last_layer
from site_agent.training.gaze.loop import GazeTensors, sgd, train_epoch
from site_agent.wording import count_words
from site_agent.work.ledger import Ledger

_OF_SAMPLES = "grad_sample"
"""Where Opacus leaves the gradients of single samples."""

MOST_NOISE = 10.0
"""`noise_ratio` up to which networks learned something (tests/benchmarks/README.md)."""

_AT_ONCE = 16
"""Samples with gradients in memory together."""

History = tuple[tuple[float, float, int], ...]
"""Noise multiplier, sampling rate and number of steps of each release."""


@dataclass(frozen=True)
class PrivacyPlan:
    """The sampling and the noise that keep a site's training in one round private."""

    noise_multiplier: float
    """Standard deviation of the noise in units of `clip`."""
    sample_rate: float
    """Probability with which a step draws each unit."""
    steps: int
    """Number of steps in one round."""
    noise_share: float = 1.0
    """This site's share of the noise's standard deviation; below 1 in secure rounds of persons."""

    @property
    def release(self) -> tuple[float, float, int]:
        """The cost of one round."""
        return self.noise_multiplier, self.sample_rate, self.steps


def plan_privacy(settings: LocalTraining, samples: int, honest_labs: int = 1) -> PrivacyPlan:
    """Return the noise with which all rounds of a series stay within the round's epsilon.

    `honest_labs`: Smallest number of labs that add their share of the noise in a secure round.
    """
    assert settings.dp_epsilon is not None, "the round has no differential privacy"
    if settings.dp_unit == "person":
        rate, steps, share = 1.0, 1, 1 / math.sqrt(honest_labs)
    else:
        rate = batch_size_for(settings, samples) / samples
        steps, share = settings.epochs * math.ceil(1 / rate), 1.0
    noise = find_noise_multiplier(
        settings.dp_epsilon, settings.dp_delta, rate, steps * settings.dp_rounds
    )
    return PrivacyPlan(noise, rate, steps, share)


@cache
def find_noise_multiplier(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """Return a noise multiplier for an epsilon, to 2 % the smallest by Opacus' accountants.

    Raises `InvalidInputError`: no noise is enough.

    The search for less noise begins with the multiplier by Renyi, which is enough. For that one
    Opacus computes the epsilon at every order, the fractional ones slowly, for each multiplier that
    it tries. Any choice of orders bounds the epsilon from above, so the whole orders say first near
    which order the lowest bound is, and only those decide.
    """
    from opacus.accountants import RDPAccountant
    from opacus.accountants.utils import get_noise_multiplier

    def search(orders: Sequence[float]) -> float:
        return float(
            get_noise_multiplier(
                target_epsilon=epsilon,
                target_delta=delta,
                sample_rate=sample_rate,
                steps=steps,
                accountant="rdp",
                alphas=orders,
            )
        )

    whole = range(2, 64)
    accountant = RDPAccountant()
    with _quiet():
        try:
            accountant.history = [(search(whole), sample_rate, steps)]
        except ValueError:
            raise InvalidInputError(
                f"no noise keeps {count_words(steps, 'step')} within epsilon {epsilon:g} at delta "
                f"{delta:g}; take a larger epsilon or fewer rounds"
            ) from None
        _, best = accountant.get_privacy_spent(delta=delta, alphas=list(whole))
        enough = search([order for order in accountant.DEFAULT_ALPHAS if abs(order - best) <= 1])
    too_little = _LEAST_NOISE * enough
    while too_little < (1 - _NOISE_STEP) * enough:
        middle = (too_little + enough) / 2
        if _epsilon_by_loss(((middle, sample_rate, steps),), delta) <= epsilon:
            enough = middle
        else:
            too_little = middle
    return enough


_LEAST_NOISE, _NOISE_STEP = 0.85, 0.02
"""Of the noise that the bound by Renyi asks for: where the search begins, and its resolution."""

_MOST_STEPS = 100_000
"""Of the accountant of privacy loss variables: its memory grows with them."""


def epsilon_of(history: History, delta: float) -> float:
    """Return the epsilon of releases together, by the closer of Opacus' accountants; 0 for none."""
    from opacus.accountants import RDPAccountant

    if not history:
        return 0.0
    accountant = RDPAccountant()
    accountant.history = list(history)
    with _quiet():
        by_renyi = float(accountant.get_epsilon(delta))
    return min(by_renyi, _epsilon_by_loss(history, delta))


@cache
def _epsilon_by_loss(history: History, delta: float) -> float:
    """Return the epsilon by privacy loss variables, from above; infinity where they fail.

    Source: Gopi, Lee and Wutschitz 2021, "Numerical Composition of Differential Privacy".
    """
    from opacus.accountants import PRVAccountant

    counts: Counter[tuple[float, float]] = Counter()
    for noise, rate, steps in history:
        counts[noise, rate] += steps
    if counts.total() > _MOST_STEPS:
        return math.inf
    accountant = PRVAccountant()
    accountant.history = [(*release, steps) for release, steps in counts.items()]
    try:
        with _quiet():
            epsilon = float(accountant.get_epsilon(delta))
    except (ArithmeticError, RuntimeError, ValueError, MemoryError):
        return math.inf
    return epsilon if math.isfinite(epsilon) else math.inf


def most_told_by(plan: PrivacyPlan, rounds: int) -> float:
    """Return which share of members any attack finds at 1 % false alarms, by a training's noise.

    Each order of Renyi bounds delta at each epsilon, and these bound the attack together: closer
    than one epsilon and delta alone (`aggregators.methods.round_options.most_told`).
    """
    from opacus.accountants.analysis.rdp import compute_rdp

    orders, epsilons = np.arange(1.25, 64, 0.25), np.linspace(0, 20, 401)[:, None]
    spent = compute_rdp(
        q=plan.sample_rate,
        noise_multiplier=plan.noise_multiplier,
        steps=plan.steps * rounds,
        orders=orders.tolist(),
    )
    deltas = (orders - 1) * (spent - epsilons + np.log1p(-1 / orders)) - np.log(orders)
    told = FALSE_ALARMS * np.exp(epsilons) + np.exp(np.minimum(deltas, 0.0))
    return min(1.0, float(told.min()))


def trained_parameters(module: nn.Module, settings: LocalTraining) -> dict[str, nn.Parameter]:
    """Return the parameters that are trained, and get noise, by name."""
    every = dict(module.named_parameters())
    return (
        every if settings.dp_layers == "all" else {x: every[x] for x in sorted(last_layer(module))}
    )


def noise_ratio(
    settings: LocalTraining, units: int, numbers: int, sites: int, honest_labs: int = 1
) -> float:
    """Return the ratio of a series' noise to the largest change that it can make.

    Both are norms, of the mean over the sites.

    `units`: Samples of a site, or persons; the other sites are assumed equal. `numbers`:
    Number of trained numbers. `honest_labs`: As in `plan_privacy`.
    """
    plan = plan_privacy(settings, units, honest_labs)
    # Changes add up over steps, rounds and sites; noise does so like a random walk.
    added = plan.steps * settings.dp_rounds * sites
    noise = plan.noise_multiplier * plan.noise_share * math.sqrt(numbers / added)
    return noise / (plan.sample_rate * units)


def noise_words(
    settings: LocalTraining, units: int, numbers: int, sites: int, honest_labs: int = 1
) -> str:
    """Describe the noise in the result, with advice if it drowns the training.

    Parameters are those of `noise_ratio`.
    """
    ratio = noise_ratio(settings, units, numbers, sites, honest_labs)
    state = (
        f"with {units} {settings.dp_unit}{'s' if units > 1 else ''} at each of {sites} sites and "
        f"epsilon {settings.dp_epsilon:g}, the noise in the result is {ratio:.2g} times the "
        "largest change that all of them can make together"
    )
    if ratio <= MOST_NOISE:
        return state
    layers = "dp_layers=last, " if settings.dp_layers == "all" else ""
    unit = "dp_unit=sample, " if settings.dp_unit == "person" else ""
    return (
        f"expect nothing to be learned: {state} (networks have learned up to {MOST_NOISE:g}); take "
        f"{layers}{unit}a larger epsilon or more {settings.dp_unit}s"
    )


class PrivacyLedger:
    """The privacy spent by a machine's data in all rounds and split trainings.

    Samples and persons have one budget, as a bound for a person holds for each of her samples. Data
    are known again by their pictures, and by the names of persons.

    `folder`: ``spent.jsonl`` in it has one line a training, and one a data set.
    """

    def __init__(self, folder: Path) -> None:
        self._ledger = Ledger(folder / "spent.jsonl")

    def epsilon(self, samples: GazeSamples, delta: float) -> float:
        """Return the epsilon that the data have spent."""
        with self._ledger.at_work():
            return epsilon_of(self._history(samples), delta)

    def spend(
        self,
        plan: PrivacyPlan,
        settings: LocalTraining,
        samples: GazeSamples,
        *,
        round_name: str,
        most_epsilon: float | None,
    ) -> float:
        """Write down a release before it is made, and return the epsilon of all until then.

        Raises `ContributionWithheldError` if the data have a budget, and this release would go
        beyond it; nothing is written.
        """
        with self._ledger.at_work():
            history = (*self._history(samples), plan.release)
            spent = epsilon_of(history, settings.dp_delta)
            if most_epsilon is not None and spent > most_epsilon:
                raise ContributionWithheldError(
                    round_name,
                    [
                        f"these data would have spent epsilon {spent:.2f} at delta "
                        f"{settings.dp_delta:g}, and this site allows {most_epsilon:g} "
                        "(--most-epsilon)"
                    ],
                    hint="take part with other data, or in rounds with a smaller dp_epsilon",
                )
            marks = sorted(set(sample_marks(samples.patches)))
            digest = hashlib.sha256(" ".join(marks).encode()).hexdigest()
            if not self._ledger.find("data", digest=digest):
                self._ledger.append({"kind": "data", "digest": digest, "marks": marks})
            self._ledger.append(
                {
                    "kind": "release",
                    "round": round_name,
                    "unit": settings.dp_unit,
                    "data": digest,
                    "persons": np.unique(samples.person).tolist(),
                    "release": list(plan.release),
                }
            )
            return spent

    def _history(self, samples: GazeSamples) -> History:
        # A release with any of the pictures or persons counts as one with all of them.
        marks, persons = set(sample_marks(samples.patches)), set(samples.person.tolist())
        known = {
            entry["digest"] for entry in self._ledger.find("data") if marks & set(entry["marks"])
        }
        return tuple(
            (float(noise), float(rate), int(steps))
            for noise, rate, steps in (
                entry["release"]
                for entry in self._ledger.find("release")
                if entry["data"] in known or persons & set(entry["persons"])
            )
        )


def require_private_network(module: nn.Module, name: str) -> None:
    """Raise `InvalidInputError` for a network that mixes samples of a batch."""
    mixing = next(
        (module for module in module.modules() if isinstance(module, nn.BatchNorm2d)), None
    )
    if mixing is not None:
        raise InvalidInputError(
            f"{name} has BatchNorm: its statistics mix samples and are not covered by "
            "differential privacy; expected a network without it, such as gaze-lenet"
        )


def train_privately(
    module: nn.Module,
    data: GazeTensors,
    samples: GazeSamples,
    settings: LocalTraining,
    plan: PrivacyPlan,
    *,
    round_number: int,
    seed: int,
) -> int:
    """Train a network in place, and return the number of units by which its update is weighed.

    `seed`: Of the draws and the noise. Knowing it, anybody can take the noise away.
    """
    generator = torch.Generator().manual_seed(seed)
    rate = settings.learning_rate_in(round_number)
    trained = trained_parameters(module, settings)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(name in trained)
    if settings.dp_unit == "person":
        persons = [np.flatnonzero(samples.person == name) for name in np.unique(samples.person)]
        _sum_persons(
            module,
            data,
            persons=persons,
            settings=settings,
            plan=plan,
            rate=rate,
            generator=generator,
        )
        return len(persons)
    with _quiet():
        _train_by_samples(
            module, data, settings=settings, plan=plan, rate=rate, generator=generator
        )
    return len(data)


def _train_by_samples(
    module: nn.Module,
    data: GazeTensors,
    *,
    settings: LocalTraining,
    plan: PrivacyPlan,
    rate: float,
    generator: torch.Generator,
) -> None:
    optimiser = sgd(module, rate, settings.momentum, settings.weight_decay)
    sampled = watch_samples(module)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    expected = plan.sample_rate * len(data)
    module.train()
    for _ in range(plan.steps):
        drawn = torch.rand(len(data), generator=generator) < plan.sample_rate
        totals = [torch.zeros_like(parameter) for parameter in parameters]
        for part in torch.split(drawn.nonzero().flatten(), _AT_ONCE):
            if not len(part):
                continue
            answers = sampled(data.patches[part], data.head[part])
            # Each sample's loss is the mean over yaw and pitch, as without privacy.
            loss = functional.l1_loss(answers, data.gaze[part], reduction="sum") / 2
            loss.backward()  # type: ignore[no-untyped-call]
            add_clipped(totals, parameters, settings.clip)
            sampled.zero_grad(set_to_none=True)
        deviation = plan.noise_multiplier * settings.clip * plan.noise_share
        set_noisy(totals, parameters, deviation, expected, generator)
        optimiser.step()
    sampled.to_standard_module()


def watch_samples(module: nn.Module) -> Any:
    """Return Opacus' wrapper, by which backward passes leave the gradients of single samples.

    Opacus reads the inputs of convolutions as if their channels came first in memory; where they
    come last, its gradients are wrong, and it does not say so. So the module gets a new layout.
    """
    from opacus.grad_sample import GradSampleModule

    module.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    with _quiet():
        return GradSampleModule(module, loss_reduction="sum")


def add_clipped(
    totals: Sequence[torch.Tensor], parameters: Sequence[nn.Parameter], clip: float
) -> None:
    """Add the samples' gradients, which Opacus has left, each clipped to a norm over all of them.

    `totals`: In the shapes of the parameters; changed in place.
    """
    gradients: list[torch.Tensor] = [
        getattr(parameter, _OF_SAMPLES).flatten(1) for parameter in parameters
    ]
    norms = torch.stack([gradient.norm(dim=1) for gradient in gradients]).norm(dim=0)
    factors = (clip / norms.clamp(min=1e-12)).clamp(max=1.0)
    # A gradient beyond all numbers counts as none: it may not get past the bound.
    good = norms.isfinite()
    for sum_of_all, gradient in zip(totals, gradients, strict=True):
        sum_of_all.add_((factors[good] @ gradient[good]).view_as(sum_of_all))


def set_noisy(
    totals: Sequence[torch.Tensor],
    parameters: Sequence[nn.Parameter],
    deviation: float,
    expected: float,
    generator: torch.Generator,
) -> None:
    """Set the gradient of each parameter to a sum with noise, over the expected number of samples.

    `deviation`: Standard deviation of the noise on the sums.
    """
    for parameter, total in zip(parameters, totals, strict=True):
        noise = torch.randn(total.shape, generator=generator) * deviation
        parameter.grad = (total + noise) / expected
        setattr(parameter, _OF_SAMPLES, None)


def _sum_persons(
    module: nn.Module,
    data: GazeTensors,
    *,
    persons: Sequence[np.ndarray[tuple[int], np.dtype[np.intp]]],
    settings: LocalTraining,
    plan: PrivacyPlan,
    rate: float,
    generator: torch.Generator,
) -> None:
    base = {name: item.detach().clone() for name, item in module.state_dict().items()}
    trained = trained_parameters(module, settings)
    totals = {name: torch.zeros_like(base[name]) for name in trained}
    for rows in persons:
        module.load_state_dict(base)
        part = GazeTensors(data.patches[rows], data.head[rows], data.gaze[rows])
        optimiser = sgd(module, rate, settings.momentum, settings.weight_decay)
        for _ in range(settings.epochs):
            train_epoch(module, optimiser, part, batch_size_for(settings, len(rows)), generator)
        change = {name: module.state_dict()[name] - base[name] for name in trained}
        norm = torch.stack([item.norm() for item in change.values()]).norm()
        if not norm.isfinite():
            continue  # it counts as no change: it may not get past the bound
        factor = (settings.clip / norm.clamp(min=1e-12)).clamp(max=1.0)
        for name, item in change.items():
            totals[name] += factor * item
    deviation = plan.noise_multiplier * settings.clip * plan.noise_share
    with torch.no_grad():
        for name, total in totals.items():
            noise = torch.randn(total.shape, generator=generator) * deviation
            base[name] += (total + noise) / len(persons)
    module.load_state_dict(base)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide Opacus' advice to programmers from users: wider orders would tighten epsilon."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
