"""Options made from a settings dataclass: names, defaults and help come from where they live."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from cli.frame.errors import UsageError


def settings_parameters(settings_type: type[Any], panel: str = "Settings") -> list[Any]:
    """Return one option for each field of a settings dataclass.

    The help is what the docstring's ``Attributes`` section says of the field.

    Parameters
    ----------
    settings_type : type
        A dataclass whose fields all have defaults.
    panel : str
        Title above the options.
    """
    helps = _attribute_texts(inspect.getdoc(settings_type) or "")
    hints = get_type_hints(settings_type)
    parameters = []
    for field in fields(settings_type):
        if field.default is MISSING:
            continue
        annotation, default, metavar = _option_type(hints[field.name], field.default)
        name = f"--{field.name.replace('_', '-')}"
        declaration = f"{name}/--no-{name[2:]}" if annotation is bool else name
        option = typer.Option(
            declaration, help=helps.get(field.name), metavar=metavar, rich_help_panel=panel
        )
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=Annotated[annotation, option],
                default=default,
            )
        )
    return parameters


def settings_from(settings_type: type[Any], values: dict[str, Any]) -> Any:
    """Build the settings from what the options gave."""
    hints = get_type_hints(settings_type)
    return settings_type(**{name: _field_value(hints[name], values[name], name) for name in values})


def _option_type(hint: Any, default: Any) -> tuple[Any, Any, str | None]:
    """Return annotation, default and metavar of the option for a field."""
    if _is_size(hint):
        shown = "x".join(str(side) for side in default) if isinstance(default, tuple) else default
        return str, str(shown), "WIDTHxHEIGHT"
    if get_origin(hint) is tuple:
        return str, ",".join(str(item) for item in default), "A,B,..."
    return hint, default, None


def _field_value(hint: Any, value: Any, name: str) -> Any:
    if _is_size(hint):
        numbers = [word.strip() for word in re.split("[x,]", value)]
        if not all(number.isdigit() for number in numbers) or len(numbers) not in {1, 2}:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {value!r}: expected WIDTHxHEIGHT, for example 80x80")
        sides = tuple(int(number) for number in numbers)
        return sides if len(sides) == 2 else sides[0]
    if get_origin(hint) is tuple:
        item_type = get_args(hint)[0]
        try:
            return tuple(item_type(word.strip()) for word in value.split(",") if word.strip())
        except ValueError:
            raise UsageError(
                f"--{name.replace('_', '-')} {value!r}: expected values separated by commas"
            ) from None
    return value


def _is_size(hint: Any) -> bool:
    """Tell the type ``(width, height) or area``."""
    return get_origin(hint) is UnionType and set(get_args(hint)) == {tuple[int, int], int}


def _attribute_texts(docstring: str) -> dict[str, str]:
    """Take the ``Attributes`` section of a numpydoc docstring apart."""
    _, _, section = docstring.partition("Attributes\n----------\n")
    texts: dict[str, list[str]] = {}
    names: list[str] = []
    for line in section.splitlines():
        if line and not line.startswith(" "):
            names = [name.strip() for name in line.partition(" : ")[0].split(",")]
        elif line.strip():
            for name in names:
                texts.setdefault(name, []).append(line.strip())
    return {name: " ".join(lines).replace("``", "") for name, lines in texts.items()}
