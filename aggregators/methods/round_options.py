"""Options of rounds of networks: of the method, of the sites' training, and of their protection."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from aggregators.errors import OptionError
from aggregators.methods.contract import MethodOptions, check_options
from aggregators.methods.registry import METHODS, find_method


class LocalTraining(MethodOptions):
    """Settings of one site's training in a round: SGD with Nesterov momentum, or AdamW.

    The learning rate of round r, counted from 1, is ``learning_rate / (1 + learning_rate_decay
    (r - 1))``. It is constant by default: on drawn and real eyes, a few rounds of many small
    steps gained more than larger batches, lower rates or a decay. Each site shuffles its samples by
    a secret; simulations do so by the seed, the site's name and the round.
    """

    epochs: int = Field(default=1, ge=1, le=1000, description="passes over the site's samples")
    batch_size: int = Field(default=8, ge=1, le=65_536, description="samples of each step")
    learning_rate: float = Field(
        default=0.02, gt=0, le=10, description="learning rate of the first round"
    )
    learning_rate_decay: float = Field(
        default=0.0, ge=0, le=10, description="inverse decay of the learning rate over rounds"
    )
    optimiser: Literal["sgd", "adamw"] = Field(
        default="sgd",
        description="use adamw for saliency networks and cross-encoders, at a rate of about 0.001",
    )
    momentum: float = Field(default=0.9, ge=0, lt=1, description="Nesterov momentum of sgd")
    weight_decay: float = Field(default=0.0, ge=0, le=1, description="L2 penalty")
    seed: int = Field(
        default=0, ge=0, lt=2**53, description="seed of the order of samples in simulations"
    )
    most_change: float = Field(
        default=0.25,
        gt=0,
        le=1e6,
        description="largest norm of a site's update, as a share of the base's norm: longer ones "
        "are shortened",
    )
    least_samples: int = Field(
        default=2, ge=2, le=2**53, description="sites with fewer samples are left out"
    )
    dp_epsilon: float | None = Field(
        default=None,
        gt=0,
        le=1000,
        description="differential privacy: epsilon of all rounds of a series together",
    )
    dp_delta: float = Field(default=1e-5, gt=0, lt=0.1, description="delta of dp_epsilon")
    dp_clip: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="largest norm of one sample's gradient (0.1) or person's update (0.1 / rounds)",
    )
    dp_unit: Literal["sample", "person"] = Field(
        default="sample",
        description="Unit that dp_epsilon protects: one sample, or all of one person",
    )
    dp_layers: Literal["last", "all"] = Field(
        default="last",
        description="Layers trained with dp_epsilon: the last, or all, which takes longer, and "
        "gains no more from few samples",
    )
    dp_rounds: int = Field(
        default=1, ge=1, le=100_000, description="rounds that dp_epsilon covers; set automatically"
    )

    def learning_rate_in(self, round_number: int) -> float:
        """Return the learning rate of a round, counted from 1."""
        return self.learning_rate / (1.0 + self.learning_rate_decay * (round_number - 1))

    @property
    def clip(self) -> float:
        """The largest norm of a sample's gradient or a person's update.

        The noise that a series adds to a network is in proportion to clip and rounds.
        """
        if self.dp_clip is not None:
            return self.dp_clip
        return 0.1 if self.dp_unit == "sample" else 0.1 / self.dp_rounds

    @property
    def protection(self) -> str:
        """Describe the training's differential privacy in a few words."""
        if self.dp_epsilon is None:
            return "no differential privacy"
        return (
            f"differential privacy for each {self.dp_unit}: epsilon {self.dp_epsilon:g} at delta "
            f"{self.dp_delta:g} over {self.dp_rounds} round{'s' if self.dp_rounds > 1 else ''}, "
            f"training {'the last layer' if self.dp_layers == 'last' else 'all layers'}"
        )

    def shared(self) -> dict[str, Any]:
        """Return the settings for a contribution."""
        return self.model_dump(mode="json")


@dataclass(frozen=True)
class RoundOptions:
    """The options of a round, by their purpose."""

    merging: MethodOptions
    """Options of `aggregators.merge`."""
    training: LocalTraining
    """Options of every site."""

    def over(self, rounds: int) -> "RoundOptions":
        """Return the options of a series of rounds: growth and epsilon cover all of them."""
        training = self.training
        if training.dp_epsilon is not None:
            training = training.model_copy(update={"dp_rounds": rounds})
        return RoundOptions(self.merging.over(rounds), training)

    def together(self) -> dict[str, Any]:
        """Return all options in full; the inverse of `split_options`."""
        return {**self.merging.model_dump(mode="json"), **self.training.model_dump(mode="json")}


