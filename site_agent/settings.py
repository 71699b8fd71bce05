"""Settings: classes that check themselves, and their names in TOML files and on command lines.

A class of settings derives from `Settings`: a frozen dataclass. Its fields are values, with range
and explanation, or further settings. A setting's full name is its path
(``blinks.calibration.closed_from``); the last part is enough where no other setting has it.
"""

import difflib
import inspect
import json
import re
import textwrap
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from site_agent.errors import SettingsError, SiteAgentError

S = TypeVar("S")

_COMMENT_WIDTH = 96


@dataclass_transform(frozen_default=True, field_specifiers=(Field,))
class Settings:
    """Base of settings.

    A field has its range in pydantic's ``Field``, and its explanation below it; conditions on
    several fields are checked in ``__post_init__``. ``class ErtSettings(Settings, error=...)``
    names the error for values out of range; ``from_source=False`` is for classes made at run time,
    for which pydantic would search all modules for the explanations below fields.
    """

    _error: ClassVar[type[SiteAgentError]] = SettingsError

    def __init_subclass__(
        cls, *, error: type[SiteAgentError] | None = None, from_source: bool = True
    ) -> None:
        super().__init_subclass__()
        cls._error = error or cls._error
        # Strict: a text is no number, and a truth value neither. `with_values` reads text.
        config = ConfigDict(
            strict=True, allow_inf_nan=False, extra="forbid", use_attribute_docstrings=from_source
        )
        checked_dataclass(frozen=True, config=config)(cls)
        make = cls.__init__

        def init(self: Settings, *values: Any, **named: Any) -> None:
            try:
                make(self, *values, **named)
            except ValidationError as problem:
                raise _explained(cls, problem) from None

        cls.__init__ = init  # type: ignore[method-assign, assignment]

    @classmethod
    def refused(cls, name: str, value: object, expected: str) -> SiteAgentError:
        """Return the error for a value that cannot be used."""
        return cls._error(f"{name} is {value!r}, expected {expected}")


def _explained(kind: Any, error: ValidationError) -> Exception:
    """Return the error of pydantic in the form of all errors about settings."""
    problem = error.errors(include_url=False)[0]
    if isinstance(inner := problem.get("ctx", {}).get("error"), SiteAgentError):
        return inner
    if not problem["loc"]:  # a condition on several fields
        return SettingsError(problem["msg"].removeprefix("Value error, "))
    known = _fields_of(kind)
    place = problem["loc"][0]
    name = list(known)[place] if isinstance(place, int) else place
    is_absent = problem["type"].startswith("missing") and len(problem["loc"]) == 1
    if name not in known or is_absent:
        return TypeError(f"{kind.__name__}, {name}: {problem['msg']}")
    refused = kind.refused if issubclass(kind, Settings) else Settings.refused
    return refused(name, problem["input"], _expected(known[name].hint))


@dataclass(frozen=True)
class Setting:
    """One setting: its type, its value, and its explanation."""

    hint: Any
    value: Any
    text: str

    @property
    def expected(self) -> str:
        """The permitted values, in words."""
        return _expected(self.hint)


def list_settings(settings: Any, leave_out: Collection[str] = ()) -> dict[str, Setting]:
    """Return every setting by its full name."""
    return dict(_walk(settings, "", leave_out))


_GIVEN_UP = {
    "weight_by": "", "filter.filter": "none", "filter.filter_ms": 120.0, "files.bits": 16,
    "labels.task": "",
}  # fmt: skip
"""Settings of the release before, at the values at which printed files have them unused."""


def with_values(settings: S, values: Mapping[str, Any], leave_out: Collection[str] = ()) -> S:
    """Return the settings with some replaced, by full names or the last parts of them.

    The values are text, or values from TOML; tables hold the values of groups.
    """
    known = list_settings(settings, leave_out)
    changes: dict[str, Any] = {}
    for name, raw in _flat(values).items():
        if name in _GIVEN_UP and raw == _GIVEN_UP[name]:
            continue
        full = find_name(known, name)
        try:
            value = _reader(known[full].hint).validate_python(_prepared(known[full].hint, raw))
        except ValidationError:
            expected = known[full].expected
            raise SettingsError(f"{name} is {raw!r}, expected {expected}") from None
        *groups, last = full.split(".")
        inner = changes
        for group in groups:
            inner = inner.setdefault(group, {})
        inner[last] = value
    return _replaced(settings, changes)


