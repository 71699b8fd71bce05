"""Torch modules of networks: building, filling and running them.

Random parameters that are equal on all processors.

torch itself draws integers alike everywhere, but scales them by instructions that round otherwise
on other processors. Here they are scaled in float64, one rounding an operation.
"""

import importlib
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from aggregators.formats import encode_model
from aggregators.models import StateDict, TensorInfo
from site_agent.errors import InvalidInputError
from site_agent.networks.architectures import find_architecture
from site_agent.networks.gaze_modules import (
    GAZE_SIZE,
    CrossEncoder,
    Decoder,
    FaceResNet18,
    GazeHead,
    GazeLeNet,
    GazeResNet18,
    ITracker,
    NearEye,
    ResNetEncoder,
    SmallEncoder,
)
from site_agent.networks.glc import GLC_LAYOUTS, Glc
from site_agent.networks.lab_networks import find_class, is_lab_network

_NAME = "torch._dynamo"


class _StandIn(ModuleType):
    """`torch._dynamo` until something is compiled.

    The first step of an optimiser imports it, only to tell it which calls to leave alone: 1.3 s of
    a processor and 110 MB in each training process (torch 2.13). This answers those calls; the
    first use of anything else of the compiler, as by ``torch.compile`` of a lab's own network,
    loads it.
    """

    @staticmethod
    def graph_break(_reason: str = "") -> None:
        """Do nothing, as torch does where nothing is compiled."""

    @staticmethod
    def disable(function: Callable[..., Any], *_options: Any, **_named: Any) -> Callable[..., Any]:
        """Return a function that is not compiled anyway."""
        return function

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":
            # `inspect` asks every module for its file; an import below this one for its path.
            raise AttributeError(name)
        if sys.modules.get(_NAME) is self:
            del sys.modules[_NAME]
        return getattr(importlib.import_module(_NAME), name)


def leave_compiler_out() -> None:
    """Put the stand-in where the compiler has not been loaded."""
    if _NAME not in sys.modules:
        sys.modules[_NAME] = stand_in = _StandIn(_NAME)
        setattr(torch, _NAME.rpartition(".")[2], stand_in)


leave_compiler_out()

_UNIFORM_BITS, _SUMMED_BITS, _SUMMED = 24, 16, 4


class ExactDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Draws the initial parameters of the modules that are built in its context.

    Normal numbers are sums of four uniform ones, of the right mean and deviation, and at most 3.5
    deviations from the mean.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Draw uniform and normal numbers here, and leave all else to torch."""
        if func is torch.ops.aten.uniform_.default:
            tensor, low, high = args if len(args) == 3 else (args[0], 0.0, 1.0)
            numbers = self._integers(tensor, _UNIFORM_BITS) * 2.0**-_UNIFORM_BITS
            return tensor.copy_(numbers * (high - low) + low)
        if func is torch.ops.aten.normal_.default:
            tensor, mean, deviation = args if len(args) == 3 else (args[0], 0.0, 1.0)
            total = sum(self._integers(tensor, _SUMMED_BITS) for _ in range(_SUMMED))
            levels = 2**_SUMMED_BITS
            centred = total - _SUMMED * (levels - 1) / 2
            one = math.sqrt(_SUMMED * (levels**2 - 1) / 12)
            return tensor.copy_(centred / one * deviation + mean)
        return func(*args, **(kwargs or {}))

    def _integers(self, tensor: torch.Tensor, bits: int) -> torch.Tensor:
        drawn = torch.empty(tensor.shape, dtype=torch.int64)
        return drawn.random_(0, 2**bits, generator=self._generator).double()


_DTYPES = {"float32": "F32", "float64": "F64", "int64": "I64"}

_SEED, _TORCH = "seed", "torch"
"""Metadata of new networks: the seed, and torch's version without that of its build."""
_MOST_SEED_DIGITS = 18


def _encoder(*, small: bool) -> nn.Module:
    return SmallEncoder() if small else ResNetEncoder()


def _cross_encoder(*, small: bool) -> nn.Module:
    sizes = ((32, 24, 16, 8), 8, 1) if small else ((128, 64, 64, 32), 32, 3)
    return CrossEncoder(_encoder(small=small), Decoder(*sizes))


BUILDERS: Mapping[str, Callable[[], nn.Module]] = {
    "gaze-lenet": partial(GazeLeNet, channels=50),
    "gaze-lenet-wide": partial(GazeLeNet, channels=80),
    "gaze-resnet18": GazeResNet18,
    "gaze-face-resnet18": FaceResNet18,
    "gaze-face-resnet18-448": FaceResNet18,
    "itracker": ITracker,
    "near-eye": NearEye,
    "near-eye-pupil": NearEye,
    "cross-encoder-gaze": lambda: GazeHead(_encoder(small=False)),
    "cross-encoder-small-gaze": lambda: GazeHead(_encoder(small=True)),
    **{name: partial(Glc, layout) for name, layout in GLC_LAYOUTS.items()},
    **{
        f"{kind}{suffix}": partial(_cross_encoder, small=suffix == "-small")
        for kind in ("cross-encoder", "auto-encoder")
        for suffix in ("", "-small")
    },
}
"""How each architecture is built, with torch's random initial parameters."""


