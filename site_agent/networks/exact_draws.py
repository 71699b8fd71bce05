"""Random parameters that are equal on all processors.

torch itself draws integers alike everywhere, but scales them by instructions that round otherwise
on other processors. Here they are scaled in float64, one rounding an operation.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

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