def split_options(method: str, options: Mapping[str, Any]) -> RoundOptions:
    """Split the options of a round by their purpose, and add the defaults."""
    chosen = find_method(method)
    if chosen.kind != "network":
        known = ", ".join(method_.name for method_ in METHODS.values() if method_.kind == "network")
        raise OptionError(f"{method} does not combine networks; expected one of {known}")
    method_fields, training_fields = chosen.options_type.model_fields, LocalTraining.model_fields
    # Checked together, because neither class knows the other's options.
    if unknown := [
        name for name in options if name not in method_fields and name not in training_fields
    ]:
        raise OptionError(
            f"rounds of {method} have no option {unknown[0]!r}; the options of the method: "
            f"{', '.join(method_fields) or 'none'}; of the sites' training: "
            f"{', '.join(training_fields)}"
        )
    training = check_options(
        LocalTraining,
        {name: options[name] for name in options if name in training_fields},
        "the sites' training",
    )
    if training.dp_epsilon is not None and not chosen.trains_plainly:
        raise OptionError(
            f"dp_epsilon: sites of {method} do more than train, and the noise covers only "
            "training; hold the rounds with fedavg or one of its server optimisers"
        )
    method_options = {name: options[name] for name in options if name in method_fields}
    return RoundOptions(check_options(chosen.options_type, method_options, method), training)


PRIVATE_EPSILON = 8.0
"""The default of rounds."""

_PRIVATE_KINDS = ("gaze", "itracker", "near-eye")
"""Beginnings of the architectures that differential privacy covers."""

FALSE_ALARMS = 0.01
"""Share of other samples that an attack takes for members, where its yield is stated."""


class Protection(StrEnum):
    """A way to keep the other parties from reading a site's data in its contribution."""

    PRIVATE = "private"
    """Differential privacy, accounted for at each site."""
    VERIFIED = "verified"
    """A secure sum of clipped updates, on bases that each lab makes again."""
    OPEN = "open"
    """Contributions that the pool reads."""


OPEN_SENTENCE = (
    "Whoever runs the pool, or made the network you start from, can read pictures from what you "
    "send: choose this only among those to whom you would give the pictures"
)
VERIFIED_SENTENCE = (
    "Nobody who plays fair can read your pictures, nor can the pool and the servers; all other "
    "labs of the round together could, and several of them together see the sum of the rest"
)


def find_protection(training: LocalTraining, *, secure: bool) -> Protection:
    """Return the protection that holds in a round, of all that its options and terms say."""
    if training.dp_epsilon is not None:
        return Protection.PRIVATE
    return Protection.VERIFIED if secure else Protection.OPEN


def protect(
    method: str,
    options: Mapping[str, Any],
    protection: Protection | None = None,
    *,
    secure: bool,
    base: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the options with which a new round has its protection.

    `protection`: By default verified in a secure sum, else private. `base`: The fingerprint of the
    network, where it is known.

    Raises `OptionError` if the method, the base or the options do not allow the protection.
    """
    options, chosen = dict(options), METHODS.get(method)
    if chosen is None or chosen.kind != "network":
        if protection is not None:
            raise OptionError(f"found a protection for {method}, expected a method for networks")
        return options
    if protection is None:
        is_summed = secure and options.get("dp_epsilon") is None
        protection = Protection.VERIFIED if is_summed else Protection.PRIVATE
    if protection is Protection.PRIVATE:
        options.setdefault("dp_epsilon", PRIVATE_EPSILON)
        if not chosen.trains_plainly:
            reason = f"sites of {method} do more than train"
        elif any("running_" in name for name in (base or {}).get("tensors", ())):
            reason = "BatchNorm mixes samples"
        elif not str((base or {}).get("architecture", "gaze")).startswith(_PRIVATE_KINDS):
            reason = f"it does not cover {(base or {})['architecture']}"
        else:
            return options
        raise OptionError(
            f"found a private round, which differential privacy protects, but {reason}; expected "
            "the protection open, or verified with a secure sum"
        )
    if options.get("dp_epsilon") is not None:
        raise OptionError(f"found dp_epsilon with the protection {protection}, expected private")
    if secure != (protection is Protection.VERIFIED):
        kind, expected = ("a", "verified") if secure else ("no", "open")
        raise OptionError(
            f"found {kind} secure sum with the protection {protection}, expected private or "
            f"{expected}"
        )
    return options


def most_told(epsilon: float, delta: float) -> float:
    """Return which share of members any attack finds at `FALSE_ALARMS`, at most.

    It follows from epsilon and delta alone; the noise of one training usually allows less.
    """
    other = 1 - FALSE_ALARMS - delta
    return min(math.exp(epsilon) * FALSE_ALARMS + delta, 1 - math.exp(-epsilon) * other)


def describe_protection(training: LocalTraining, *, secure: bool) -> str:
    """Return the protection of a round with its sentence."""
    protection = find_protection(training, secure=secure)
    sentence = {Protection.OPEN: OPEN_SENTENCE, Protection.VERIFIED: VERIFIED_SENTENCE}
    return f"{protection}: {sentence.get(protection) or _private_sentence(training, secure=secure)}"


def _private_sentence(training: LocalTraining, *, secure: bool) -> str:
    assert training.dp_epsilon is not None
    others = "Whatever the others do"
    if secure and training.dp_unit == "person":
        # Each lab adds its share of the noise alone.
        others = "While at least half of the labs are honest"
    told = 100 * most_told(training.dp_epsilon, training.dp_delta)
    return (
        f"{others}, at {FALSE_ALARMS:.0%} false alarms at most {told:.4g} % of the "
        f"{training.dp_unit}s that trained can be told from others ({training.protection})"
    )


def protection_of(method: str, options: Mapping[str, Any], *, secure: bool) -> str:
    """Describe the protection of a round; those of landmark models have none of these."""
    if find_method(method).kind != "network":
        return "no differential privacy"
    return describe_protection(split_options(method, options).training, secure=secure)
