"""Read an uploaded file: a program that the helper process runs with little memory and time.

Reading untrusted bytes may crash or take much memory; only this process ends then. It needs no
network, no database and no secret. It answers::

    {"accepted": true, "kind": ..., "format": ..., "fingerprint": {...}, "merge_keys": {...}}
    {"accepted": false, "message": "what was found and what was expected"}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def run(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Read the model file `path` of any known format; messages call it `name`."""
    from aggregators.errors import AggregatorError, FormatError
    from aggregators.formats import fingerprint, read_model, recognise
    from aggregators.methods import merge_keys

    path, name = Path(plan["path"]), plan["name"]
    try:
        format_name = recognise(path).name
        model = read_model(path, max_bytes=path.stat().st_size)
        described = fingerprint(model, format_name)
        return {
            "accepted": True,
            "kind": described["kind"],
            "format": described["format"],
            "fingerprint": described,
            "merge_keys": merge_keys(described),
        }
    except FormatError as error:
        return {"accepted": False, "message": str(error.about(name))}
    except AggregatorError as error:
        return {"accepted": False, "message": f"{name}: {error}"}
