"""Options of rounds of networks: those of the method and those of the sites' training."""

from collections.abc import Mapping
from dataclasses import dataclass
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
