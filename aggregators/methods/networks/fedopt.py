"""FedOpt: a server optimiser that takes the mean update of a round as its gradient."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from aggregators.errors import IncompatibleModelsError
from aggregators.methods.contract import Combined, OptionsT, Progress
from aggregators.methods.networks import fedavg
from aggregators.methods.networks import updates as network_updates
from aggregators.methods.sub_models import SubModel, SubModels
from aggregators.models import Float64, MergeInput, OptimiserState, StateDict, TensorInfo

_STATISTICS = ("running_mean", "running_var")
"""Ends of the names of BatchNorm's statistics, which are averaged as by FedAvg."""

Moments = Mapping[str, Float64]


class FedAvgMOptions(fedavg.MeanOptions):
    """Options of FedAvgM."""

    eta: float = Field(default=1.0, gt=0, description="Server learning rate.")
    beta: float = Field(default=0.7, ge=0, lt=1, description="Decay of the momentum.")


class AdaptiveOptions(fedavg.MeanOptions):
    """Options of the adaptive methods."""

    eta: float = Field(
        default=15.0,
        gt=0,
        description="Server learning rate, in root mean squares of the first mean update: the step "
        "of a parameter if its updates agree in all rounds.",
    )
    beta1: float = Field(default=0.5, ge=0, lt=1, description="Decay of the momentum.")
    tau: float = Field(
        default=3.0,
        ge=0,
        description="Degree of adaptivity, in the same unit as eta; v starts as its square.",
    )
    root: Literal["sqrt(v)+tau", "sqrt(v+tau^2)"] = Field(
        default="sqrt(v)+tau", description="The divisor; the gaze paper has sqrt(v+tau^2)."
    )


class AdagradOptions(AdaptiveOptions):
    """Options of FedAdagrad: v only grows, so that steps need a larger tau to last."""

    eta: float = Field(default=150.0, gt=0, description="Server learning rate, in fedadam's unit.")
    tau: float = Field(default=30.0, ge=0, description="Degree of adaptivity, in fedadam's unit.")


class TwoBetasOptions(AdaptiveOptions):
    """Options of FedAdam and FedYogi."""

    beta2: float = Field(default=0.99, ge=0, lt=1, description="Decay of the variance.")


class _FedOpt(network_updates.NetworkMethod[OptionsT]):
    """``w += step(mean of the updates, state)``, and a new state.

    The inputs are the base, contributions to it, and the state that was written with the base;
    the first round has none. BatchNorm's running statistics are averaged, never stepped.
    """

    version = 3
    moments: ClassVar[tuple[str, ...]] = ("momentum", "variance")

    def merge_key(self, _fingerprint: Mapping[str, Any]) -> str | None:
        # A contribution fits only its base.
        return None

    def first_moments(self, _options: Any, _unit: float, size: int) -> Moments:
        """Return the moments before the first round; there is no bias correction."""
        return {"momentum": np.zeros(size)}

    def step(
        self, delta: Float64, moments: Moments, options: Any, unit: float
    ) -> tuple[Float64, Moments]:
        """Return the change of some parameters, and their new moments.

        Parameters
        ----------
        delta : float64, shape (numbers,)
            Weighted mean of the sites' updates.
        moments : mapping of str to float64, shape (numbers,)
        unit : float
            Root mean square of the first mean update; 0 for methods that do not need it.
        """
        raise NotImplementedError

    def combine(
        self, sub_models: SubModels[MergeInput], options: Any, _progress: Progress, /
    ) -> Combined:
        inputs, old_state = network_updates.split_state(sub_models)
        base = network_updates.require_base(inputs, self.name)
        updates = network_updates.collect_updates(inputs, self.name)
        if updates.base is None:
            raise IncompatibleModelsError(
                "number of contributions",
                "at least 1",
                "0",
                first_name=self.name,
                other_name="the inputs",
                hint="networks without a base are merged by fedavg",
            )
        # Compared before anything is computed: a state of another round would spoil the result
        # without a sign.
        infos = self._moment_infos(updates)
        if old_state is not None:
            _require_fitting(old_state, self.name, base, infos)
        state = old_state.model.moments if old_state else None
        weights = fedavg.site_weights(updates, options)
        if old_state is not None:
            unit = old_state.model.unit
        else:
            unit = _mean_update_rms(updates, weights) if "variance" in self.moments else 0.0
        stepping = _Stepping(self, updates, options, weights, state, unit)
        network = network_updates.stream_network(
            updates, stepping.change, network_updates.pick_first(updates)
        )
        moments = network_updates.ComputedTensors(
            infos, lambda name: stepping.moment(*name.split("/", 1))
        )
        warnings = network_updates.warn_of_differing_entries(
            updates
        ) + network_updates.warn_of_lone_mover(updates, weights)
        if old_state is None:
            warnings = (*warnings, f"no optimiser state was given: {self.name} starts afresh")
        kept = OptimiserState(StateDict(moments, infos), self.name, "", unit)
        return Combined(network, warnings, kept)

    def _moment_infos(self, updates: network_updates.Updates) -> dict[str, TensorInfo]:
        return {
            f"{moment}/{name}": TensorInfo(
                "F64" if updates.infos[name].dtype == "F64" else "F32", updates.infos[name].shape
            )
            for moment in self.moments
            for name in updates.float_names
            if not name.endswith(_STATISTICS)
        }


