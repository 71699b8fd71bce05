"""The cuts of networks, and the plan of a split training on which all its processes agree."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from aggregators.errors import first_problem
from aggregators.methods.round_options import LocalTraining
from site_agent.errors import InvalidInputError
from site_agent.federated.plan import FederationPlan, make_plan
from site_agent.networks.architectures import find_architecture

if TYPE_CHECKING:
    from site_agent.networks.gaze_modules import Stage

Role = Literal["client", "server"]


@dataclass(frozen=True)
class Cut:
    """The place where a network is cut."""

    architecture: str
    name: str
    front: int
    """Number of stages at the start that the client has."""
    tail: int = 0
    """Number of stages at the end that the client has as well; with them the labels and head angles
    stay at the site."""
    meaning: str = ""
    """A description for people."""

    @property
    def labels_seen(self) -> str:
        """The main server's knowledge of labels and head angles."""
        if not self.tail:
            return "gets the label and the head angles of every image"
        return (
            "is sent no labels and head angles, but can compute the gaze as well as the network "
            "predicts it"
        )

    def label(self, role: Role) -> str:
        """Return the architecture of a part, as its metadata name it."""
        return f"{self.architecture}/{self.name}/{role}"

    def front_stages(self, stages: "tuple[Stage, ...]") -> "tuple[Stage, ...]":
        """Return the stages before the server's."""
        return stages[: self.front]

    def server_stages(self, stages: "tuple[Stage, ...]") -> "tuple[Stage, ...]":
        """Return the server's stages."""
        return stages[self.front : len(stages) - self.tail]

    def tail_stages(self, stages: "tuple[Stage, ...]") -> "tuple[Stage, ...]":
        """Return the client's stages after the server's; empty for most cuts."""
        return stages[len(stages) - self.tail :]

    def stages_of(self, role: Role, stages: "tuple[Stage, ...]") -> "tuple[Stage, ...]":
        """Return all stages of a part."""
        if role == "server":
            return self.server_stages(stages)
        return (*self.front_stages(stages), *self.tail_stages(stages))


def _lenet(architecture: str) -> tuple[Cut, ...]:
    return (
        Cut(architecture, "pool1", 1, 0, "the first convolution (thesis, models 1 and 2)"),
        Cut(architecture, "pool2", 2, 0, "both convolutions"),
        Cut(architecture, "fc1", 3, 0, "all but the last layer"),
        Cut(architecture, "u", 1, 1, "as pool1, and the last layer: labels stay at home"),
    )


CUTS: Mapping[str, tuple[Cut, ...]] = {
    "gaze-lenet": _lenet("gaze-lenet"),
    "gaze-lenet-wide": _lenet("gaze-lenet-wide"),
    "gaze-resnet18": (
        Cut("gaze-resnet18", "stem", 1, 0, "the stem (thesis, model 3a)"),
        Cut("gaze-resnet18", "block1", 2, 0, "the stem and one block (model 3)"),
        Cut("gaze-resnet18", "block2", 3, 0, "the stem and two blocks (model 3b)"),
    ),
}
"""The cuts of each architecture; a new one is a line."""


def find_cut(architecture: str, name: str) -> Cut:
    """Return a cut by its name."""
    find_architecture(architecture)
    if architecture not in CUTS:
        raise InvalidInputError(f"{architecture} cannot be cut; expected one of {', '.join(CUTS)}")
    for cut in CUTS[architecture]:
        if cut.name == name:
            return cut
    known = ", ".join(cut.name for cut in CUTS[architecture])
    raise InvalidInputError(f"{architecture} has no cut {name!r}; expected one of {known}")


Variant = Literal["v1", "v2", "mean-smashed", "frozen-client"]

Covers = Literal["client", "whole", "person"]
"""Scope of differential privacy; see `site_agent.split.private_steps`."""

PERSONS_IN_ONE_PROCESS = (
    "dp_covers is person: the noise belongs to the mean over persons,\nwhich no site may see "
    "without it; 'poolctl study split --set methods=dp-person'\nholds it in one process"
)

NoiseScale = Literal["guaranteed", "thesis"]

FEWEST_SITES = 3
"""In an average: of two, each site could compute the other's part."""


