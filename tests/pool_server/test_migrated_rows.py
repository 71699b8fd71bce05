"""Rows of an older schema: they are there after an upgrade, are found, and survive the way back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command

from pool_server.database.engine import open_engine
from pool_server.database.records import Record
from pool_server.database.records.search import is_index_of_search
from pool_server.database.schema import migration_settings, upgrade_database
from pool_server.http.identity import hash_secret
from pool_server.operations.checking import check_pool
from pool_server.operations.inventory import opened_pool
from pool_server.server import running_pool
from pool_server.settings import PoolSettings
from tests.pool_server.pool_driver import open_client
from tests.pool_server.postgres_server import PostgresServer

SECRET = "pool_" + "m" * 43
DIGEST = "ab" * 32
MOMENT = datetime(2025, 5, 17, 12, 30, 15, tzinfo=UTC)
# Where a made-up word will not do: what the upgraded pool is asked about.
CHOSEN: dict[tuple[str, str], Any] = {
    ("sites", "name"): "lab",
    ("sites", "suspended_at"): None,
    ("users", "role"): "admin",
    ("users", "pool_wide"): True,
    ("users", "disabled_at"): None,
    ("tokens", "secret_hash"): hash_secret(SECRET),
    ("tokens", "role"): "admin",
    ("tokens", "pool_wide"): True,
    ("tokens", "scopes"): sa.null(),
    ("tokens", "expires_at"): None,
    ("tokens", "revoked_at"): None,
    ("models", "name"): "gaze",
    ("models", "kind"): "network",
    ("models", "visibility"): "consortium",
    ("models", "rights"): ["download"],
    ("models", "deleted_at"): None,
    ("model_versions", "kind"): "network",
    ("model_versions", "format"): "safetensors",
    ("model_versions", "description"): "Gaze of infants, größer als ÄÖ",
    ("model_versions", "state"): "available",
    ("labels", "key"): "age_months",
    ("labels", "value"): "7.50",
    ("labels", "number"): 7.5,
    ("uploads", "purpose"): "version",
    ("uploads", "state"): "complete",
    ("rounds", "state"): "finished",
    ("rounds", "predecessor_id"): None,
    ("withdrawals", "reason"): "quality",
    ("withdrawals", "effect"): "warn",
    ("site_keys", "id"): DIGEST,
    ("site_keys", "revoked_at"): None,
    ("site_keys", "revocation"): "",
    ("webhooks", "disabled_at"): MOMENT,
    ("merge_jobs", "state"): "finished",
}
FOUND_BY = [
    {"label": "age_months=7.50"},
    {"label": "age_months>=7"},
    {"text": "infants"},
    {"text": "größer"},
    {"site": "lab", "kind": "network"},
]

Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> PoolSettings:
    """An empty database of either sort."""
    if request.param == "sqlite":
        return PoolSettings(data_folder=tmp_path, port=0)
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return PoolSettings(data_folder=tmp_path, database_url=postgres.make_database(), port=0)


@contextmanager
def connected(settings: PoolSettings) -> Iterator[sa.Connection]:
    engine = open_engine(settings.engine_url).execution_options(pool_writes=True)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def tables_in(connection: sa.Connection) -> list[sa.Table]:
    """Return the tables that are there, each behind those that it refers to."""
    derived = {name for name, table in Record.metadata.tables.items() if table.info}
    found = sa.MetaData()
    found.reflect(
        connection,
        only=lambda name, _: (
            not is_index_of_search(name) and name not in {"alembic_version", *derived}
        ),
    )
    return found.sorted_tables


def fill(connection: sa.Connection) -> Rows:
    """Put a row into every table there is; gives them all."""
    for table in tables_in(connection):
        row = {
            column.name: value_for(connection, column)
            for column in table.columns
            if not counts_by_itself(column)
        }
        connection.execute(table.insert().values(row))
    return rows_of(connection)


def counts_by_itself(column: sa.Column[Any]) -> bool:
    return (
        column.primary_key
        and isinstance(column.type, sa.Integer)
        and not column.foreign_keys
        and len(column.table.primary_key) == 1
    )


def value_for(connection: sa.Connection, column: sa.Column[Any]) -> Any:
    if (column.table.name, column.name) in CHOSEN:
        return CHOSEN[column.table.name, column.name]
    for key in column.foreign_keys:
        return connection.scalar(sa.select(key.column))
    if isinstance(column.type, sa.String):
        return made_up_word(column)[: column.type.length]
    made_up = {
        sa.DateTime: MOMENT,
        sa.JSON: {"made": [column.name, 1.5, None]},
        sa.Boolean: False,
    }
    return next((value for kind, value in made_up.items() if isinstance(column.type, kind)), 3)


def made_up_word(column: sa.Column[Any]) -> str:
    if column.name.endswith("digest"):
        return DIGEST
    if column.name.endswith("_by"):
        return "lab/laptop"
    return f"{column.table.name}-{column.name}".replace("_", "-")


def rows_of(connection: sa.Connection, shown: Mapping[str, list[str]] | None = None) -> Rows:
    """Return all rows, or the columns of each table that are wanted."""
    rows: Rows = {}
    for table in tables_in(connection):
        columns = list(table.columns.keys()) if shown is None else shown.get(table.name, [])
        if columns:
            query = sa.select(*(table.columns[name] for name in columns)).order_by(*columns[:1])
            rows[table.name] = [dict(row) for row in connection.execute(query).mappings()]
    return rows


@pytest.mark.parametrize("revision", ["0001", "0003", "0008", "0009", "0010"])
def test_rows_survive_the_way_up_and_down(settings: PoolSettings, revision: str) -> None:
    with connected(settings) as connection:
        command.upgrade(migration_settings(connection), revision)
        before = fill(connection)
    assert all(len(rows) == 1 for rows in before.values())
    columns = {table: list(rows[0]) for table, rows in before.items()}
    upgrade_database(settings)
    with connected(settings) as connection:
        assert without_upgrades(rows_of(connection, columns)) == before
        command.downgrade(migration_settings(connection), revision)
        assert without_upgrades(rows_of(connection)) == before
    upgrade_database(settings)
    require_found(settings)


def test_what_was_in_quarantine_stays_in_the_same_hands(settings: PoolSettings) -> None:
    """Versions of 0010: in whose hands they are, and whether others may have had them."""
    # Number, state, who changed it, digest, acts in the audit; then held, and was available.
    versions = {
        1: ("available", "", "1", [], (False, True)),
        2: ("draft", "", "2", ["version.add"], (False, False)),
        3: ("quarantined", "lab/laptop", "3", ["version.publish"], (False, True)),
        4: ("quarantined", "laboratory/x", "4", ["version.publish"], (True, True)),
        5: ("quarantined", "admin/first", "5", ["version.add"], (True, False)),
        6: ("quarantined", "lab/laptop", "5", ["version.release"], (True, True)),
        7: ("withdrawn", "lab/laptop", "7", [], (False, True)),
        8: ("withdrawn", "lab/laptop", "8", ["version.add"], (False, False)),
        9: ("withdrawn", "lab/laptop", "9", ["version.add", "version.publish"], (False, True)),
    }
    with connected(settings) as connection:
        command.upgrade(migration_settings(connection), "0010")
        fill(connection)
        tables = {table.name: table for table in tables_in(connection)}
        table, audit = tables["model_versions"], tables["audit"]
        withdrawals = tables["withdrawals"]
        row = dict(connection.execute(sa.select(table)).mappings().one())
        act = dict(connection.execute(sa.select(audit)).mappings().first() or {})
        for number, (state, changed_by, letter, acts, _) in versions.items():
            changes = {"state": state, "state_changed_by": changed_by, "digest": letter * 64}
            numbers = {"id": 100 + number, "number": 100 + number, "model_id": row["model_id"]}
            if number == 6:
                # A model has each file but once.
                numbers["model_id"] = connection.execute(
                    tables["models"].insert().values({**model_of(connection), "name": "copy"})
                ).inserted_primary_key[0]
            connection.execute(table.insert().values({**row, **changes, **numbers}))
            name = "copy" if number == 6 else "gaze"
            subject = f"lab/{name}@{100 + number}"
            if state == "withdrawn":
                withdrawal = dict(
                    connection.execute(sa.select(withdrawals)).mappings().first() or {}
                )
                changes = {"id": 100 + number, "version_id": 100 + number, "effect": "warn"}
                connection.execute(withdrawals.insert().values({**withdrawal, **changes}))
            for each in acts:
                entry = {**act, "action": each, "subject": subject, "outcome": "done"}
                del entry["id"]
                connection.execute(audit.insert().values(entry))
    upgrade_database(settings)
    with connected(settings) as connection:
        found = connection.execute(
            sa.text("SELECT number, held_by_pool, was_available FROM model_versions WHERE id > 100")
        )
        told = {number - 100: (bool(held), bool(shown)) for number, held, shown in found}
        assert told == {number: expected for number, (*_, expected) in versions.items()}
        assert states_of(connection, "107", "108", "109") == ["withdrawn", "retracted", "withdrawn"]
        found = connection.scalars(
            sa.text("SELECT effect FROM withdrawals WHERE version_id > 100 ORDER BY version_id")
        )
        assert list(found) == ["warn", "refuse", "warn"]
        command.downgrade(migration_settings(connection), "0010")
        assert states_of(connection, "108") == ["withdrawn"]


def states_of(connection: sa.Connection, *version_ids: str) -> list[str]:
    query = f"SELECT state FROM model_versions WHERE id IN ({','.join(version_ids)}) ORDER BY id"
    return list(connection.scalars(sa.text(query)))


def model_of(connection: sa.Connection) -> dict[str, Any]:
    """Return the row of the model that `fill` made, but for its number."""
    models = next(table for table in tables_in(connection) if table.name == "models")
    row = dict(connection.execute(sa.select(models)).mappings().one())
    del row["id"]
    return row


def without_upgrades(rows: Rows) -> Rows:
    """Leave out what the audit tells of the upgrades themselves."""
    audit = [row for row in rows["audit"] if row["action"] != "pool.upgrade"]
    return {**rows, "audit": audit}


def require_found(settings: PoolSettings) -> None:
    """The pool serves what was there, and finds it by label, number and text."""
    with running_pool(settings) as (url, none), open_client(url, SECRET) as client:
        assert none is None, "there is an admin"
        assert client.get("/api/v1/whoami").json()["pool_wide"], "an admin of old was of all sites"
        for query in FOUND_BY:
            answer = client.get("/api/v1/models", params=query)
            assert answer.status_code == 200, answer.text
            assert [each["digest"] for each in answer.json()["items"]] == [DIGEST], query
        assert client.get("/api/v1/models", params={"text": "adults"}).json()["items"] == []
        shown = client.get("/api/v1/models/lab/gaze/versions/3")
        assert shown.status_code == 200, shown.text
    with opened_pool(settings) as pool:
        kinds = {problem.kind for problem in check_pool(pool).problems}
    # The rows came without their file, and say of one version that it is available and withdrawn.
    assert {"file-missing"} <= kinds <= {"file-missing", "withdrawal"}
