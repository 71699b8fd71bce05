"""Training without torch's compiler, which no network here is compiled with.

The first step of an optimiser imports it, only to tell it which calls to leave alone: 1.3 s of a
processor and 110 MB in each training process (torch 2.13). A stand-in answers those calls; the
first use of anything else of the compiler, as by ``torch.compile`` of a lab's own network, loads
it.
"""

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

_NAME = "torch._dynamo"


class _StandIn(ModuleType):
    """`torch._dynamo` until something is compiled."""

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
