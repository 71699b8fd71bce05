"""JSON whose list entries know on which line of the file they begin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_BLANK = " \t\n\r"


@dataclass(frozen=True)
class PlacedEntry:
    """An entry of a list, and the line on which it begins, counted from 1."""

    value: Any
    line: int


def read_lists(text: str) -> dict[str, list[PlacedEntry]]:
    """Return the lists that the object of a JSON text holds at its top level.

    Raises
    ------
    json.JSONDecodeError
        For what is not JSON, or no object.
    """
    decoder = json.JSONDecoder()
    found: dict[str, list[PlacedEntry]] = {}
    at = _expect(text, _skip(text, 0), "{")
    if text[at : at + 1] == "}":
        return found
    while True:
        name, at = decoder.raw_decode(text, at)
        if not isinstance(name, str):
            raise json.JSONDecodeError("Expecting a property name", text, at)
        at = _expect(text, _skip(text, at), ":")
        if text[at : at + 1] == "[":
            entries = list(_entries(decoder, text, at))
            found[name] = [PlacedEntry(value, line) for value, line, _ in entries[:-1]]
            at = entries[-1][2]
        else:
            _, at = decoder.raw_decode(text, at)
        at = _skip(text, at)
        if text[at : at + 1] == "}":
            return found
        at = _expect(text, at, ",")


def _entries(decoder: json.JSONDecoder, text: str, at: int) -> Iterator[tuple[Any, int, int]]:
    """Yield value, line and end of each entry of a list, and at last None and the list's end."""
    line, counted = 1 + text.count("\n", 0, at), at
    at = _expect(text, at, "[")
    if text[at : at + 1] == "]":
        yield None, line, at + 1
        return
    while True:
        line, counted = line + text.count("\n", counted, at), at
        value, at = decoder.raw_decode(text, at)
        yield value, line, at
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            yield None, line, at + 1
            return
        at = _expect(text, at, ",")


def _expect(text: str, at: int, mark: str) -> int:
    """Step over a mark and the blanks behind it."""
    if text[at : at + 1] != mark:
        raise json.JSONDecodeError(f"Expecting '{mark}'", text, at)
    return _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANK:
        at += 1
    return at
