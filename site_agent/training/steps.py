"""The steps of a pass over the data, alike for all networks that are trained here."""

from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_


class StepHooks(TypedDict, total=False):
    """The calls that a caller may add to each step."""

    extra_loss: Callable[[torch.Tensor], torch.Tensor] | None
    """Takes the numbers of a step's samples, and returns an addition to its loss; it does not
    count in the mean."""
    after_step: Callable[[], None] | None
    progress: Callable[[float], None]
    """Gets the share of the samples that have been used."""


def take_steps(
    module: nn.Module,
    optimiser: torch.optim.Optimizer,
    batches: Sequence[torch.Tensor],
    loss_of: Callable[[torch.Tensor], torch.Tensor],
    *,
    clip_norm: float | None = None,
    **hooks: Unpack[StepHooks],
) -> float:
    """Take a step for each batch of sample numbers, and return the mean loss of the samples.

    `clip_norm`: Shorten the gradient of all parameters together to this norm.
    """
    extra_loss, after_step = hooks.get("extra_loss"), hooks.get("after_step")
    progress: Callable[[float], None] = hooks.get("progress", lambda _share: None)
    module.train()
    count, used = sum(map(len, batches)), 0
    total: torch.Tensor | float = 0.0
    for batch in batches:
        optimiser.zero_grad(set_to_none=True)
        loss = loss_of(batch)
        whole = loss if extra_loss is None else loss + extra_loss(batch)
        whole.backward()  # type: ignore[no-untyped-call]
        if clip_norm is not None:
            clip_grad_norm_(module.parameters(), clip_norm)
        optimiser.step()
        if after_step is not None:
            after_step()
        total = total + loss.detach() * len(batch)
        used += len(batch)
        progress(used / count)
    return float(total) / max(1, count)
