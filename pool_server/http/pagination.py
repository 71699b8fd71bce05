"""Paging through listings by key: no page is skipped or shown twice when versions are added."""

from __future__ import annotations

import base64
import binascii
import re

from pool_server.errors import QueryError

_CURSOR = re.compile(r"^v1:before=([1-9][0-9]{0,17})$")


def write_cursor(before_id: int) -> str:
    """Return an opaque cursor for what comes after the row of that id."""
    return base64.urlsafe_b64encode(f"v1:before={before_id}".encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> int:
    """Return the row id in a cursor that `write_cursor` made.

    Raises
    ------
    QueryError
        It was made by something else.
    """
    try:
        text = base64.b64decode(
            cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True
        ).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    match = _CURSOR.match(text)
    if match is None:
        raise QueryError(
            "`cursor` is none that this pool gave out",
            hint="Give back `next_cursor` of the page before as it was, or leave it out.",
        )
    return int(match[1])
