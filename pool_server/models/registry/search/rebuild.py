"""Rebuilding all search entries after tables were filled as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, inspect, text

# Tables whose changes the triggers of the baseline migration follow.
FOLLOWED = ("labels", "merge_keys", "grants", "models", "sites", "model_versions")


def rebuild_search(connection: Connection) -> None:
    """Rewrite the entries of all versions; part of the caller's transaction."""
    if connection.dialect.name == "postgresql":
        _without_limits(connection)
        # Just filled, the tables look empty to the planner.
        for table in FOLLOWED:
            connection.execute(text(f"ANALYZE {table}"))
    connection.execute(text("DELETE FROM search_entries"))
    connection.execute(
        text(
            "INSERT INTO search_entries (version_id, sort_name, facets, terms, words) "
            "SELECT version_id, sort_name, facets, terms, words FROM search_sources"
        )
    )


@contextmanager
def loading_in_bulk(connection: Connection) -> Iterator[None]:
    """Fill tables in the block without following each row; the entries are written at its end.

    Part of the caller's transaction: where the block raises, that must be rolled back. A schema
    from before there were entries is filled like any other.
    """
    if not inspect(connection).has_table("search_entries"):
        yield
        return
    if connection.dialect.name == "sqlite":
        triggers = connection.execute(
            text(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' "
                "AND name LIKE 'search\\_%' ESCAPE '\\' AND tbl_name <> 'search_entries'"
            )
        ).all()
        for name, _ in triggers:
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        yield
        for _, statement in triggers:
            connection.exec_driver_sql(statement)
    else:
        _without_limits(connection)
        for table in FOLLOWED:
            connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
        yield
        for table in FOLLOWED:
            connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER USER"))
    rebuild_search(connection)


def _without_limits(connection: Connection) -> None:
    for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(text(f"SET LOCAL {limit} = 0"))
