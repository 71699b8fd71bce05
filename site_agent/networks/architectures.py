"""The table of architectures: a new one is a torch module and one line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from site_agent.errors import InvalidInputError

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Architecture:
    """One way to build a network."""

    name: str
    """In the metadata of the file as ``architecture``."""
    version: int
    """In the metadata as ``architecture_version``; it changes when the same parameters would give
    other outputs."""
    parameters: int
    """Number of trained parameters."""
    build: "Callable[[], nn.Module]"
    """Returns a module with torch's random initial parameters."""
    kind: Literal["gaze", "saliency", "representation"] = "gaze"
    """``gaze``: eye patches and head angles in, yaw and pitch out. ``saliency``: clips in, maps of
    where the gaze is out. ``representation``: eye patches in, patches drawn from their features
    out."""

    def build_empty(self) -> "nn.Module":
        """Return a module with the shapes and types of its entries, but no memory.

        Drawing initial parameters takes ten times as long as reading those of a file.
        """
        import torch

        with torch.device("meta"):
            return self.build()


# Functions, as importing the modules loads torch, which takes seconds.
def _lenet() -> "nn.Module":
    from site_agent.networks.gaze_modules import GazeLeNet

    return GazeLeNet(channels=50)


def _wide_lenet() -> "nn.Module":
    from site_agent.networks.gaze_modules import GazeLeNet

    return GazeLeNet(channels=80)


def _resnet18() -> "nn.Module":
    from site_agent.networks.gaze_modules import GazeResNet18

    return GazeResNet18()


def _encoder(*, small: bool) -> "nn.Module":
    from site_agent.networks.gaze_modules import ResNetEncoder, SmallEncoder

    return SmallEncoder() if small else ResNetEncoder()


def _gaze_head(*, small: bool) -> "Callable[[], nn.Module]":
    def build() -> "nn.Module":
        from site_agent.networks.gaze_modules import GazeHead

        return GazeHead(_encoder(small=small))

    return build


def _cross_encoder(*, small: bool) -> "Callable[[], nn.Module]":
    def build() -> "nn.Module":
        from site_agent.networks.gaze_modules import CrossEncoder, Decoder

        sizes = ((32, 24, 16, 8), 8, 1) if small else ((128, 64, 64, 32), 32, 3)
        return CrossEncoder(_encoder(small=small), Decoder(*sizes))

    return build


GAZE_ARCHITECTURES: Mapping[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        Architecture("gaze-lenet", 1, 1_827_076, _lenet),
        Architecture("gaze-lenet-wide", 1, 2_922_106, _wide_lenet),
        Architecture("gaze-resnet18", 1, 11_171_270, _resnet18),
        Architecture("cross-encoder-gaze", 1, 11_192_842, _gaze_head(small=False)),
        Architecture("cross-encoder-small-gaze", 1, 177_338, _gaze_head(small=True)),
    )
}


def _glc(name: str) -> "Callable[[], nn.Module]":
    def build() -> "nn.Module":
        from site_agent.networks.glc import GLC_LAYOUTS, Glc

        return Glc(GLC_LAYOUTS[name])

    return build


SALIENCY_ARCHITECTURES: Mapping[str, Architecture] = {
    name: Architecture(name, 1, parameters, _glc(name), "saliency")
    for name, parameters in (
        ("glc-tiny", 111_505),
        ("glc-small", 1_993_921),
        ("glc-8", 55_941_601),
        ("glc-paper", 70_181_857),
    )
}

# An auto-encoder has the layers of a cross-encoder; it differs in what it is trained to do.
REPRESENTATION_ARCHITECTURES: Mapping[str, Architecture] = {
    architecture.name: architecture
    for name in ("cross-encoder", "auto-encoder")
    for architecture in (
        Architecture(name, 1, 11_817_488, _cross_encoder(small=False), "representation"),
        Architecture(f"{name}-small", 1, 242_992, _cross_encoder(small=True), "representation"),
    )
}
_ARCHITECTURES = {**GAZE_ARCHITECTURES, **SALIENCY_ARCHITECTURES, **REPRESENTATION_ARCHITECTURES}


def is_crossed(name: str) -> bool:
    """Return whether a representation network is a cross-encoder, not an auto-encoder."""
    return name.startswith("cross-encoder")


def require_kind(name: str, kind: str, where: str) -> None:
    """Raise `InvalidInputError` unless an architecture is of a kind; `where` names the network."""
    architecture = find_architecture(name)
    if architecture.kind != kind:
        fitting = [item.name for item in _ARCHITECTURES.values() if item.kind == kind]
        raise InvalidInputError(
            f"{where}: {name} is a {architecture.kind} network; "
            f"expected one of {', '.join(fitting)}"
        )


def find_architecture(name: str, version: str | int | None = None) -> Architecture:
    """Return the architecture of this name, and of this version if one is given."""
    if name not in _ARCHITECTURES:
        raise InvalidInputError(
            f"unknown architecture {name!r}; expected one of {', '.join(_ARCHITECTURES)}"
        )
    architecture = _ARCHITECTURES[name]
    if version is not None and str(version) != str(architecture.version):
        raise InvalidInputError(
            f"architecture {name} has version {version}; "
            f"this program runs version {architecture.version}"
        )
    return architecture
