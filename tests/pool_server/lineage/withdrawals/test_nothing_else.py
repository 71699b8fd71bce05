"""A withdrawal writes what it has to, and not a row or a file more."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sqlalchemy import select

from pool_server.database.engine import Database
from pool_server.database.records import Record
from tests.pool_server.conftest import OpenPool
from tests.pool_server.lineage.withdrawals.families import three_merges
from tests.pool_server.model_files import sha256
from tests.pool_server.pool_driver import PoolDriver, upload
from tests.pool_server.transfers.test_recipes import recipe_for

Rows = dict[str, dict[tuple[Any, ...], dict[str, Any]]]

# When a token was used last is written by whatever request comes.
OF_EVERY_REQUEST = {"tokens"}


def rows_of(pool: PoolDriver) -> Rows:
    """Return every row of every table, by its key."""
    database = Database.open(pool.settings)
    found: Rows = {}
    with database.read() as session:
        for table in Record.metadata.sorted_tables:
            if table.name not in OF_EVERY_REQUEST and "is_derived" not in table.info:
                rows = session.execute(select(table)).mappings()
                keys = [column.name for column in table.primary_key]
                found[table.name] = {tuple(row[key] for key in keys): dict(row) for row in rows}
    database.close()
    return found


def changes(pool: PoolDriver, act: Callable[[], Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """Return how many rows an act adds to each table, and the values that it changes."""
    before = rows_of(pool)
    act()
    after = rows_of(pool)
    added: dict[str, int] = {}
    changed: dict[str, Any] = {}
    for table, rows in after.items():
        assert set(before[table]) <= set(rows), f"a row of {table} is gone"
        if new := len(rows) - len(before[table]):
            added[table] = new
        for key, old in before[table].items():
            for name, value in rows[key].items():
                if value != old[name]:
                    changed[f"{table}.{name}"] = (key, value)
    return added, changed


def files_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_what_a_withdrawal_writes(open_pool: OpenPool, tmp_path: Path) -> None:
    with open_pool(tmp_path) as pool:
        family = three_merges(pool, "exact")
        storage = files_of(pool.settings.storage_folder)
        bad = family.version("a/bad")["digest"]

        added, changed = changes(
            pool, lambda: family.withdraw("a/bad", "consent-withdrawn", explanation="Why.")
        )
        assert added == {
            "withdrawals": 1,
            "withdrawal_flags": 4,
            # To the owner for the withdrawal, and to each of three sites for its flagged models.
            "events": 4,
            # The withdrawal, and each flag.
            "audit": 5,
        }
        assert set(changed) == {
            f"model_versions.{name}"
            for name in ("state", "state_reason", "state_changed_at", "state_changed_by")
        }
        assert {key for key, _ in changed.values()} == {changed["model_versions.state"][0]}
        assert files_of(pool.settings.storage_folder) == storage

        merged = recipe_for(family.files["a/first"], bad, family.digest("b/good"))
        successor = {
            **merged,
            "inputs": merged["inputs"][1:],
            "output": {"digest": family.digest("b/good"), "format": "safetensors"},
            "successor_of": {
                "digest": family.digest("a/first"),
                "without": [{"digest": bad, "address": None, "file_name": None}],
            },
        }
        added, changed = changes(
            pool,
            lambda: upload(
                family.member("a"), family.address("a/first"), family.files["b/good"],
                recipe=successor,
            ),
        )  # fmt: skip
        assert changed == {}
        assert added["successors"] == 1
        assert added["audit"] == 2, "published, and replacing the other"
        assert added["events"] == 1
        assert "withdrawal_flags" not in added
        assert files_of(pool.settings.storage_folder) == storage


def test_two_processes_neither_miss_a_version_nor_flag_it_twice(pool: PoolDriver) -> None:
    """A version published while its ancestor is withdrawn is flagged by one or the other."""
    family = three_merges(pool, "race")
    names = [f"c/racer-{number}" for number in range(4)]
    with ThreadPoolExecutor(len(names) + 1) as workers:
        done = [workers.submit(family.add, name, "c/third", "b/good") for name in names]
        withdrawn = workers.submit(family.withdraw, "a/bad", "quality")
        assert withdrawn.result().status_code == 200
        for each in done:
            each.result()
    for name in names:
        assert [flag["reason"] for flag in family.version(name)["flags"]] == ["quality"], name
