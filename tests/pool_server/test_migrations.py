"""Schemas of several versions: refused by name, upgraded, and served side by side."""

import gzip
import hashlib
import itertools
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from alembic import command
from sqlalchemy import Connection, create_engine, inspect, text

import migrations
from pool_server.database import schema
from pool_server.database.engine import open_engine
from pool_server.errors import StartError
from pool_server.operations.backup import Snapshot, check_snapshot, list_snapshots, make_backup
from pool_server.operations.maintenance import check_pool, open_pool_offline
from pool_server.operations.restore import restore_snapshot
from pool_server.settings import PoolSettings
from tests.pool_server.in_process import POOL_URL, running_application
from tests.pool_server.pool_driver import open_client, upload
from tests.pool_server.postgres_server import PostgresServer

API = "/api/v1"
KEPT = Path(__file__).parent / "pool_of_0003.tar.gz"
STATION = {
    "lab-a": "pool_FiWx4acRirDf6bOfOBfeywEUCCOSDHO2qeLdzc8yp7I",
    "lab-b": "pool__prd-pEnbMHzHcGYNafBBIvHdXbtE7RfzRBb6ka4AOM",
}
"""The tokens of the kept pool, which exists nowhere else."""
REVISIONS = list(reversed(schema.known_revisions()))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> PoolSettings:
    """An empty database of either sort."""
    url = ""
    if request.param == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.make_database()
    return PoolSettings(data_folder=tmp_path / "pool", database_url=url, port=0)


@pytest.fixture
def kept(tmp_path: Path) -> Snapshot:
    """A backup that a program of schema 0003 wrote."""
    with tarfile.open(KEPT) as archive:
        # Python 3.11.0 to 3.11.3 have no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(tmp_path / "kept")
    [snapshot] = list_snapshots(tmp_path / "kept" / "backup")
    return snapshot


def change(settings: PoolSettings, act: Callable[[Connection], object]) -> None:
    engine = open_engine(settings.engine_url).execution_options(pool_writes=True)
    with engine.begin() as connection:
        act(connection)
    engine.dispose()


def upgrade(settings: PoolSettings) -> schema.SchemaChange:
    settings.data_folder.mkdir(exist_ok=True)
    return schema.upgrade_database(settings)


@pytest.fixture
def stages() -> Iterator[list[tuple[str, Connection]]]:
    """A database of each revision."""
    opened = []
    for revision in REVISIONS:
        connection = create_engine("sqlite://").connect()
        with connection.begin():
            command.upgrade(schema.migration_settings(connection), revision)
        opened.append((revision, connection))
    yield opened
    for _, connection in opened:
        connection.close()
        connection.engine.dispose()


def test_each_migration_states_the_digest_of_the_schema_that_it_makes(
    stages: list[tuple[str, Connection]],
) -> None:
    for revision, connection in stages:
        made = schema.digest_columns(schema.list_columns(connection))
        stated = schema.known_revisions()[revision].module.schema_digest
        assert stated == made, f'{revision}: write schema_digest = "{made}"'


def test_migrations_only_add_for_servers_that_go_on_beside_new_ones(
    stages: list[tuple[str, Connection]],
) -> None:
    assert migrations.OLDEST_PROGRAM in REVISIONS
    for (_, before), (revision, after) in itertools.pairwise(stages):
        old, new = schema.list_columns(before), schema.list_columns(after)
        for table in old:
            assert set(old[table]) <= set(new.get(table, ())), f"{revision} changes {table}"
            for column in inspect(after).get_columns(table):
                is_free = column["nullable"] or column["default"] is not None
                is_old = {column["name"], f"{column['name']} or null"} & set(old[table])
                assert is_free or is_old, f"{revision}: old servers leave {column['name']} out"


def test_the_kept_backup_is_restored_upgraded_and_served(
    settings: PoolSettings, kept: Snapshot, tmp_path: Path
) -> None:
    assert (kept.revision, check_snapshot(kept)) == ("0003", [])
    settings.data_folder.mkdir()
    assert restore_snapshot(settings, kept).rows == kept.rows
    assert schema.find_revision(settings) == schema.newest_revision()
    schema.require_served_schema(settings)
    with (
        running_application(settings) as transport,
        open_client(POOL_URL, STATION["lab-b"], transport) as member,
    ):
        models = member.get(f"{API}/models").json()["items"]
        assert sorted(model["address"].partition("@")[0] for model in models) == [
            "pool://lab-a/face", "pool://lab-a/gaze", "pool://lab-b/gaze", "pool://lab-b/merged"
        ]  # fmt: skip
        assert member.get(f"{API}/models/lab-b/merged/versions/1/content").is_success
        assert upload(member, "lab-b/gaze")["version"] == 2
    with open_pool_offline(settings) as pool:
        assert check_pool(pool).is_sound
        again = make_backup(pool, tmp_path / "again").snapshot
    assert again.revision == schema.newest_revision()


def test_a_database_of_0003_is_upgraded_in_place(settings: PoolSettings) -> None:
    settings.data_folder.mkdir()
    if not settings.uses_postgresql:
        settings.database_file.touch()
    change(settings, lambda connection: schema.migrate(connection, "0003"))
    if settings.uses_postgresql:
        with pytest.raises(StartError, match="has schema 0003"):
            schema.require_served_schema(settings)
    made = upgrade(settings)
    assert (made.before, made.now) == ("0003", schema.newest_revision())
    schema.require_served_schema(settings)