def _build(architecture: str) -> nn.Module:
    if is_lab_network(architecture):
        return find_class(architecture)()
    return BUILDERS[architecture]()


def build_empty(architecture: str) -> nn.Module:
    """Return a module with the shapes and types of its entries, but no memory.

    Drawing initial parameters takes ten times as long as reading those of a file.
    """
    with torch.device("meta"):
        return _build(architecture)


def new_network(architecture: str, seed: int = 0) -> StateDict:
    """Return a network with random initial parameters: equal seeds give equal bytes.

    Any lab can make it again and compare the digests (`problem_of_new`): the parameters do not
    depend on the processor, and the metadata name the seed and the version of torch.
    """
    find_architecture(architecture)
    with ExactDraws(seed):
        module = _build(architecture)
    network = from_module(module, architecture)
    drawn = {_SEED: str(seed), _TORCH: torch.__version__.partition("+")[0]}
    return StateDict(network.tensors, network.infos, {**network.metadata, **drawn})


def problem_of_new(network: StateDict, digest: str) -> str:
    """Return why a network is not the new one of its seed; empty if it is, to the last bit."""
    texts = network.metadata
    seed, name = texts.get(_SEED, ""), texts.get("architecture", "")
    if not (seed.isascii() and seed.isdecimal() and len(seed) <= _MOST_SEED_DIGITS):
        return "its metadata name no seed from which it could be made again"
    described = find_architecture(name, texts.get("architecture_version"))
    again = new_network(name, int(seed))
    if sha256(encode_model(again)).hexdigest() == digest:
        return ""
    if (torch_here := again.metadata[_TORCH]) != (torch_there := texts.get(_TORCH)):
        return (
            f"seed {seed} gives another network here, where torch {torch_here} draws it and not "
            f"{torch_there}: compare under the same version"
        )
    near = all(
        name in network.infos and np.allclose(network.tensors[name], values, rtol=1e-4, atol=1e-6)
        for name, values in again.tensors.items()
    )
    reason = (
        "the machine that made it computes otherwise than this one"
        if near
        else "it has another seed, or was changed since"
    )
    return f"seed {seed} of {described.name} gives another network here: {reason}"


def from_module(module: nn.Module, architecture: str) -> StateDict:
    """Return a module's parameters and buffers, with its architecture in the metadata."""
    described = find_architecture(architecture)
    tensors = {
        name: np.array(value.detach().cpu().numpy(), order="C")
        for name, value in module.state_dict().items()
    }
    infos = {
        name: TensorInfo(_DTYPES[str(value.dtype)], value.shape) for name, value in tensors.items()
    }
    texts = {"architecture": described.name, "architecture_version": str(described.version)}
    return StateDict(tensors, infos, texts)


def to_module(network: StateDict, name: str = "the network") -> nn.Module:
    """Return the torch module of a network, in evaluation mode, on the CPU.

    `name`: how errors call the network.
    """
    if "architecture" not in network.metadata:
        raise InvalidInputError(
            f"{name}: the metadata name no architecture; "
            "networks that poolctl trains have the entry `architecture`"
        )
    try:
        architecture = find_architecture(
            network.metadata["architecture"], network.metadata.get("architecture_version")
        )
    except InvalidInputError as error:
        raise InvalidInputError(f"{name}: {error}") from error
    module = build_empty(architecture.name)
    shapes = module.state_dict()
    for key, expected in shapes.items():
        info = network.infos.get(key)
        if info is None or tuple(info.shape) != tuple(expected.shape):
            raise InvalidInputError(
                f"{name}: entry {key!r} of {architecture.name}: found "
                f"{'none' if info is None else list(info.shape)}, expected {list(expected.shape)}"
            )
    if extra := sorted(set(network.infos) - set(shapes)):
        raise InvalidInputError(f"{name}: {architecture.name} has no entry {extra[0]!r}")
    fill_empty(module, network)
    if architecture.kind in ("gaze", "representation"):
        # Convolutions and pooling are a third faster with the channels last.
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module.eval()


def fill_empty(module: nn.Module, network: StateDict) -> None:
    """Copy a network's entries into a module of `build_empty`, in the module's types."""
    entries = module.state_dict()
    values = {
        key: torch.from_numpy(np.array(network.tensors[key])).to(entries[key].dtype)
        for key in network.infos
    }
    module.load_state_dict(values, assign=True)


