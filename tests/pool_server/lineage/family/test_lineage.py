"""Family trees."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from pool_server.database.engine import Database
from pool_server.database.records import (
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    SiteRecord,
    TokenRecord,
)
from pool_server.database.schema import upgrade_database
from pool_server.lineage.family import trace_lineage
from pool_server.registry.service import resolve_version
from pool_server.settings import PoolSettings
from pool_server.wire.models import LineageResponse
from pool_server.wire.names import ModelAddress
from tests.pool_server.interleaving import ADMIN
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, upload
from tests.pool_server.statements import recorded_statements
from tests.pool_server.transfers.test_recipes import recipe_for

UNKNOWN = "ab" * 32


def lineage_of(pool: PoolDriver, name: str) -> dict[str, Any]:
    return pool.admin.get(f"/api/v1/models/kin/{name}/versions/1/lineage").json()


@pytest.mark.both_databases
def test_lineage_shows_the_whole_family(pool: PoolDriver) -> None:
    client = pool.member("kin")
    files = {name: network_bytes() for name in ("a", "b", "merged", "again")}
    digests = {name: sha256(content) for name, content in files.items()}
    upload(client, "kin/a", files["a"])
    upload(client, "kin/b", files["b"])
    recipe = recipe_for(files["merged"], digests["a"], digests["b"], UNKNOWN)
    upload(client, "kin/merged", files["merged"], recipe=recipe)
    upload(
        client, "kin/again", files["again"],
        recipe=recipe_for(files["again"], digests["merged"], digests["a"]),
    )  # fmt: skip
    upload(client, "kin/a-too", files["a"])

    tree = lineage_of(pool, "merged")
    nodes = {node["digest"]: node for node in tree["nodes"]}
    assert tree["root"] == digests["merged"]
    assert tree["recipe"] == recipe
    assert {digest: node["depth"] for digest, node in nodes.items()} == {
        digests["a"]: -1,
        digests["b"]: -1,
        UNKNOWN: -1,
        digests["merged"]: 0,
        digests["again"]: 1,
    }
    assert nodes[digests["a"]]["addresses"] == ["pool://kin/a@1", "pool://kin/a-too@1"]
    assert nodes[UNKNOWN]["addresses"] == []
    assert nodes[UNKNOWN]["kind"] is None
    assert nodes[digests["again"]]["kind"] == "network"
    assert {(edge["parent"], edge["child"], edge["weight"]) for edge in tree["edges"]} == {
        (digests["a"], digests["merged"], 1.0),
        (digests["b"], digests["merged"], 2.0),
        (UNKNOWN, digests["merged"], 3.0),
        (digests["merged"], digests["again"], 1.0),
    }

    above = {node["digest"]: node["depth"] for node in lineage_of(pool, "again")["nodes"]}
    assert above == {
        digests["again"]: 0,
        digests["merged"]: -1,
        digests["a"]: -1,
        digests["b"]: -2,
        UNKNOWN: -2,
    }
    below = {node["digest"]: node["depth"] for node in lineage_of(pool, "a")["nodes"]}
    assert below == {digests["a"]: 0, digests["merged"]: 1, digests["again"]: 1}


def test_contradictory_recipes_end_the_walk_too(pool: PoolDriver) -> None:
    client, first, second = pool.member("kin"), network_bytes(), network_bytes()
    upload(client, "kin/hen", first, recipe=recipe_for(first, sha256(second)))
    upload(client, "kin/egg", second, recipe=recipe_for(second, sha256(first)))
    tree = lineage_of(pool, "hen")
    assert {node["digest"] for node in tree["nodes"]} == {sha256(first), sha256(second)}


def add_tree(connection: Connection, size: int) -> None:
    """Add versions ``kin/merged@1`` to ``@size``; each merges the next two of the ones below it."""
    digests = [f"{number:064x}" for number in range(size, 0, -1)]
    connection.execute(insert(SiteRecord), {"name": "kin", "display_name": "kin", "contact": ""})
    token = {"id": "0" * 32, "site_id": 1, "name": "kin", "role": "contributor"}
    connection.execute(insert(TokenRecord), token | {"pool_wide": False, "secret_hash": b"0"})
    connection.execute(insert(ModelRecord), {"site_id": 1, "name": "merged", "kind": "network"})
    version = {
        "model_id": 1,
        "size_bytes": 1,
        "kind": "network",
        "format": "safetensors",
        "file_name": "merged.safetensors",
        "state": "available",
        "fingerprint": {},
        "created_by": "kin",
        "token_id": token["id"],
    }
    connection.execute(
        insert(ModelVersionRecord),
        [version | {"number": int(digest, 16), "digest": digest} for digest in reversed(digests)],
    )
    edge = {"weight": 1.0, "method": "fedavg"}
    edges = [
        edge
        | {
            "version_id": size - child,
            "position": position,
            "child_digest": digests[child],
            "parent_digest": digests[parent],
        }
        for child in range(size)
        for position, parent in enumerate((2 * child + 1, 2 * child + 2))
        if parent < size
    ]
    connection.execute(insert(ParentRecord), edges)


def test_a_thousand_ancestors_need_a_fixed_number_of_queries(tmp_path: Path) -> None:
    settings = PoolSettings(data_folder=tmp_path)
    upgrade_database(settings)
    database = Database.open(settings)
    with database.writing_engine.begin() as connection:
        add_tree(connection, 1001)
    youngest = ModelAddress.parse("kin/merged@1001")
    with database.read() as session, recorded_statements(database.engine) as statements:
        version = resolve_version(session, ADMIN, youngest.site, youngest.name, youngest.reference)
        statements.clear()
        tree = trace_lineage(session, ADMIN, version.digest)
    database.close()
    assert LineageResponse.model_validate(tree).model_dump() == tree
    assert len(tree["nodes"]) == 1001
    assert len(statements) <= 4