def find_name(known: Collection[str], name: str) -> str:
    """Return the full name that `name` stands for."""
    name = name.replace("-", "_")
    if name in known:
        return name
    matches = [full for full in known if full.endswith(f".{name}")]
    if len(matches) == 1:
        return matches[0]
    lasts = {full.rpartition(".")[2]: full for full in known}
    near = difflib.get_close_matches(name.rpartition(".")[2], lasts, 2, 0.5)
    advice = f"; did you mean {' or '.join(lasts[match] for match in near)}?" if near else ""
    raise SettingsError(f"there is no setting {name!r}{advice}")


def read_settings_file(path: Path, settings: S, leave_out: Collection[str] = ()) -> S:
    """Return the settings with those of a TOML file."""
    table = read_toml_table(path)
    with naming(f"{path}"):
        return with_values(settings, table, leave_out)


def read_toml_table(path: Path) -> dict[str, Any]:
    """Return the values and tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: not valid TOML ({error})") from error


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Put a place, such as a file, before the messages about settings in the block."""
    try:
        yield
    except SettingsError as error:
        raise SettingsError(f"{place}: {error}") from error


def settings_toml(settings: Any, leave_out: Collection[str] = ()) -> str:
    """Return all settings as TOML that `read_settings_file` reads, each with an explanation."""
    groups: dict[str, list[str]] = {}
    before = ""
    for name, setting in list_settings(settings, leave_out).items():
        group, _, last = name.rpartition(".")
        if group not in groups:
            groups[group] = _group_lines(settings, group)
        unset = setting.value is None
        line = f"# {last} =" if unset else f"{last} = {toml_value(setting.value)}"
        if setting.text == before and groups[group]:
            groups[group][-1:] = [line, ""]  # one text explains both
        else:
            groups[group] += [*_comment(_explanation(setting)), line, ""]
        before = setting.text
    return "\n".join(line for lines in groups.values() for line in lines).rstrip() + "\n"


def changed_values(
    settings: Any, leave_out: Collection[str] = (), base: Any = None
) -> dict[str, str]:
    """Return as text, by full name, the settings that differ from those of `base`.

    Without a base they are compared with the defaults of their classes.
    """
    return {
        name: setting_text(setting.value)
        for name, setting in list_settings(settings, leave_out).items()
        if setting.value != _value_before(settings, name, base)
    }


