"""``poolctl db``: the schema of a pool's database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.errors import UsageError
from cli.options import command, group
from cli.output import Invocation, Reply, TableText
from cli.pool_settings import read_settings

if TYPE_CHECKING:
    from pool_server.settings import PoolSettings

app = group("See and upgrade the schema of a pool's database (for who runs the pool).")

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="The data folder of a pool on SQLite.", show_default=False
    ),
]
UrlOption = Annotated[
    str,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="postgresql://USER:PASSWORD@HOST/DATABASE. POOL_SERVER_DATABASE_URL keeps the "
        "password from the list of processes.",
        show_default=False,
    ),
]


@command(
    app,
    "upgrade",
    examples=["db upgrade", "db upgrade --data /srv/pool", "db upgrade --json"],
)
def upgrade(
    invocation: Invocation, *, data: DataOption = None, database_url: UrlOption = ""
) -> Reply:
    """Bring the database to the schema that this version works with; make it where it is empty.

    On PostgreSQL stop the pool's servers and make a backup first (pg_dump); servers of another
    version refuse to start afterwards. A SQLite file is copied into the folder's backups. The
    upgrade happens as a whole or not at all. An empty database gets its first admin, whose token
    is shown this once.
    """
    from pool_server.app import set_up_database
    from pool_server.server import held_data

    settings = chosen_settings(data, database_url)
    with held_data(settings):
        change, secret = set_up_database(settings)
    facts: dict[str, Any] = {
        "database": settings.database_place,
        "found": change.found,
        "revision": change.now,
        "backup": change.backup,
        "admin_token": secret,
    }
    before = change.found or "empty"
    now = f"{change.now}  (up to date already)"
    rows = [
        ["database", settings.database_place],
        ["schema", now if before == change.now else f"{before} -> {change.now}"],
    ]
    if change.backup is not None:
        rows.append(["backup", str(change.backup)])
    if secret is not None:
        rows.append(["admin token", f"{secret}  (shown this once)"])
        invocation.note("start a server, then log in: poolctl auth login URL")
    return Reply(facts, TableText(["what", "value"], rows), [change.now])


@command(app, "current", examples=["db current", "db current --data /srv/pool --json"])
def current(
    invocation: Invocation,  # noqa: ARG001
    *,
    data: DataOption = None,
    database_url: UrlOption = "",
) -> Reply:
    """Tell which schema the database has, and which one this version works with."""
    from pool_server.schema import find_revision, newest_revision

    settings = chosen_settings(data, database_url)
    found, newest = find_revision(settings), newest_revision()
    facts = {
        "database": settings.database_place,
        "revision": found,
        "newest": newest,
        "is_newest": found == newest,
    }
    advice = "up to date" if found == newest else f"this version works with {newest}"
    rows = [
        ["database", settings.database_place],
        ["schema", f"{found or 'empty'}  ({advice})"],
    ]
    return Reply(facts, TableText(["what", "value"], rows), [found or ""])


def chosen_settings(data: Path | None, database_url: str) -> PoolSettings:
    """Return the settings of the database that options or else the environment name.

    Raises
    ------
    UsageError
        Both options are given, or the address is none.
    """
    if data is not None and database_url:
        raise UsageError("--data names a pool on SQLite, --database-url one on PostgreSQL: choose")
    if data is not None:
        # An address in the environment is that of another pool.
        return read_settings(data_folder=data, database_url="")
    return read_settings(database_url=database_url or None)
