"""Settings of an analysis: which of them a user can give, and as columns of a table of sessions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from site_agent.eyeblink.conditioning.settings import ConditioningSettings
from site_agent.eyeblink.conditioning.ttl_log import TrialTiming
from site_agent.eyeblink.outputs import ON_REQUEST
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.plain_json import plain
from site_agent.settings import list_settings, with_values

S = TypeVar("S")

_MISSING = object()

LEFT_OUT = ("blinks.dips", "blinks.extents", "outputs", "labels.subject", "labels.session")
"""Settings that neither a settings file nor ``--set`` changes."""

# Columns that a table already uses for something else.
_OTHER_COLUMNS = {
    "labels.subject": "bids_subject",
    "labels.session": "bids_session",
    "labels.start": "session_start",
}
_OUTPUTS = "outputs."


def _columns() -> dict[str, str]:
    names = list_settings(BlinkAnalysisSettings(), ("blinks.dips", "blinks.extents", "outputs"))
    columns = {_OTHER_COLUMNS.get(name, name.rpartition(".")[2]): name for name in names}
    return columns | {name: f"{_OUTPUTS}{name}" for name in ON_REQUEST}


SETTING_NAMES: Mapping[str, str] = _columns()
"""The full name of each setting by the column of a table that gives it."""


def with_overrides(
    settings: BlinkAnalysisSettings, overrides: Mapping[str, str]
) -> BlinkAnalysisSettings:
    """Return the settings with some of them given as text, by column."""
    named = {SETTING_NAMES[column]: text for column, text in overrides.items()}
    outputs = {name.removeprefix(_OUTPUTS) for name in named if name.startswith(_OUTPUTS)}
    chosen = set(settings.outputs)
    for name in outputs:
        wanted = named.pop(f"{_OUTPUTS}{name}").strip().lower() in {"true", "yes", "1"}
        chosen = chosen | {name} if wanted else chosen - {name}
    if not (settings.labels.subject or named.get("labels.subject")):
        # Labels of files with BIDS names; a table may give the task of other recordings, too.
        named.pop("labels.session", None)
        named.pop("labels.task", None)
    return with_values(replace(settings, outputs=frozenset(chosen)), named)


def settings_from_plain(
    defaults: S, given: Mapping[str, Any], leave_out: Collection[str] = ()
) -> S:
    """Return settings from the JSON types of `plain_settings`.

    Names that this version does not know are ignored, those that are missing get their defaults.
    """
    values = {}
    for name in list_settings(defaults, leave_out):
        value: Any = given
        for part in name.split("."):
            value = value.get(part, _MISSING) if isinstance(value, Mapping) else _MISSING
        if value is not _MISSING:
            values[name] = "none" if value is None else value
    return with_values(defaults, values, leave_out)


def plain_settings(settings: BlinkAnalysisSettings | ConditioningSettings | TrialTiming) -> Any:
    """Return settings as JSON types whose order and form depend on the values alone."""
    return plain(settings)
