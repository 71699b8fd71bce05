"""The program that draws a model, in a limited child process; see `pool_server.models.pictures`."""

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aggregators.formats import read_model
from aggregators.pictures import draw_model


def run(plan: Mapping[str, Any]) -> dict[str, str | None]:
    """Draw the model file `path` in one `size`; `content` is in base64, null above `most_bytes`."""
    path = Path(plan["path"])
    model = read_model(path, max_bytes=path.stat().st_size)
    media_type, content = draw_model(model, plan["size"])
    is_small = len(content) <= plan["most_bytes"]
    return {
        "media_type": media_type,
        "content": base64.b64encode(content).decode() if is_small else None,
    }
