"""Parameters that many routes share: names in paths, limits, pages and cursors; and answers.

A cursor is the id of the last row, not its place: no row is skipped or shown twice when others
are added.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Path, Query
from pydantic import BaseModel
from sqlalchemy import Select
from sqlalchemy.orm import Session

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
    int | None, Query(ge=1, lt=10**18, description="`next_cursor` of the page before.")
]


def find_page(
    session: Session, query: Select[T], key: Any, cursor: int | None, limit: int
) -> tuple[Sequence[T], str | None]:
    """Return one page of records, newest first, and the cursor of the next one if there is any.

    `key` is the column of their `id`, which grows with time.
    """
    if cursor is not None:
        query = query.where(key < cursor)
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
    return page, None if last is None else str(last.id)
