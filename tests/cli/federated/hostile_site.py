"""Put in place of ``sitecustomize``: this site trains, and then sends something else."""

import importlib.abc
import importlib.machinery
import os
import sys
from types import ModuleType
from typing import Any

_MODULE = "site_agent.federated.live.site"
_HUGE = 64 * 1024**2


class _Replacing(importlib.abc.MetaPathFinder):
    """Changes the site's module as soon as it has been imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            _change(module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


def _change(module: Any) -> None:
    import numpy as np

    honest = module.encode_input
    kinds = os.environ["HOSTILE_KINDS"].split(",")
    answered = 0

    def encode(contribution: Any) -> bytes:
        nonlocal answered
        kind, answered = kinds[answered % len(kinds)], answered + 1
        if kind == "garbage":
            return b"garbage"
        if kind == "huge":
            return bytes(_HUGE)
        name, first = next(iter(contribution.network.tensors.items()))
        contribution.network.tensors[name] = np.full_like(first, np.nan)
        return bytes(honest(contribution))

    module.encode_input = encode


if "HOSTILE_KINDS" in os.environ:
    sys.meta_path.insert(0, _Replacing())
