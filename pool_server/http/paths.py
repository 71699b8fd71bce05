"""Paths that decide how a request is handled before any route has seen it."""

import re
from collections.abc import Mapping
from typing import Any

API_PREFIX = "/api/v1"
HEALTH_PATHS = frozenset({"/healthz", "/readyz"})
OPEN_PATHS = frozenset(
    f"{API_PREFIX}/{path}" for path in ("invitations/accept", "devices", "devices/token")
)
"""Paths of the API that need no token."""
_PART_PATH = re.compile(rf"^(?:{API_PREFIX})?/uploads/[0-9a-f]{{32}}/parts/[0-9]{{1,6}}$")


def is_streamed(scope: Mapping[str, Any]) -> bool:
    """Return whether the request is an upload part, of the API or of a page.

    Its body may be as large as the upload it belongs to, and is read by its route alone, after the
    sender's identity and the part's size are known. Nothing else may read it.
    """
    return scope["method"] == "PUT" and _PART_PATH.fullmatch(scope["path"]) is not None
