"""JSON that every reader takes: no NaN, sets in order, times as ISO 8601."""

import json
import math
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from pathlib import Path, PurePath
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator

from aggregators.whole_file import write_whole

Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""A number as `plain` writes it: null is NaN."""


def write_json(path: Path, content: Any, *, mode: int = 0o666, lasting: bool = True) -> None:
    """Write plain data, indented, as a whole file; options as those of `whole_file`."""
    write_whole(path, json_bytes(content), mode=mode, lasting=lasting)


def json_bytes(content: Any) -> bytes:
    """Return plain data as indented UTF-8, for reports that may go to a pipe, too."""
    text = json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False)
    # File names that are no UTF-8 have lone surrogates, which JSON can escape.
    return (text + "\n").encode(errors="backslashreplace")


def plain(value: Any) -> Any:
    """Reduce to values of JSON, dataclasses, pydantic models and arrays included.

    NaN and infinities become null. A value without a JSON form stays as it is.
    """
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, set | frozenset | list | tuple):
        # The order of a set differs from run to run, and equal results give equal files.
        ordered = sorted(value) if isinstance(value, set | frozenset) else value
        return [plain(entry) for entry in ordered]
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return plain(value.tolist())
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, PurePath) else value
