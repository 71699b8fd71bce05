"""Criteria as a user writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from site_agent.errors import ConditioningError
from site_agent.eyeblink.batch.settings import SETTING_NAMES, with_overrides
from site_agent.eyeblink.conditioning.settings import ConditioningSettings, CrRule
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.study.criteria import Criterion, criterion_name

# Settings that a criterion's name includes.
_NAMED = {"cr_rule", "cr_threshold", "cr_needs_onset", "onset_floor_ms", "reject_rules"}


def read_criteria(words: Sequence[str], own: ConditioningSettings) -> tuple[Criterion, ...]:
    """Return the study's own criterion and those that are asked for.

    Parameters
    ----------
    words : sequence of str
        Each a criterion: a rule and its threshold (``fec:0.05``, ``ur-share:0.1``,
        ``baseline-sd:3``), settings (``cr_needs_onset=yes``, ``baseline_ms=-300,0``), or several
        of them separated by blanks. What is not said is the study's own.

    Raises
    ------
    ConditioningError
    """
    found = {own: Criterion(f"own: {criterion_name(own)}", own)}
    for word in words:
        overrides = _overrides(word)
        try:
            settings = with_overrides(BlinkAnalysisSettings(conditioning=own), overrides)
        except ValueError as error:
            raise ConditioningError(f"the criterion {word!r}: {error}") from error
        others = [f"{name} {text}" for name, text in overrides.items() if name not in _NAMED]
        name = "; ".join([criterion_name(settings.conditioning), *others])
        found.setdefault(settings.conditioning, Criterion(name, settings.conditioning))
    return tuple(found.values())


def _overrides(word: str) -> dict[str, str]:
    overrides: dict[str, str] = {}
    for part in word.split():
        rule = re.fullmatch(r"([a-z-]+)[:>=]+(\d*\.?\d+)", part)
        name, equals, value = part.partition("=")
        name = name.replace("-", "_")
        if rule is not None and rule[1] in set(CrRule):
            overrides |= {"cr_rule": rule[1], "cr_threshold": rule[2]}
        elif equals and name in SETTING_NAMES and SETTING_NAMES[name].startswith("conditioning."):
            overrides[name] = value
        else:
            rules = ", ".join(f"{item}:THRESHOLD" for item in CrRule)
            raise ConditioningError(
                f"the criterion {word!r}: cannot read {part!r}; expected {rules}, or a "
                "conditioning setting such as cr_needs_onset=yes"
            )
    if not overrides:
        raise ConditioningError("an empty criterion")
    return overrides