def test_tables_of_no_release_are_refused_by_name(settings: PoolSettings, kept: Snapshot) -> None:
    """A pool of a version in development says 0003, too."""
    settings.data_folder.mkdir()
    change(settings, lambda connection: schema.migrate(connection, "0003"))
    for statement in (
        "ALTER TABLE sites RENAME COLUMN contact TO telephone",
        "DROP TABLE pictures",
    ):
        change(settings, lambda connection, act=statement: connection.execute(text(act)))
    with pytest.raises(StartError, match=r"2 of its tables differ.*found no such table"):
        upgrade(settings)
    assert schema.find_revision(settings) == "0003"
    with pytest.raises(StartError, match=r"sites.*expected contact|0003"):
        restore_snapshot(settings, kept)


def test_the_newest_revision_with_other_tables_is_not_served(settings: PoolSettings) -> None:
    upgrade(settings)
    change(settings, lambda connection: connection.execute(text("DROP TABLE pictures")))
    for act in (schema.require_served_schema, upgrade):
        with pytest.raises(StartError, match="pictures") as refused:
            act(settings)
        assert refused.value.code == "schema_other"


def test_a_backup_of_a_development_version_is_refused_by_name(
    settings: PoolSettings, kept: Snapshot
) -> None:
    settings.data_folder.mkdir()
    rows = kept.folder / "tables" / "sites.jsonl.gz"
    changed = next(table for table in kept.tables if table.name == "sites")
    content = gzip.decompress(rows.read_bytes()).replace(b'"contact"', b'"telephone"')
    rows.write_bytes(gzip.compress(content))
    digest = hashlib.sha256(rows.read_bytes()).hexdigest()
    tables = tuple(
        type(table)(table.name, table.rows, digest) if table is changed else table
        for table in kept.tables
    )
    with pytest.raises(StartError, match="found telephone, expected contact") as refused:
        restore_snapshot(settings, Snapshot(kept.folder, kept.name, kept.revision, tables, {}))
    assert refused.value.code == "schema_other"


def upgrade_to_a_later_release(connection: Connection, oldest_program: str) -> None:
    """Add to the schema as the next release may, and keep its digest as `schema.migrate` does."""
    for statement in (
        "CREATE TABLE providers (name VARCHAR(64) NOT NULL PRIMARY KEY)",
        "ALTER TABLE sites ADD COLUMN country VARCHAR(2)",
        "ALTER TABLE uploads ADD COLUMN priority INTEGER NOT NULL DEFAULT 0",
        "CREATE INDEX ix_sites_country ON sites (country)",
        "UPDATE alembic_version SET version_num = '0999'",
    ):
        connection.execute(text(statement))
    digest = schema.digest_columns(schema.list_columns(connection))
    connection.execute(
        text("UPDATE schema_facts SET revision = '0999', digest = :d, oldest_program = :o"),
        {"d": digest, "o": oldest_program},
    )


def use_pool(client: httpx.Client, name: str) -> None:
    assert upload(client, f"lab-a/{name}")["version"] == 1
    assert client.get(f"{API}/models").is_success


def test_a_server_goes_on_while_the_next_release_upgrades_the_database(
    settings: PoolSettings, kept: Snapshot, tmp_path: Path
) -> None:
    """This program is the old one: it serves before, during, and after a new start."""
    settings.data_folder.mkdir()
    restore_snapshot(settings, kept)
    with (
        running_application(settings) as transport,
        open_client(POOL_URL, STATION["lab-a"], transport) as member,
    ):
        use_pool(member, "before")
        newest = schema.newest_revision()
        change(settings, lambda connection: upgrade_to_a_later_release(connection, newest))
        use_pool(member, "after")
    schema.require_served_schema(settings)
    change_made = upgrade(settings)
    assert (change_made.before, change_made.now) == ("0999", "0999")
    with (
        running_application(settings) as transport,
        open_client(POOL_URL, STATION["lab-a"], transport) as member,
    ):
        use_pool(member, "restarted")
    with open_pool_offline(settings) as pool:
        names = {table.name for table in make_backup(pool, tmp_path / "later").snapshot.tables}
    assert "providers" in names, "a backup by the old program holds what the new one added"


def test_a_schema_from_before_all_that_this_program_upgrades_is_refused(
    settings: PoolSettings,
) -> None:
    upgrade(settings)
    statement = text("UPDATE alembic_version SET version_num = '0001'")
    change(settings, lambda connection: connection.execute(statement))
    for act in (schema.require_served_schema, upgrade):
        with pytest.raises(StartError, match="has schema 0001, older than 0003") as refused:
            act(settings)
        assert "releases in between" in refused.value.hint


def test_a_schema_that_lost_what_this_program_needs_is_refused(settings: PoolSettings) -> None:
    upgrade(settings)
    change(settings, lambda connection: upgrade_to_a_later_release(connection, "0999"))
    for act in (schema.require_served_schema, upgrade):
        with pytest.raises(StartError, match="has schema 0999") as refused:
            act(settings)
        assert refused.value.code == "schema_newer"
