"""Alembic environment and versions.

A released migration is never edited. Each only adds: tables, indexes, and columns that may be null
or have a default in the database, so that servers of the release before go on next to the new ones.
A table or column that a release no longer uses may go with the next one, which raises
`OLDEST_PROGRAM`: the table `aliases` may.
"""

from pathlib import Path

OLDEST_PROGRAM = "0004"
"""The revision of the oldest program that can serve a database of the newest one."""


def newest_revision() -> str:
    """Return the newest revision, by the files' names: without loading Alembic."""
    return max(path.name for path in Path(__file__).parent.glob("versions/v*.py"))[1:5]
