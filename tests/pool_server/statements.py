"""Statements that a database is asked, for tests that count them."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine, event


@contextmanager
def recorded_statements(engine: Engine | type[Engine]) -> Iterator[list[str]]:
    """Give the statements of an engine, or of all, from the beginning of the block on."""
    statements: list[str] = []

    def keep(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        statements.append(statement)

    event.listen(engine, "before_cursor_execute", keep)
    yield statements
    event.remove(engine, "before_cursor_execute", keep)
