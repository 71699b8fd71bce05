"""Checks that the settings of all trainings share."""

from __future__ import annotations

import math

from site_agent.errors import TrainingSettingsError


def require_whole(name: str, value: object, least: int, most: int) -> None:
    """Refuse what is no whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise TrainingSettingsError(
            f"{name} is {value!r}, expected a whole number from {least} to {most}"
        )


def require_number(name: str, value: object, *, above: float, most: float = math.inf) -> None:
    """Refuse what is no finite number above `above` and up to `most`."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not isinstance(value, int | float) or not above < value <= most:
        limit = "" if math.isinf(most) else f" and at most {most:g}"
        raise TrainingSettingsError(
            f"{name} is {value!r}, expected a number above {above:g}{limit}"
        )
