"""Settings by their names: listed, read from TOML or from text, and written as commented TOML.

Works on any frozen dataclass whose fields are values or further such dataclasses. A setting's
full name is its path (``blinks.calibration.closed_from``); the last part is enough where no other
setting has it. What the file says of a setting is the ``Attributes`` section of its class.
"""

from __future__ import annotations

import difflib
import inspect
import json
import math
import textwrap
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from site_agent.errors import SettingsError

S = TypeVar("S")

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_COMMENT_WIDTH = 96


@dataclass(frozen=True)
class Setting:
    """One setting: its type, its value, and what its class says of it."""

    hint: Any
    value: Any
    text: str

    @property
    def expected(self) -> str:
        """What a value has to be, in words."""
        return _expected(self.hint)


def list_settings(settings: Any, leave_out: Collection[str] = ()) -> dict[str, Setting]:
    """Return every setting by its full name."""
    return dict(_walk(settings, "", leave_out))


def with_values(settings: S, values: Mapping[str, Any], leave_out: Collection[str] = ()) -> S:
    """Return the settings with some replaced, by full names or the last parts of them.

    The values are text, or what TOML has.
    """
    known = list_settings(settings, leave_out)
    changes: dict[str, Any] = {}
    for name, given in values.items():
        full = find_name(known, name)
        try:
            value = _value(known[full].hint, given)
        except (ValueError, KeyError, TypeError):
            expected = known[full].expected
            raise SettingsError(f"{name} is {given!r}, expected {expected}") from None
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
    found = [full for full in known if full.endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise SettingsError(f"{name} is ambiguous: {' or '.join(found)}")
    lasts = {full.rpartition(".")[2]: full for full in known}
    near = difflib.get_close_matches(name.rpartition(".")[2], lasts, 2, 0.5)
    advice = f"; did you mean {' or '.join(lasts[each] for each in near)}?" if near else ""
    raise SettingsError(f"there is no setting {name!r}{advice}")


def read_settings_file(path: Path, settings: S, leave_out: Collection[str] = ()) -> S:
    """Return the settings with those of a TOML file."""
    try:
        return with_values(settings, _flat(tomllib.loads(path.read_text("utf-8"))), leave_out)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path}: not valid TOML ({error})") from error
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from error


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


def changed_values(settings: Any, leave_out: Collection[str] = ()) -> dict[str, str]:
    """Return the settings that differ from the defaults of their classes, as text by full name."""
    return {
        name: setting_text(setting.value)
        for name, setting in list_settings(settings, leave_out).items()
        if setting.value != getattr(_default_of(settings, name), name.rpartition(".")[2])
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


def attribute_texts(settings_type: type[Any]) -> dict[str, str]:
    """Return what the ``Attributes`` section of a class says of each field."""
    _, _, section = (inspect.getdoc(settings_type) or "").partition("Attributes\n----------\n")
    texts: dict[str, list[str]] = {}
    names: list[str] = []
    for line in section.splitlines():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.partition(" : ")[0].split(",")]
        elif line.strip():
            for name in names:
                texts.setdefault(name, []).append(line.strip())
    return {name: " ".join(lines).replace("`", "") for name, lines in texts.items()}


def _walk(settings: Any, prefix: str, leave_out: Collection[str]) -> Iterator[tuple[str, Setting]]:
    kind = type(settings)
    hints, texts = get_type_hints(kind), attribute_texts(kind)
    for item in fields(kind):
        name, value = f"{prefix}{item.name}", getattr(settings, item.name)
        if name in leave_out:
            continue
        if is_dataclass(value):
            yield from _walk(value, f"{name}.", leave_out)
        else:
            yield name, Setting(hints[item.name], value, texts.get(item.name, ""))


def _group(settings: Any, group: str) -> Any:
    for name in filter(None, group.split(".")):
        settings = getattr(settings, name)
    return settings


def _default_of(settings: Any, name: str) -> Any:
    return type(_group(settings, name.rpartition(".")[0]))()


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
    words = setting.expected.split(", ")
    if not is_choice or all(word in setting.text for word in words):
        return setting.text
    return f"{setting.text} One of {', '.join(words)}."


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in table.items():
        inner = isinstance(value, dict)
        values |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return values


def _replaced(settings: S, changes: Mapping[str, Any]) -> S:
    values = {
        name: _replaced(getattr(settings, name), change) if isinstance(change, dict) else change
        for name, change in changes.items()
    }
    return replace(settings, **values) if values else settings  # type: ignore[type-var]


def _value(hint: Any, given: Any) -> Any:
    choices, origin = get_args(hint), get_origin(hint)
    if origin in (Union, UnionType):
        return _value_of_union(choices, given)
    if origin is tuple:
        return _items(choices, given)
    if isinstance(given, datetime) and hint is datetime:
        return given
    if hint is str and not isinstance(given, str):
        raise ValueError(given)
    text = given.strip() if isinstance(given, str) else str(given)
    if origin is Literal:
        return {str(choice): choice for choice in choices}[text]
    return _READERS.get(hint, hint)(text)


def _read_float(text: str) -> float:
    number = float(text.replace(",", "."))
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _read_bool(text: str) -> bool:
    return _WORDS[text.lower()]


_READERS: Mapping[Any, Callable[[str], Any]] = {
    bool: _read_bool,
    float: _read_float,
    datetime: datetime.fromisoformat,
}


def _items(choices: tuple[Any, ...], given: Any) -> tuple[Any, ...]:
    if isinstance(given, str):
        words = given.replace(";", ",").replace(" ", ",")
        given = [word for word in words.split(",") if word]
    elif not isinstance(given, list | tuple):
        given = [given]
    if Ellipsis not in choices and len(given) != len(choices):
        raise ValueError(given)
    return tuple(_value(choices[0], item) for item in given)


def _value_of_union(choices: tuple[Any, ...], given: Any) -> Any:
    if NoneType in choices and given in ("", "none", "None"):
        return None
    kinds = [choice for choice in choices if choice is not NoneType]
    if isinstance(given, str) and any(get_origin(kind) is tuple for kind in kinds):
        words = given.lower().replace("x", ",").split(",")
        given = words if len(words) > 1 else given
    is_list = isinstance(given, list | tuple)
    fitting = [kind for kind in kinds if (get_origin(kind) is tuple) == is_list]
    return _value((fitting or kinds)[0], given)


def _expected(hint: Any) -> str:
    choices, origin = get_args(hint), get_origin(hint)
    if origin in (Union, UnionType):
        return " or ".join(
            "none" if choice is NoneType else _expected(choice) for choice in choices
        )
    if origin is Literal:
        return ", ".join(str(choice) for choice in choices)
    if origin is tuple and Ellipsis not in choices:
        return f"{len(choices)} numbers separated by commas"
    if origin is tuple:
        return f"{_expected(choices[0])} or several separated by commas"
    if isinstance(hint, type) and issubclass(hint, Enum):
        return ", ".join(str(member) for member in hint)
    words = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        datetime: "a date and time such as 2026-05-04T13:45:00+02:00",
    }
    return words.get(hint, "text")
