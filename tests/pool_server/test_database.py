"""Schema and transactions of a real SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from pool_server.app import create_first_admin
from pool_server.database import (
    Database,
    current_revision,
    migration_settings,
    newest_revision,
    open_engine,
    upgrade_database,
)
from pool_server.errors import DatabaseUnusableError, SchemaNewerError
from pool_server.records import AuditRecord, Record, SiteRecord, TokenRecord
from pool_server.settings import PoolSettings


@pytest.fixture
def settings(tmp_path: Path) -> PoolSettings:
    return PoolSettings(data_folder=tmp_path, port=0)


def table_names(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return {name for (name,) in rows}


def test_an_empty_folder_gets_the_newest_schema_without_a_backup(settings: PoolSettings) -> None:
    assert upgrade_database(settings) is None
    assert table_names(settings.database_file) >= set(Record.metadata.tables)
    assert not settings.backup_folder.exists()


def test_migrations_and_records_agree(settings: PoolSettings) -> None:
    upgrade_database(settings)
    engine = open_engine(settings.database_url)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True}
        )
        assert compare_metadata(context, Record.metadata) == []
    engine.dispose()


def test_migrations_go_down_and_up_again(settings: PoolSettings) -> None:
    upgrade_database(settings)
    engine = open_engine(settings.database_url).execution_options(pool_writes=True)
    with engine.begin() as connection:
        command.downgrade(migration_settings(connection), "base")
    assert table_names(settings.database_file) == {"alembic_version"}
    with engine.begin() as connection:
        command.upgrade(migration_settings(connection), "head")
    with engine.connect() as connection:
        assert current_revision(connection) == newest_revision()
    engine.dispose()


def test_an_old_database_is_copied_before_it_is_upgraded(settings: PoolSettings) -> None:
    with closing(sqlite3.connect(settings.database_file)) as connection:
        connection.execute("CREATE TABLE left_over (word TEXT)")
        connection.execute("INSERT INTO left_over VALUES ('kept')")
        connection.commit()
    backup = upgrade_database(settings)
    assert backup is not None
    with closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("SELECT word FROM left_over").fetchall() == [("kept",)]
    assert "sites" not in table_names(Path(backup))
    assert Path(backup).stat().st_mode & 0o077 == 0


def test_the_newest_schema_is_left_alone(settings: PoolSettings) -> None:
    upgrade_database(settings)
    before = settings.database_file.stat().st_mtime_ns
    assert upgrade_database(settings) is None
    assert settings.database_file.stat().st_mtime_ns == before


def test_a_newer_schema_is_refused_and_not_touched(settings: PoolSettings) -> None:
    upgrade_database(settings)
    with closing(sqlite3.connect(settings.database_file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(SchemaNewerError, match="9999"):
        upgrade_database(settings)
    assert not settings.backup_folder.exists()


def test_a_file_that_is_no_database_is_refused_by_name(settings: PoolSettings) -> None:
    settings.database_file.write_bytes(b"not a database, but longer than its header " * 40)
    with pytest.raises(DatabaseUnusableError, match=r"pool\.sqlite3"):
        upgrade_database(settings)


def test_connections_have_the_settings_that_the_server_counts_on(settings: PoolSettings) -> None:
    upgrade_database(settings)
    database = Database.open(settings)
    with database.read() as session:
        assert session.scalar(text("PRAGMA journal_mode")) == "wal"
        assert session.scalar(text("PRAGMA foreign_keys")) == 1
        assert (session.scalar(text("PRAGMA busy_timeout")) or 0) > 0
    with pytest.raises(IntegrityError), database.write() as session:
        session.add(TokenRecord(id="x", site_id=12345, name="t", role="viewer", secret_hash="h"))
    database.close()


def test_a_writing_transaction_happens_as_a_whole_or_not_at_all(settings: PoolSettings) -> None:
    upgrade_database(settings)
    database = Database.open(settings)

    def act() -> None:
        with database.write() as session:
            session.add(SiteRecord(name="site-a"))
            session.flush()
            session.execute(text("INSERT INTO sites (id) VALUES (7)"))

    with pytest.raises(IntegrityError):
        act()
    with database.read() as session:
        assert session.query(SiteRecord).count() == 0
    database.close()


@pytest.mark.parametrize("act", ["UPDATE audit SET action = 'x'", "DELETE FROM audit"])
def test_the_database_itself_keeps_the_audit(settings: PoolSettings, act: str) -> None:
    create_first_admin(settings)
    database = Database.open(settings)
    with pytest.raises(IntegrityError, match="appended"), database.write() as session:
        session.execute(text(act))
    with database.read() as session:
        assert [entry.action for entry in session.query(AuditRecord)] == ["pool.create"]
    database.close()


def test_the_first_admin_is_made_once(settings: PoolSettings) -> None:
    secret = create_first_admin(settings)
    assert secret is not None
    assert secret.startswith("pool_")
    assert len(secret) == len("pool_") + 43
    assert create_first_admin(settings) is None
    assert secret.encode() not in settings.database_file.read_bytes()