class FedAvgM(_FedOpt[FedAvgMOptions]):
    """``m = beta m + delta``, ``w += eta m``: FedAvg with momentum.

    Source: Hsu et al. 2019, "Measuring the Effects of Non-Identical Data Distribution for
    Federated Visual Classification".
    """

    name = "fedavgm"
    summary = "a network and its contributions: mean update with momentum"
    moments = ("momentum",)
    options_type = FedAvgMOptions

    def step(
        self, delta: Float64, moments: Moments, options: FedAvgMOptions, _unit: float
    ) -> tuple[Float64, Moments]:
        momentum = options.beta * moments["momentum"] + delta
        return options.eta * momentum, {"momentum": momentum}


class _Adaptive(_FedOpt[OptionsT]):
    """``m = beta1 m + (1 - beta1) delta``, ``w += eta m / (sqrt(v) + tau)``; v by the method.

    The size of updates depends on the network, the learning rate and the data. With a tau far above
    them the method is momentum, and steps of another size than theirs do not train: so eta and tau
    are given in root mean squares of the first mean update, which the state keeps.

    Source: Reddi et al. 2021, "Adaptive Federated Optimization", algorithm 2.
    """

    def variance(self, variance: Float64, square: Float64, options: Any) -> Float64:
        """Return the new variance from the old one and the squares of delta."""
        raise NotImplementedError

    def first_moments(self, options: AdaptiveOptions, unit: float, size: int) -> Moments:
        variance = np.full(size, (options.tau * unit) ** 2)
        return {"momentum": np.zeros(size), "variance": variance}

    def step(
        self, delta: Float64, moments: Moments, options: AdaptiveOptions, unit: float
    ) -> tuple[Float64, Moments]:
        eta, tau = options.eta * unit, options.tau * unit
        momentum = options.beta1 * moments["momentum"] + (1 - options.beta1) * delta
        variance = self.variance(moments["variance"], delta * delta, options)
        if options.root == "sqrt(v+tau^2)":
            divisor = np.sqrt(variance + tau**2)
        else:
            divisor = np.sqrt(variance) + tau
        # With a tau of 0, what has never changed has a variance of 0.
        change = np.divide(eta * momentum, divisor, out=np.zeros_like(momentum), where=divisor > 0)
        return change, {"momentum": momentum, "variance": variance}


class FedAdam(_Adaptive[TwoBetasOptions]):
    """``v = beta2 v + (1 - beta2) delta^2``."""

    name = "fedadam"
    summary = "a network and its contributions: step by Adam"
    options_type = TwoBetasOptions

    def variance(self, variance: Float64, square: Float64, options: TwoBetasOptions) -> Float64:
        return options.beta2 * variance + (1 - options.beta2) * square


class FedYogi(_Adaptive[TwoBetasOptions]):
    """``v = v - (1 - beta2) delta^2 sign(v - delta^2)``."""

    name = "fedyogi"
    summary = "a network and its contributions: step by Yogi"
    options_type = TwoBetasOptions

    def variance(self, variance: Float64, square: Float64, options: TwoBetasOptions) -> Float64:
        return variance - (1 - options.beta2) * square * np.sign(variance - square)


