"""The table of architectures: a new one is a line here and one in `modules.BUILDERS`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from site_agent.errors import InvalidInputError
from site_agent.networks.lab_networks import describe, is_lab_network
from site_agent.networks.views import EYE, VIEWS, View


@dataclass(frozen=True)
class Architecture:
    """One kind of network, as `modules` builds it."""

    name: str
    """In the metadata of the file as ``architecture``."""
    version: int
    """In the metadata as ``architecture_version``; it changes when the same parameters would give
    other outputs."""
    parameters: int
    """Number of trained parameters."""
    kind: Literal["gaze", "saliency", "representation"] = "gaze"
    """``gaze``: the pictures of a view and head angles in, the view's two numbers out.
    ``saliency``: clips in, maps of where the gaze is out. ``representation``: eye patches in,
    patches drawn from their features out."""
    view: View = EYE
    """Of gaze and representation networks: the pictures that it takes."""


GAZE_ARCHITECTURES: Mapping[str, Architecture] = {
    architecture.name: architecture
    for architecture in (
        Architecture("gaze-lenet", 1, 1_827_076),
        Architecture("gaze-lenet-wide", 1, 2_922_106),
        Architecture("gaze-resnet18", 1, 11_171_270),
        Architecture("cross-encoder-gaze", 1, 11_192_842),
        Architecture("cross-encoder-small-gaze", 1, 177_338),
        Architecture("gaze-face-resnet18", 1, 11_177_538, view=VIEWS["face"]),
        Architecture("gaze-face-resnet18-448", 1, 11_177_538, view=VIEWS["face-448"]),
        Architecture("itracker", 1, 6_286_274, view=VIEWS["face-eyes-grid"]),
        Architecture("near-eye", 1, 157_755, view=VIEWS["near-eye"]),
        Architecture("near-eye-pupil", 1, 157_755, view=VIEWS["near-eye-pupil"]),
    )
}


SALIENCY_ARCHITECTURES: Mapping[str, Architecture] = {
    name: Architecture(name, 1, parameters, "saliency")
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
        Architecture(name, 1, 11_817_488, "representation"),
        Architecture(f"{name}-small", 1, 242_992, "representation"),
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
    """Return the architecture of this name, and of this version if one is given.

    The name of a class (PACKAGE:CLASS) stands for a lab's own network (`lab_networks`).
    """
    if name not in _ARCHITECTURES and not is_lab_network(name):
        raise InvalidInputError(
            f"unknown architecture {name!r}; expected one of {', '.join(_ARCHITECTURES)}, or "
            "PACKAGE:CLASS of your own"
        )
    if is_lab_network(name):
        number, parameters, view = describe(name)
        architecture = Architecture(name, number, parameters, view=view)
    else:
        architecture = _ARCHITECTURES[name]
    if version is not None and str(version) != str(architecture.version):
        raise InvalidInputError(
            f"architecture {name} has version {version}; "
            f"this program runs version {architecture.version}"
        )
    return architecture
