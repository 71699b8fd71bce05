"""Schema and transactions of real databases: a SQLite file, and PostgreSQL."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import JSON, Column, Connection, delete, func, inspect, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from pool_server.app import create_first_admin, set_up_database
from pool_server.database.engine import Database, open_engine, write_with_retry
from pool_server.database.records import AuditRecord, Record, SiteRecord, TokenRecord
from pool_server.database.schema import (
    SchemaChange,
    find_revision,
    newest_revision,
    require_served_schema,
    upgrade_database,
)
from pool_server.errors import (
    DatabaseUnavailableError,
    DatabaseUnusableError,
    StartError,
    WriteConflictError,
)
from pool_server.settings import PoolSettings
from pool_server.storage import open_storage
from tests.pool_server.model_files import sha256
from tests.pool_server.pool_driver import at_once
from tests.pool_server.postgres_server import PostgresServer, postgres_server

BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


@pytest.fixture
def sqlite_settings(tmp_path: Path) -> PoolSettings:
    return PoolSettings(data_folder=tmp_path, port=0)


@pytest.fixture
def postgres_settings(postgres: PostgresServer, tmp_path: Path) -> PoolSettings:
    return PoolSettings(data_folder=tmp_path, database_url=postgres.make_database(), port=0)


@pytest.fixture(params=BOTH)
def settings(request: pytest.FixtureRequest) -> PoolSettings:
    """An empty database of either sort."""
    sort = "sqlite" if request.param == "sqlite" else "postgres"
    return request.getfixturevalue(f"{sort}_settings")


@pytest.fixture
def database(request: pytest.FixtureRequest, settings: PoolSettings) -> Iterator[Database]:
    """A database of the newest schema, of either sort."""
    if settings.uses_postgresql:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        settings = PoolSettings(database_url=postgres.make_pool_database())
    else:
        upgrade_database(settings)
    opened = Database.open(settings)
    yield opened
    opened.close()


@contextmanager
def connected(settings: PoolSettings) -> Iterator[Connection]:
    engine = open_engine(settings.engine_url).execution_options(pool_writes=True)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def table_names(settings: PoolSettings) -> set[str]:
    with connected(settings) as connection:
        return set(inspect(connection).get_table_names())


def test_an_empty_database_gets_the_newest_schema(settings: PoolSettings) -> None:
    assert find_revision(settings) is None
    assert upgrade_database(settings) == SchemaChange(None, newest_revision())
    assert table_names(settings) == {*Record.metadata.tables, "alembic_version", *UNUSED}
    assert find_revision(settings) == newest_revision()
    assert not settings.backup_folder.exists()


UNUSED = {"aliases"}
"""Tables that the next migration may drop."""


def is_used(_table: object, name: str | None, kind: str, *_: object) -> bool:
    return kind != "table" or name not in UNUSED


def defaults_differ(
    _context: object, _found: object, column: Column[object], *rest: str | None
) -> bool | None:
    """Compare defaults of JSON as text, for PostgreSQL has no equality for them."""
    in_database, _, in_record = rest
    if not isinstance(column.type, JSON):
        return None
    return (in_database or "").removesuffix("::json") != (in_record or "")


def test_migrations_and_records_agree(settings: PoolSettings) -> None:
    upgrade_database(settings)
    with connected(settings) as connection:
        options = {
            "compare_type": True,
            "compare_server_default": defaults_differ,
            "include_object": is_used,
        }
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Record.metadata) == []


def test_an_old_database_is_copied_before_it_is_upgraded(sqlite_settings: PoolSettings) -> None:
    with closing(sqlite3.connect(sqlite_settings.database_file)) as connection:
        connection.execute("CREATE TABLE left_over (word TEXT)")
        connection.execute("INSERT INTO left_over VALUES ('kept')")
        connection.commit()
    backup = upgrade_database(sqlite_settings).backup
    assert backup is not None
    with closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("SELECT word FROM left_over").fetchall() == [("kept",)]
        tables = connection.execute("SELECT name FROM sqlite_master").fetchall()
    assert ("sites",) not in tables
    assert Path(backup).stat().st_mode & 0o077 == 0


def test_the_newest_schema_is_left_alone(sqlite_settings: PoolSettings) -> None:
    upgrade_database(sqlite_settings)
    before = sqlite_settings.database_file.stat().st_mtime_ns
    assert upgrade_database(sqlite_settings).backup is None
    assert sqlite_settings.database_file.stat().st_mtime_ns == before


def test_an_unknown_schema_is_refused_and_not_touched(settings: PoolSettings) -> None:
    upgrade_database(settings)
    with connected(settings) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for act in (upgrade_database, require_served_schema):
        with pytest.raises(StartError, match="9999") as refused:
            act(settings)
        assert "poolctl" in refused.value.hint
    assert find_revision(settings) == "9999"
    assert not settings.backup_folder.exists()


def test_an_empty_database_is_refused_with_the_command(settings: PoolSettings) -> None:
    with pytest.raises(StartError, match="is empty") as refused:
        require_served_schema(settings)
    command = "poolctl db upgrade" if settings.uses_postgresql else "poolctl serve"
    assert command in refused.value.hint
    upgrade_database(settings)
    require_served_schema(settings)


def test_a_file_that_is_no_database_is_refused_by_name(sqlite_settings: PoolSettings) -> None:
    sqlite_settings.database_file.write_bytes(b"not a database, but longer than its header " * 40)
    with pytest.raises(DatabaseUnusableError, match=r"pool\.sqlite3"):
        upgrade_database(sqlite_settings)


def test_a_database_that_is_not_there_is_named_without_the_password(
    postgres: PostgresServer,
) -> None:
    absent = PoolSettings(database_url=postgres.url("no_such_pool"))
    wrong = PoolSettings(database_url=postgres.url("postgres").replace(postgres.password, "guess"))
    for settings, reason in ((absent, "does not exist"), (wrong, "authentication failed")):
        with pytest.raises(DatabaseUnusableError, match=reason) as refused:
            upgrade_database(settings)
        assert "postgresql://pool@" in str(refused.value)
        for secret in (postgres.password, "guess"):
            assert secret not in f"{refused.value} {refused.value.hint} {settings!r} {settings}"


def test_upgrades_at_once_are_one_upgrade(postgres_settings: PoolSettings) -> None:
    results = at_once(*[lambda: set_up_database(postgres_settings)] * 4)
    assert sorted(str(change.before) for change, _ in results) == [newest_revision()] * 3 + ["None"]
    assert sum(secret is not None for _, secret in results) == 1


def test_sqlite_has_the_settings_that_the_server_counts_on(sqlite_settings: PoolSettings) -> None:
    upgrade_database(sqlite_settings)
    database = Database.open(sqlite_settings)
    with database.read() as session:
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"
        assert session.scalar(text("PRAGMA foreign_keys")) == 1
        assert (session.scalar(text("PRAGMA busy_timeout")) or 0) > 0
    database.close()


def test_postgresql_has_the_settings_that_the_server_counts_on(
    postgres_settings: PoolSettings,
) -> None:
    database = Database.open(postgres_settings)
    with database.read() as session:
        assert session.scalar(text("SHOW transaction_isolation")) == "repeatable read"
        with pytest.raises(DBAPIError, match="read-only"):
            session.execute(text("CREATE TABLE something (word TEXT)"))
    with database.write() as session:
        assert session.scalar(text("SHOW transaction_isolation")) == "read committed"
        for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            assert session.scalar(text(f"SHOW {limit}")) != "0"
    database.close()


def test_a_record_of_nothing_is_refused(database: Database) -> None:
    with pytest.raises(WriteConflictError), database.write() as session:
        session.add(TokenRecord(id="x", site_id=12345, name="t", role="viewer", secret_hash="h"))


def test_a_row_removed_by_another_transaction_is_a_lost_race(database: Database) -> None:
    with database.write() as session:
        session.add(SiteRecord(name="going"))
    with pytest.raises(WriteConflictError):
        write_what_is_gone(database)


def write_what_is_gone(database: Database) -> None:
    with database.write() as session:
        site = session.scalars(select(SiteRecord)).one()
        session.connection().execute(delete(SiteRecord))
        site.display_name = "gone"


def test_a_writing_transaction_happens_as_a_whole_or_not_at_all(database: Database) -> None:
    def act() -> None:
        with database.write() as session:
            session.add(SiteRecord(name="site-a"))
            session.flush()
            session.execute(text("INSERT INTO sites (id) VALUES (7)"))

    with pytest.raises(IntegrityError):
        act()
    with database.read() as session:
        assert session.scalar(select(func.count()).select_from(SiteRecord)) == 0


def test_the_loser_of_a_race_tries_again_and_sees_the_winner(database: Database) -> None:
    attempts: list[int] = []
    together, first_two = threading.Barrier(2), iter(range(2))

    def add_next(session: Session) -> int:
        number = (session.scalar(select(func.max(SiteRecord.id))) or 0) + 1
        attempts.append(number)
        if database.is_shared and number == 1 and next(first_two, None) is not None:
            together.wait()
        session.add(SiteRecord(id=number, name=f"site-{number}"))
        session.flush()
        return number

    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(write_with_retry, database, add_next) for _ in range(12)]
        numbers = [future.result() for future in futures]
    assert sorted(numbers) == list(range(1, 13))
    assert (len(attempts) > 12) is database.is_shared


def test_one_process_at_a_time_does_exclusive_work(database: Database) -> None:
    with database.alone("sweep") as first, database.alone("other") as other:
        assert (first, other) == (True, True)
        with database.alone("sweep") as second:
            assert second is not database.is_shared
    with database.alone("sweep") as again:
        assert again


@pytest.mark.parametrize("act", ["UPDATE audit SET action = 'x'", "DELETE FROM audit"])
def test_the_database_itself_keeps_the_audit(settings: PoolSettings, act: str) -> None:
    create_first_admin(settings)
    database = Database.open(settings)
    with pytest.raises(IntegrityError, match="appended"), database.write() as session:
        session.execute(text(act))
    with database.read() as session:
        assert [entry.action for entry in session.scalars(select(AuditRecord))] == ["pool.create"]
    database.close()


def test_the_first_admin_is_made_once(settings: PoolSettings, tmp_path: Path) -> None:
    (tmp_path / "left").write_bytes(b"of an interrupted restore")
    storage, digest = open_storage(settings), sha256(b"of an interrupted restore")
    storage.store(tmp_path / "left", digest)
    with pytest.raises(StartError, match=f"has no pool, but the storage has files .*{digest}"):
        create_first_admin(settings)
    storage.remove_content(digest)
    secret = create_first_admin(settings)
    assert secret is not None
    assert secret.startswith("pool_")
    assert len(secret) == len("pool_") + 43
    assert create_first_admin(settings) is None
    with connected(settings) as connection:
        kept = connection.scalars(text("SELECT secret_hash FROM tokens")).all()
    assert len(kept) == 1
    assert secret not in kept[0]


def write_while_it_dies(database: Database, server: PostgresServer) -> None:
    with database.write() as session:
        session.add(SiteRecord(name="lost"))
        session.flush()
        server.kill()


@pytest.mark.postgres
def test_a_copy_that_only_answers_questions_takes_no_writes(postgres: PostgresServer) -> None:
    address = postgres.make_pool_database()
    option = "options=-c%20default_transaction_read_only%3Don"
    joint = "&" if "?" in address else "?"
    database = Database.open(PoolSettings(database_url=f"{address}{joint}{option}"))
    with pytest.raises(DatabaseUnavailableError, match="read-only"):
        database.require_write()
    database.close()


@pytest.mark.postgres
def test_a_database_that_goes_and_comes_back() -> None:
    with postgres_server() as server:
        database = Database.open(PoolSettings(database_url=server.make_pool_database()))
        database.require_write()
        with pytest.raises(DatabaseUnavailableError):
            write_while_it_dies(database, server)
        with pytest.raises(DatabaseUnavailableError):
            database.require_write()
        with pytest.raises(DatabaseUnavailableError), database.read() as session:
            session.scalar(select(SiteRecord.name))
        server.start()
        database.require_write()
        with database.write() as session:
            assert session.scalars(select(SiteRecord.name)).all() == []
        database.close()


@pytest.mark.parametrize(
    "address", ["mysql://u:geheim@h/db", "postgresql://u:geheim@h", "u:geheim", "http://[geheim"]
)
def test_a_wrong_address_is_refused_without_repeating_it(address: str) -> None:
    with pytest.raises(ValueError, match="expected postgresql://") as refused:
        PoolSettings(database_url=address)
    assert "geheim" not in str(refused.value)
