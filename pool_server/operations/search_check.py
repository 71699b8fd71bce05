"""Whether what versions are found by is what the records say; where not, it is written anew.

Triggers of the database keep the entries (`pool_server.database.records.search`), whatever program
writes.
They are found to differ only where somebody switched the triggers off, or a file was damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from pool_server.database.engine import Database

_COLUMNS = ("sort_name", "facets", "terms", "words")
_AT_A_TIME = 500


def find_wrong_entries(connection: Connection) -> list[int]:
    """Return the versions whose entries are missing, differ from the records, or are left over.

    Reads all records that versions are found by; part of the caller's transaction.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))
    shown = ", ".join(f"s.{name} AS {name}, e.{name} AS kept_{name}" for name in _COLUMNS)
    unlike = " OR ".join(f"e.{name} <> s.{name}" for name in _COLUMNS)
    rows = connection.execute(
        text(
            f"SELECT s.version_id AS version_id, e.version_id AS kept, {shown} "
            "FROM search_sources s LEFT JOIN search_entries e ON e.version_id = s.version_id "
            f"WHERE e.version_id IS NULL OR {unlike}"
        )
    )
    wrong = [row["version_id"] for row in rows.mappings() if _differs(row)]
    left_over = text(
        "SELECT version_id FROM search_entries "
        "WHERE version_id NOT IN (SELECT id FROM model_versions)"
    )
    return sorted([*wrong, *connection.scalars(left_over)])


def _differs(row: Any) -> bool:
    if row["kept"] is None or row["sort_name"] != row["kept_sort_name"]:
        return True
    # Labels come in any order.
    return any(
        sorted(_pieces(row[name])) != sorted(_pieces(row[f"kept_{name}"])) for name in _COLUMNS[1:]
    )


def _pieces(value: str | list[int]) -> Sequence[str | int]:
    return value.replace("\n", " \n ").split(" ") if isinstance(value, str) else value


def write_entries(database: Database, versions: Sequence[int]) -> None:
    """Write the entries of some versions anew; the pool may go on serving."""
    for start in range(0, len(versions), _AT_A_TIME):
        with database.write() as session:
            _write_some(session, versions[start : start + _AT_A_TIME])


def _write_some(session: Session, versions: Sequence[int]) -> None:
    left_over = text(
        "DELETE FROM search_entries WHERE version_id NOT IN (SELECT id FROM model_versions)"
    )
    session.execute(left_over)
    if session.get_bind().dialect.name == "postgresql":
        # As the triggers do it: whoever changes one of these models waits.
        refresh = text("SELECT refresh_search_entries(CAST(:versions AS bigint[]), '{}')")
        session.execute(refresh, {"versions": list(versions)})
        return
    for version in versions:
        session.execute(
            text(
                "INSERT OR REPLACE INTO search_entries "
                "(version_id, sort_name, facets, terms, words) "
                "SELECT version_id, sort_name, facets, terms, words FROM search_sources "
                "WHERE version_id = :version"
            ),
            {"version": version},
        )
    for index in ("search_terms", "search_words"):
        # They may have missed a change of an entry as well.
        session.execute(text(f"INSERT INTO {index} ({index}) VALUES ('rebuild')"))
