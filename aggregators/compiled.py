"""How functions are compiled: once a machine, even where nothing may be stored beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function of numbers and arrays; a decorator.

    The compiled code is kept on disk for later processes, releases the interpreter's lock while
    it runs, and divides as numpy does. In an installation that is read-only, for a user without a
    home folder, it is compiled anew in each process.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:
        # numba found no folder that it may write to.
        return njit(**options)(function)
