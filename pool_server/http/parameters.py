"""Parameters that many routes share: names in paths, limits, pages and cursors; and answers.

A cursor holds the key of the last row, not its place: no row is skipped or shown twice when
others are added.
"""

import base64
import binascii
import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Path, Query
from pydantic import BaseModel
from sqlalchemy import Select
from sqlalchemy.orm import Session

from pool_server.errors import QueryError
from pool_server.wire.names import Name

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)
MOST_ITEMS = 200

SiteName = Annotated[Name, Path(description="Name of the site.")]
ModelName = Annotated[Name, Path(description="Name of the model.")]
Reference = Annotated[
    str,
    Path(
        description="Which version: its number, `latest` (the newest available), or `sha256:` "
        "and its digest.",
        max_length=80,
    ),
]
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS, description="Most items of the page.")]
Cursor = Annotated[
    str | None, Query(description="`next_cursor` of the page before.", max_length=200)
]

_CURSOR = re.compile(r"^v1:before=([1-9][0-9]{0,17})$")


def write_cursor(before_id: int) -> str:
    """Return an opaque cursor for the rows after the one with this id."""
    return encode_cursor(f"v1:before={before_id}")


def read_cursor(cursor: str) -> int:
    """Return the row id in a cursor that `write_cursor` made."""
    match = _CURSOR.fullmatch(decode_cursor(cursor))
    if match is None:
        raise QueryError(
            "Invalid cursor: not issued by this pool",
            hint="Send `next_cursor` of the previous page unchanged, or leave it out.",
        )
    return int(match[1])


async def read_before_id(cursor: Cursor = None) -> int | None:
    return None if cursor is None else read_cursor(cursor)


BeforeId = Annotated[int | None, Depends(read_before_id)]
"""The cursor of a request, as the id of the last row of the page before."""


def find_page(
    session: Session, query: Select[T], key: Any, before_id: int | None, limit: int
) -> tuple[Sequence[T], str | None]:
    """Return one page of records, newest first, and the cursor of the next one if there is any.

    `key` is the column of their `id`, which grows with time; the last of the page before was
    `before_id`.
    """
    if before_id is not None:
        query = query.where(key < before_id)
    return cut_page(session.scalars(query.order_by(key.desc()).limit(limit + 1)).all(), limit)


def describe(kind: type[ModelT], record: object, **fields: object) -> ModelT:
    """Return an answer: of these fields, and of all others as the record calls them."""
    same = kind.model_fields.keys() - fields.keys()
    return kind.model_validate({name: getattr(record, name) for name in same} | fields)


def cut_page(rows: Sequence[T], limit: int) -> tuple[Sequence[T], str | None]:
    """Return one page of rows with an `id`, and the cursor of the next one if there is any.

    `rows` has one more than `limit` if there are more.
    """
    page = rows[:limit]
    last: Any = page[-1] if len(rows) > len(page) else None
    return page, None if last is None else write_cursor(last.id)


def encode_cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """Return the text in a cursor; empty where there is none."""
    padded = cursor + "=" * (-len(cursor) % 4)
    try:
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""