def setting_text(value: Any) -> str:
    """Return a value as the text that `with_values` reads."""
    if isinstance(value, tuple):
        return ",".join(setting_text(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else str(value)


def toml_value(value: Any) -> str:
    """Return a value in TOML's own form."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False)


@dataclass(frozen=True)
class _Field:
    hint: Any
    text: str


def _fields_of(kind: Any) -> dict[str, _Field]:
    """Return the type, with its range, and the explanation of each field of a class."""
    return {
        name: _Field(
            Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation,
            " ".join((field.description or "").split()),
        )
        for name, field in kind.__pydantic_fields__.items()
    }


def _walk(settings: Any, prefix: str, leave_out: Collection[str]) -> Iterator[tuple[str, Setting]]:
    for field_name, field in _fields_of(type(settings)).items():
        name, value = f"{prefix}{field_name}", getattr(settings, field_name)
        if name in leave_out:
            continue
        if is_dataclass(value) or isinstance(value, BaseModel):
            yield from _walk(value, f"{name}.", leave_out)
        else:
            yield name, Setting(field.hint, value, field.text)


def _group(settings: Any, group: str) -> Any:
    for name in filter(None, group.split(".")):
        settings = getattr(settings, name)
    return settings


def _value_before(settings: Any, name: str, base: Any) -> Any:
    group, _, last = name.rpartition(".")
    before = type(_group(settings, group))() if base is None else _group(base, group)
    return getattr(before, last)


def _group_lines(settings: Any, group: str) -> list[str]:
    if not group:
        return []
    title = (inspect.getdoc(_group(settings, group)) or "").partition("\n")[0].replace("`", "")
    return [f"# {title}", f"[{group}]", ""]


def _comment(text: str) -> list[str]:
    wrap = {"width": _COMMENT_WIDTH, "break_on_hyphens": False, "break_long_words": False}
    return textwrap.wrap(text, initial_indent="# ", subsequent_indent="# ", **wrap)  # type: ignore[arg-type]


def _explanation(setting: Setting) -> str:
    """Return the text of a setting, and the words it can be where the text has not all of them."""
    is_choice = get_origin(setting.hint) is Literal or (
        isinstance(setting.hint, type) and issubclass(setting.hint, Enum)
    )
    parts = setting.expected.split(", ")
    if not is_choice or all(word in setting.text for word in parts):
        return setting.text
    return f"{setting.text} One of {', '.join(parts)}."


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in table.items():
        inner = isinstance(value, dict)
        values |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return values


def _replaced(settings: S, changes: Mapping[str, Any]) -> S:
    if not changes:
        return settings
    values = {name: getattr(settings, name) for name in _fields_of(type(settings))}
    for name, change in changes.items():
        values[name] = _replaced(values[name], change) if isinstance(change, dict) else change
    try:
        return type(settings)(**values)
    except ValidationError as error:
        raise _explained(type(settings), error) from None


@lru_cache(maxsize=512)
def _reader(hint: Any) -> TypeAdapter[Any]:
    """Return the reader of values from text or TOML; ranges are checked with the other fields."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return TypeAdapter(kind, config=ConfigDict(allow_inf_nan=False))


def _kinds(hint: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return each type of a union, or the one type, with its range."""
    metadata: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *limits = get_args(hint)
        metadata = tuple(limit for item in limits for limit in getattr(item, "metadata", [item]))
    if get_origin(hint) in (Union, UnionType):
        return [
            (kind, (*metadata, *limits))
            for member in get_args(hint)
            for kind, limits in _kinds(member)
        ]
    return [(hint, metadata)]


def _prepared(hint: Any, value: Any) -> Any:
    """Return a value in the form in which pydantic reads it."""
    kinds = [kind for kind, _ in _kinds(hint)]
    if isinstance(value, bool) and bool not in kinds:
        return str(value)
    lists = [get_args(kind) for kind in kinds if get_origin(kind) is tuple]
    if not isinstance(value, str):
        return [value] if lists and len(kinds) == 1 and not isinstance(value, list) else value
    text = value.strip()
    if text.startswith(("[", '"')):  # as `settings_toml` prints it
        with suppress(tomllib.TOMLDecodeError):
            return _prepared(hint, tomllib.loads(f"value = {text}")["value"])
    if NoneType in kinds and text in ("", "none", "None"):
        return None
    if lists:
        between = r"[\s,;]+" if _kinds(lists[0][0])[0][0] is str else r"[\s,;x]+"
        parts = [word for word in re.split(between, text) if word]
        return parts if len(kinds) == 1 or len(parts) > 1 else text
    return text.replace(",", ".") if float in kinds else text


def _expected(hint: Any) -> str:
    return " or ".join(_expected_of(kind, limits) for kind, limits in _kinds(hint))


def _expected_of(kind: Any, limits: tuple[Any, ...]) -> str:
    choices, origin = get_args(kind), get_origin(kind)
    if kind is NoneType:
        return "none"
    if origin is Literal:
        return ", ".join(str(choice) for choice in choices)
    if origin is tuple and Ellipsis not in choices:
        limits = _kinds(choices[0])[0][1]
        even = "even " * any(getattr(item, "multiple_of", 1) == 2 for item in limits)
        return f"{len(choices)} {even}numbers{_range(limits)} separated by commas"
    if origin is tuple:
        return f"{_expected(choices[0])} or several separated by commas"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return ", ".join(str(member) for member in kind)
    descriptions = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        datetime: "a date and time such as 2026-05-04T13:45:00+02:00",
    }
    return descriptions.get(kind, "text") + _range(limits)


def _range(limits: tuple[Any, ...]) -> str:
    """Return the limits of a number in words: `` from 1 to 16``."""
    ranges = {key: getattr(item, key) for item in limits for key in _LIMITS if hasattr(item, key)}
    text = "".join(phrase.format(ranges[key]) for key, phrase in _LIMITS.items() if key in ranges)
    return text.replace(" to ", " and at most ") if "gt" in ranges else text


_LIMITS = {"ge": " from {}", "gt": " above {}", "le": " to {}", "lt": " to below {}"}