class SplitPlan(BaseModel):
    """The plan of a split training: network, cut, settings and number of rounds."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )

    architecture: str = "gaze-lenet"
    """Of the network: gaze-lenet, gaze-lenet-wide or gaze-resnet18."""
    cut: str = "pool1"
    """Where the network is cut; 'poolctl split plan' lists the cuts."""
    variant: Variant = "v1"
    """``v1``: a server part for each site, both parts averaged at the round's end. ``v2``: one
    server part, which the sites train one after the other. ``mean-smashed``: the client part is not
    trained, and the server part learns from means over sites. ``frozen-client``: the client part is
    not trained, and smashed data are sent once."""
    pairs: Literal["shuffled", "by-gaze"] = "shuffled"
    """Samples that ``mean-smashed`` averages: ``shuffled``: any of each site; their mean has
    the mean gaze. ``by-gaze``: samples of nearly the same gaze, by which each site sorts."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    """The optimiser of both parts; its state is reset in each round."""
    rounds: int = Field(default=5, ge=1, le=100_000)
    mean: Literal["samples", "sites"] = "samples"
    """``samples``: sites count by their numbers of samples. ``sites``: equally."""
    training: LocalTraining = Field(default_factory=LocalTraining)
    """Each site's training settings; the seed is that of the whole training."""
    dp_covers: Covers = "client"
    """The scope of `training.dp_epsilon`; unused without it."""
    noise_level: float = Field(default=0.0, ge=0, le=1000)
    """Scale of the Laplace noise on smashed data in units of the sensitivity; 0: none. See
    `site_agent.split.noise`."""
    noise_scale: NoiseScale = "guaranteed"
    """``guaranteed``: the sensitivity bounds any change of an image. ``thesis``: the norm of the
    kernels as a matrix, which sites hold at 1; one pixel can change smashed data more."""

    @model_validator(mode="after")
    def _fits(self) -> "SplitPlan":
        try:
            cut = find_cut(self.architecture, self.cut)
        except InvalidInputError as error:
            raise ValueError(str(error)) from error
        if cut.tail and self.trains_server_alone:
            raise ValueError(
                f"variant {self.variant} needs labels at the server, and cut {self.cut} keeps them "
                "at home"
            )
        if self.is_private:
            if self.trains_server_alone or (self.variant == "v2" and self.dp_covers != "client"):
                raise ValueError(
                    f"dp_epsilon for {self.dp_covers} goes with variant v1, not {self.variant}"
                )
            unit = "person" if self.dp_covers == "person" else "sample"
            covered = {"dp_rounds": self.rounds, "dp_unit": unit, "dp_layers": "all"}
            object.__setattr__(self, "training", self.training.model_copy(update=covered))
        return self

    @property
    def is_private(self) -> bool:
        """True if the training has differential privacy."""
        return self.training.dp_epsilon is not None

    @cached_property
    def found_cut(self) -> Cut:
        """The cut."""
        return find_cut(self.architecture, self.cut)

    @property
    def trains_server_alone(self) -> bool:
        """True if the client part is frozen."""
        return self.variant in ("mean-smashed", "frozen-client")

    @property
    def way_out(self) -> str:
        """Advice for a loss that is not finite."""
        lower = f"lower the learning rate ({self.training.learning_rate:g})"
        if self.noise_level and self.optimiser == "sgd" and self.noise_scale == "guaranteed":
            # Gradients of the first layer after the noise grow with it.
            return f"take --set optimiser=adam, whose steps do not grow with the noise, or {lower}"
        return lower

    @property
    def averaging(self) -> FederationPlan:
        """How parts are averaged: as whole networks are by FedAvg."""
        options = {**self.training.model_dump(mode="json"), "mean": self.mean}
        return make_plan("fedavg", options, rounds=self.rounds)

    @property
    def digest(self) -> str:
        """SHA-256 of the plan."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def order_in(self, round_number: int, sites: Iterable[str]) -> tuple[str, ...]:
        """Return the order in which sites train in a round of V2, from SHA-256."""

        def drawn(site: str) -> bytes:
            text = f"poolctl-split-order/1|{self.training.seed}|{round_number}|{site}"
            return hashlib.sha256(text.encode()).digest()

        return tuple(sorted(sites, key=drawn))


def read_split_plan(data: Mapping[str, Any]) -> SplitPlan:
    """Return a checked plan from plain values."""
    try:
        return SplitPlan.model_validate(dict(data))
    except ValidationError as error:
        raise InvalidInputError(f"plan of a split training: {first_problem(error)}") from error
