"""Cuts of networks: where each architecture can be cut into a client's and a server's part."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from site_agent.errors import InvalidInputError
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