class FedAdagrad(_Adaptive[AdagradOptions]):
    """``v = v + delta^2``."""

    name = "fedadagrad"
    summary = "a network and its contributions: step by Adagrad"
    options_type = AdagradOptions

    def variance(self, variance: Float64, square: Float64, _options: AdagradOptions) -> Float64:
        return variance + square


@dataclass(frozen=True, eq=False)
class _Stepping:
    """Streams a method's steps over the entries of a network."""

    method: _FedOpt[Any]
    updates: network_updates.Updates
    options: Any
    weights: Float64
    state: StateDict | None
    unit: float
    means: dict[str, Float64] = field(default_factory=dict)
    """The mean updates, flattened, of entries that were computed: network and moments need them,
    and reading all sites again would take as long. They take twice the room of a network in
    float32."""

    def change(self, name: str, block: slice, rows: Float64) -> Float64:
        """Return the change of a block of the base."""
        if not np.isfinite(rows).all():
            rows = np.where(np.isfinite(rows), rows, np.nan)
            fedavg.require_numbers(self.updates, name, rows)
        mean = fedavg.weighted_mean(rows, self.weights)
        # A step could make a running variance negative.
        if name.endswith(_STATISTICS):
            return mean
        if name not in self.means:
            self.means[name] = np.empty(math.prod(self.updates.infos[name].shape))
        self.means[name][block] = mean
        return self._step(name, block)[0]

    def moment(self, moment: str, name: str) -> NDArray[np.generic]:
        """Return a new moment of an entry."""
        if name not in self.means:
            for block in self.updates.blocks(name):
                self.change(name, block, self.updates.rows(name, block))
        info = self.updates.infos[name]
        # A state from a file continues with the same bits as one in memory, so both are rounded to
        # the precision of the file.
        stored_as = (
            np.float64 if network_updates.numpy_type(info.dtype) is np.float64 else np.float32
        )
        entry = np.empty(info.shape, dtype=stored_as)
        flat = entry.reshape(-1)
        for block in self.updates.blocks(name):
            flat[block] = self._step(name, block)[1][moment]
        return entry

    def _step(self, name: str, block: slice) -> tuple[Float64, Moments]:
        moments = self._moments(name, block)
        return self.method.step(self.means[name][block], moments, self.options, self.unit)

    def _moments(self, name: str, block: slice) -> Moments:
        if self.state is None:
            return self.method.first_moments(self.options, self.unit, block.stop - block.start)
        tensors = self.state.tensors
        return {
            moment: tensors[f"{moment}/{name}"].reshape(-1)[block].astype(np.float64)
            for moment in self.method.moments
        }


def _mean_update_rms(updates: network_updates.Updates, weights: Float64) -> float:
    """Return the root mean square of the mean update, over all entries that are stepped."""
    squares, count = 0.0, 0
    for name in updates.float_names:
        if name.endswith(_STATISTICS):
            continue
        for block in updates.blocks(name):
            with np.errstate(invalid="ignore", over="ignore"):
                mean = fedavg.weighted_mean(updates.rows(name, block), weights)
            # Not a dot product: how BLAS adds up depends on its threads.
            squares += float(np.square(mean).sum())
            count += len(mean)
    # Numbers that are not finite are refused where they are stepped, with their entry's name.
    rms = math.sqrt(squares / count) if count and math.isfinite(squares) else 0.0
    # All machines must step alike, whatever the last bits of their sums.
    return float(f"{rms:.13g}")


def _require_fitting(
    state: SubModel[OptimiserState],
    method: str,
    base: SubModel[StateDict],
    infos: Mapping[str, TensorInfo],
) -> None:
    """Raise `IncompatibleModelsError` unless a state was made with the base, by this method."""
    optimiser = state.model
    for what, expected, theirs in (
        ("method", method, optimiser.method),
        ("base", base.digest, optimiser.network_digest),
    ):
        if expected != theirs:
            raise IncompatibleModelsError(
                what,
                expected[:16],
                theirs[:16],
                first_name=base.name,
                other_name=state.name,
                hint="give the state that was written with the base",
            )
    network_updates.require_same_entries(base.name, infos, state.name, optimiser.moments.infos)