def last_layer(module: nn.Module) -> frozenset[str]:
    """Return the names of the parameters of a network's last layer."""
    name = [parameter.rpartition(".")[0] for parameter, _ in module.named_parameters()][-1]
    return frozenset(
        parameter for parameter, _ in module.named_parameters() if parameter.startswith(f"{name}.")
    )


def personal_head(module: nn.Module) -> frozenset[str]:
    """Return the names of the parameters that FedPer keeps at home.

    They are those of the last layer, and of more layers where the network says so.
    """
    parts = tuple(f"{part}." for part in getattr(module, "personal_head", ()))
    names = {name for name, _ in module.named_parameters()}
    return last_layer(module) | {name for name in names if name.startswith(parts)}


_LEAST_CONTRAST = 4.0
"""Grey levels: patches of less standard deviation are not amplified further."""
_BATCH, _BATCH_BYTES = 512, 1 << 22
"""Most samples at once, and bytes of their pictures."""


def to_inputs(pictures: NDArray[np.uint8]) -> torch.Tensor:
    """Normalise pictures for networks: each channel with mean 0 and standard deviation 1.

    Scaling each picture removes most differences between lights and cameras.

    `pictures`, uint8 of shape (n, height, width) or (n, channels, height, width).

    Returns float32 tensor, shape (n, channels, height, width).
    """
    scaled = torch.from_numpy(np.ascontiguousarray(pictures)).to(torch.float32)
    if scaled.ndim == 3:
        scaled = scaled.unsqueeze(1)
    scaled -= scaled.mean(dim=(2, 3), keepdim=True)
    deviation = scaled.square().mean(dim=(2, 3), keepdim=True).sqrt()
    return scaled / deviation.clamp(min=_LEAST_CONTRAST)


def predict_gaze(
    module: nn.Module, patches: NDArray[np.uint8], head: NDArray[Any], device: str = "cpu"
) -> NDArray[np.float64]:
    """Return a gaze network's two numbers for each sample.

    `module`: as `to_module` returns it; left in evaluation mode on `device`. `patches`, uint8 of
    shape (n, ...), as the network's view has it: of eyes left ones, or right ones mirrored.
    `head`, float of shape (n, 2): yaw and pitch of the head in radians.

    Returns float64, shape (n, 2): Yaw and pitch in radians, or the numbers of the view's target.
    """
    module.to(device).eval()
    answers = np.empty((len(patches), 2))
    batch = min(_BATCH, max(1, _BATCH_BYTES * len(patches) // max(1, patches.nbytes)))
    with torch.inference_mode():
        for first in range(0, len(patches), batch):
            part = slice(first, first + batch)
            angles = torch.from_numpy(np.asarray(head[part], dtype=np.float32)).to(device)
            gaze = module(to_inputs(patches[part]).to(device), angles)
            answers[part] = gaze.cpu().numpy()
    return answers


def encode_gaze(module: nn.Module, patches: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the gaze feature of each patch.

    `module`: as `to_module` returns it. `patches`, uint8 of shape (n, 36, 60): left eyes, or right
    eyes mirrored.

    Returns float64, shape (n, 12).
    """
    assert isinstance(module, CrossEncoder)
    module.eval()
    gaze = np.empty((len(patches), GAZE_SIZE))
    with torch.inference_mode():
        for first in range(0, len(patches), _BATCH):
            part = slice(first, first + _BATCH)
            gaze[part] = module.encode(to_inputs(patches[part]))[0].numpy()
    return gaze


MAP_PX = 64
"""Width and height of the maps that are scored; a network's own are resized to it."""
_CLIPS_IN_A_BATCH = 8


def clip_inputs(frames: torch.Tensor) -> torch.Tensor:
    """Return pictures, uint8 (n, frames, size, size, 3), as float32 (n, 3, frames, size, size)."""
    return (frames.float() / 255 - 0.45).div_(0.225).permute(0, 4, 1, 2, 3)


def predict_maps(module: nn.Module, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return where a person looks: a map of each frame that sums to 1.

    `module`: of a saliency network. `frames`, uint8 of shape (n, frames, size, size, 3).

    Returns float32, shape (n, frames, 64, 64).
    """
    module.eval()
    parts = []
    with torch.inference_mode():
        for first in range(0, len(frames), _CLIPS_IN_A_BATCH):
            batch = np.ascontiguousarray(frames[first : first + _CLIPS_IN_A_BATCH])
            logits = module(clip_inputs(torch.from_numpy(batch)))[:, 0]
            larger = functional.interpolate(logits, size=(MAP_PX, MAP_PX), mode="bilinear")
            maps = torch.softmax(larger.flatten(2), dim=2).reshape(larger.shape)
            parts.append(maps.numpy())
    return np.concatenate(parts)
