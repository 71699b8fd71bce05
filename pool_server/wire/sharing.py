"""With whom a model is shared."""

from __future__ import annotations

from typing import Literal

Right = Literal["see", "download", "merge", "redistribute"]
RIGHTS: tuple[Right, ...] = ("see", "download", "merge", "redistribute")

Visibility = Literal["private", "sites", "consortium"]
