"""Compilation of numeric functions."""

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function of numbers and arrays; a decorator.

    The compiled code is cached on disk, releases the interpreter's lock while it runs, and
    divides as numpy does. Where no cache can be written, each process compiles it.
    """
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
    # numba raises when neither the package's folder nor the user's cache can be written to (a read-
    # only container).
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:
        # numba found no folder that it can write to.
        return njit(**options)(function)
