"""Settings of an analysis by their names, as columns of a table give them; and as plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from site_agent.eyeblink.conditioning.delimited_text import parse_number
from site_agent.eyeblink.conditioning.settings import ConditioningSettings
from site_agent.eyeblink.conditioning.trial_files import TrialTiming
from site_agent.eyeblink.outputs import ON_REQUEST
from site_agent.eyeblink.session import BlinkAnalysisSettings

_PARTS = (
    "faces",
    "blinks",
    "blinks.calibration",
    "filter",
    "conditioning",
    "trial_timing",
    "trial_timing.ttl",
    "labels",
)
# What these are called by themselves are columns of a table that say something else.
_OTHER_NAMES: Mapping[tuple[str, ...], str] = {
    ("labels", "subject"): "bids_subject",
    ("labels", "session"): "bids_session",
    ("labels", "start"): "session_start",
}
_OUTPUTS = "outputs"
_READERS: Mapping[Any, Callable[[str], Any]] = {
    float: parse_number,
    datetime: datetime.fromisoformat,
}
# Of a recording with BIDS names only; a table may tell the task of others as well.
_WITH_SUBJECT = frozenset({"bids_session", "task"})


def _setting_types() -> Iterator[tuple[str, tuple[tuple[str, ...], Any]]]:
    for part in _PARTS:
        kind: Any = BlinkAnalysisSettings
        for name in part.split("."):
            kind = get_type_hints(kind)[name]
        for name, hint in get_type_hints(kind).items():
            if not is_dataclass(hint):
                path = (*part.split("."), name)
                yield _OTHER_NAMES.get(path, name), (path, hint)
    for name in ON_REQUEST:
        yield name, ((_OUTPUTS, name), bool)


SETTING_NAMES: Mapping[str, tuple[tuple[str, ...], Any]] = dict(_setting_types())
"""Every setting that has a value of its own: where it stands in the settings, and its type."""


def with_overrides(
    settings: BlinkAnalysisSettings, overrides: Mapping[str, str]
) -> BlinkAnalysisSettings:
    """Return the settings with some of them given as text.

    Raises
    ------
    ValueError
        A text that is no value of its setting.
    BlinkAnalysisError, ConditioningError
        A value that is out of the setting's range.
    """
    # In their own order: a session's label is nothing without that of the subject.
    for name in sorted(overrides, key=list(SETTING_NAMES).index):
        if name in _WITH_SUBJECT and not settings.labels.subject:
            continue
        (path, hint), text = SETTING_NAMES[name], overrides[name]
        try:
            value = _value(hint, text.strip())
        except (ValueError, KeyError) as error:
            raise ValueError(f"{name} is {text!r}, expected {_expected(hint)}") from error
        settings = _changed(settings, path, value)
    settings.faces.check()
    settings.filter.check()
    settings.blinks.calibration.check()
    return settings


def _changed(settings: Any, path: Sequence[str], value: Any) -> Any:
    """Return settings with one of them, however deep, replaced."""
    name, *deeper = path
    if name == _OUTPUTS:
        chosen = frozenset(deeper)
        old: frozenset[str] = settings.outputs
        return replace(settings, outputs=old | chosen if value else old - chosen)
    if deeper:
        value = _changed(getattr(settings, name), deeper, value)
    return replace(settings, **{name: value})


def conditioning_from_plain(plain: Mapping[str, Any]) -> ConditioningSettings:
    """Return conditioning settings from the JSON types of `plain_settings`.

    Names that this version does not know are left out, those that are missing get their defaults.

    Raises
    ------
    ConditioningError
        A value that is out of its range.
    ValueError, TypeError
        A value of another type.
    """
    hints = get_type_hints(ConditioningSettings)
    values: dict[str, Any] = {}
    for name, value in plain.items():
        hint = hints.get(name)
        if get_origin(hint) is tuple:
            values[name] = tuple(get_args(hint)[0](item) for item in value)
        elif isinstance(hint, type):
            values[name] = hint(value)
        elif hint is not None:
            values[name] = value
    return ConditioningSettings(**values)


def plain_settings(settings: BlinkAnalysisSettings | ConditioningSettings | TrialTiming) -> Any:
    """Return settings as JSON types whose order and form depend on the values alone."""
    return _plain(asdict(settings))


def _value(hint: Any, text: str) -> Any:
    choices = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return _value(next(choice for choice in choices if choice is not NoneType), text)
    if get_origin(hint) is Literal:
        return {str(choice): choice for choice in choices}[text]
    if get_origin(hint) is tuple:
        words = text.replace(";", ",").replace(" ", ",").split(",")
        return tuple(_value(choices[0], word) for word in words if word)
    if hint is bool:
        return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[
            text.lower()
        ]
    return _READERS.get(hint, hint)(text)


def _expected(hint: Any) -> str:
    choices = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return _expected(next(choice for choice in choices if choice is not NoneType))
    if get_origin(hint) is Literal:
        return ", ".join(str(choice) for choice in choices)
    if get_origin(hint) is tuple:
        return f"{_expected(choices[0])} separated by commas"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(str(member) for member in hint)
    return {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        datetime: "a date and time such as 2026-05-04T13:45:00+02:00",
    }.get(hint, "a text")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in sorted(value.items())}
    if isinstance(value, frozenset | set):
        return sorted(_plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum | Path):
        return str(value)
    return value
