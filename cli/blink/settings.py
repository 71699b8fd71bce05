"""The settings of an analysis as options: the same for one recording and for many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from cli.frame.settings_options import settings_from, settings_parameters
from site_agent.eyeblink.blinks.finding import BlinkSettings
from site_agent.eyeblink.conditioning.settings import ConditioningSettings
from site_agent.eyeblink.conditioning.trial_files import TrialTiming
from site_agent.eyeblink.conditioning.ttl_log import TtlSettings
from site_agent.eyeblink.face.settings import FaceSettings
from site_agent.eyeblink.openness.filters import FilterSettings
from site_agent.eyeblink.openness.signal import CalibrationSettings

if TYPE_CHECKING:
    from site_agent.eyeblink.session import BlinkAnalysisSettings

_PARTS: Mapping[str, tuple[type[Any], str]] = {
    "faces": (FaceSettings, "Finding the face"),
    "blinks": (BlinkSettings, "What counts as a blink"),
    "calibration": (CalibrationSettings, "Open and closed eye"),
    "filter": (FilterSettings, "Smoothing"),
    "trial_timing": (TrialTiming, "When the stimuli came"),
    "ttl": (TtlSettings, "When the stimuli came"),
    "conditioning": (ConditioningSettings, "Conditioning"),
}

SETTINGS_PARAMETERS = tuple(
    parameter
    for settings_type, panel in _PARTS.values()
    for parameter in settings_parameters(settings_type, panel)
)


def analysis_settings(values: Mapping[str, Any], **others: Any) -> BlinkAnalysisSettings:
    """Return the settings that the options gave.

    Parameters
    ----------
    values : mapping of str to anything
        By the names of `SETTINGS_PARAMETERS`; what else is in it is left alone.
    **others
        Labels and outputs.
    """
    from site_agent.eyeblink.session import BlinkAnalysisSettings

    parts = {}
    for part, (settings_type, _) in _PARTS.items():
        names = {field.name for field in fields(settings_type)}
        parts[part] = settings_from(
            settings_type, {name: value for name, value in values.items() if name in names}
        )
    ttl, calibration = parts.pop("ttl"), parts.pop("calibration")
    parts["blinks"] = replace(parts["blinks"], calibration=calibration)
    parts["trial_timing"] = replace(parts["trial_timing"], ttl=ttl)
    return BlinkAnalysisSettings(**parts, **others)
