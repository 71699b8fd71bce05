"""JSON that every reader takes: no NaN, sets in order, times as ISO 8601."""

from __future__ import annotations

import json
import math
from datetime import date
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from aggregators.whole_file import write_whole


def write_json(path: Path, content: Any) -> None:
    """Write plain data, indented, as a whole file."""
    text = json.dumps(plain(content), indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(path, text + "\n")


def plain(value: Any) -> Any:
    """Reduce to what JSON has: NaN and infinity become null, numbers of numpy plain ones."""
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, set | frozenset | list | tuple):
        # The order of a set differs from run to run, and equal results give equal files.
        ordered = sorted(value) if isinstance(value, set | frozenset) else value
        return [plain(entry) for entry in ordered]
    return _plain_scalar(value.item() if isinstance(value, np.generic) else value)


def _plain_scalar(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, PurePath) else value
