"""Text on the standard streams: safe to print, coloured, or JSON."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any, TextIO

# Marks of direction and characters without width: they make a text look like another.
_DECEPTIVE = r"\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
# Lines and tabs are for people; everything else among these is for terminals.
_CONTROLS = re.compile(rf"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_DECEPTIVE}]")
# Those that JSON would let through.
_LATE_CONTROLS = re.compile(rf"[\x7f-\x9f{_DECEPTIVE}]")


def print_json(envelope: dict[str, Any]) -> None:
    """Write one JSON object to standard output.

    Numbers that JSON does not have (NaN, infinities) become null.
    """
    sys.stdout.write(json_text(_plain(envelope), indent=2) + "\n")
    sys.stdout.flush()


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return JSON that no terminal takes for a command."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return _LATE_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def printable(text: str, stream: TextIO) -> str:
    """Return text as it may be printed: for a terminal with control characters written out.

    So are marks of direction and characters without width.

    Descriptions, cards and messages are words of other sites, and of a pool that need not mean
    well; a terminal would do what such characters say.
    """
    if not stream.isatty():
        return text
    return _CONTROLS.sub(_write_out, text)


def _write_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def styled(text: str, ansi: str, stream: TextIO) -> str:
    """Colour `text` where the stream is a terminal and ``NO_COLOR`` is not set."""
    if os.environ.get("NO_COLOR") or not stream.isatty():
        return text
    return f"\x1b[{ansi}m{text}\x1b[0m"


def _plain(value: Any) -> Any:
    """Reduce pydantic models, dataclasses, paths, arrays and non-finite numbers to JSON."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return _plain(_unwrap(value))


def _unwrap(value: Any) -> Any:
    from dataclasses import fields, is_dataclass

    unwrap: Callable[[], Any] | None = getattr(value, "tolist", None)
    if unwrap is not None:
        return unwrap()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if is_dataclass(value):
        return {item.name: getattr(value, item.name) for item in fields(value)}
    return str(value)
