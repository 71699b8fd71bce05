"""The loop that trains cross-encoders, in one place and at the sites of rounds.

How it works. Of two frames of one person and session, each with both eyes, the four patches are
encoded. An eye keeps its look from frame to frame, and both eyes of a frame look at the same point.
So a patch is drawn from its own gaze feature and the eye feature of the *other frame*, or from its
own eye feature and the gaze feature of the *other eye*: differences between frames can come only
through the gaze feature, differences between eyes only through the eye feature. No label is used.

Source: Sun et al. 2021, "Cross-Encoder for Unsupervised Gaze Representation Learning". Frames are
paired within a session, as the light of a session is no gaze.
"""

from dataclasses import dataclass
from typing import Unpack

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from site_agent.datasets.gaze.records import PATCHES_OF_A_PAIR, GazeSamples, both_eyes
from site_agent.errors import TrainingDataError
from site_agent.networks.gaze_modules import CrossEncoder
from site_agent.networks.modules import to_inputs
from site_agent.training.steps import StepHooks, take_steps

_EYES_WEIGHT = 0.5
"""Of the difference between both eyes in the loss; the difference between frames has 1."""


@dataclass(frozen=True)
class FrameTensors:
    """Frames with both eyes, as a cross-encoder takes them."""

    patches: torch.Tensor
    """Of shape (2 n, 1, 36, 60). As the camera saw them: the left eyes of all frames, and then the
    right eyes."""
    session: torch.Tensor
    """Of shape (n,). Equal for the frames of one session of a person."""

    def __len__(self) -> int:
        return len(self.patches)

    def inputs(self, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the input of a network for some patches."""
        return (self.patches[index],)


def drawing_score(module: nn.Module, samples: GazeSamples) -> float:
    """Return by how much drawn patches are nearer to the true ones than even grey is, 0 to 1."""
    patches = to_tensors(samples).patches
    module.eval()
    with torch.inference_mode():
        error = functional.l1_loss(module(patches), patches)
    return max(0.0, 1.0 - float(error) / float(patches.abs().mean()))


def to_tensors(samples: GazeSamples) -> FrameTensors:
    """Return the frames of samples that have both eyes."""
    pairs = both_eyes(samples)
    left, right = pairs[0::2], pairs[1::2]
    # Right eyes are mirrored in samples; both look at the same point only as the camera sees them.
    seen = np.concatenate([left.patches, right.patches[:, :, ::-1]])
    names = np.char.add(np.char.add(left.person, "/"), left.session)
    _, session = np.unique(names, return_inverse=True)
    return FrameTensors(to_inputs(seen), torch.from_numpy(session.astype(np.int64)))


def train_epoch(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    data: FrameTensors,
    batch_size: int,
    generator: torch.Generator,
    *,
    crossed: bool = True,
    **hooks: Unpack[StepHooks],
) -> float:
    """Train once on all frames, each in one pair, and return the mean loss.

    `batch_size`: Patches in a step, four of each pair; at least one pair. `crossed`: False trains
    an auto-encoder: each patch is drawn from its own features.

    Raises `TrainingDataError`: no session has two frames.
    """
    pairs = pair_frames(data.session, generator)
    if not len(pairs):
        raise TrainingDataError(None, "no session has two frames with both eyes")
    return take_steps(
        module,
        optimiser,
        torch.split(pairs, max(1, batch_size // PATCHES_OF_A_PAIR)),
        lambda batch: pairs_loss(module, frames_of(data, batch), crossed=crossed),
        **hooks,
    )


def pair_frames(session: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return pairs of frames of equal sessions, int64 (pairs, 2), in random order.

    A frame is in one pair; of an odd number in a session, a random one is left out.
    """
    shuffled = torch.randperm(len(session), generator=generator)
    ordered = shuffled[torch.argsort(session[shuffled], stable=True)]
    parts = []
    for count in torch.unique_consecutive(session[ordered], return_counts=True)[1].tolist():
        parts.append(ordered[: count - count % 2].reshape(-1, 2))
        ordered = ordered[count:]
    pairs = torch.cat([*parts, torch.empty((0, 2), dtype=torch.int64)])
    return pairs[torch.randperm(len(pairs), generator=generator)]


def frames_of(data: FrameTensors, pairs: torch.Tensor) -> torch.Tensor:
    """Return the patches of pairs, shape (pairs, frame, eye, 36, 60)."""
    frames = len(data.session)
    index = torch.stack([pairs, pairs + frames], dim=2)
    return data.patches[index, 0]


def pairs_loss(module: nn.Module, patches: torch.Tensor, *, crossed: bool = True) -> torch.Tensor:
    """Return the loss of pairs: the first half changes eye features, the second gaze features.

    It is the sum of mean absolute differences: of the patches, of the differences between frames,
    and half of those of the differences between eyes.

    `patches` (float32, shape (pairs, frame, eye, 36, 60)).
    """
    assert isinstance(module, CrossEncoder)
    count, flat = len(patches), patches.flatten(0, 2).unsqueeze(1)
    gaze, eye = (feature.reshape(count, 2, 2, -1) for feature in module.encode(flat))
    if crossed:
        half = (count + 1) // 2
        eye = torch.cat([eye[:half].flip(1), eye[half:]])
        gaze = torch.cat([gaze[:half], gaze[half:].flip(2)])
    drawn = module.decode(gaze.flatten(0, 2), eye.flatten(0, 2)).reshape(patches.shape)
    if not crossed:
        return functional.l1_loss(drawn, patches)
    frames = functional.l1_loss(drawn[:, 0] - drawn[:, 1], patches[:, 0] - patches[:, 1])
    eyes = functional.l1_loss(drawn[:, :, 0] - drawn[:, :, 1], patches[:, :, 0] - patches[:, :, 1])
    return functional.l1_loss(drawn, patches) + frames + _EYES_WEIGHT * eyes
