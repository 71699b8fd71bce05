"""Recipes that come with uploads."""

from typing import Any

import pytest

from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, announce, error_of, upload


def recipe_for(content: bytes, *parents: str, method: str = "fedavg") -> dict[str, Any]:
    return {
        "schema": "poolctl-recipe/1",
        "method": {"name": method, "version": 1},
        "options": {},
        "inputs": [
            {"digest": digest, "weight": weight, "address": None, "file_name": "a.safetensors"}
            for weight, digest in enumerate(parents, start=1)
        ],
        "output": {"digest": sha256(content), "format": "safetensors"},
    }


@pytest.mark.both_databases
def test_nothing_is_its_own_parent(pool: PoolDriver) -> None:
    client, content = pool.member("recipes"), network_bytes()
    recipe = recipe_for(content, sha256(content))
    version = upload(client, "recipes/alone", content, recipe=recipe)
    assert version["has_recipe"]
    assert version["parent_digests"] == []


def test_nobody_says_how_the_file_of_another_site_was_made(pool: PoolDriver) -> None:
    """Terms and withdrawals follow recipes: a forged one would lay them on the file."""
    owner, forger = pool.member("recipe-owner"), pool.member("recipe-forger")
    trained, merged, part = (network_bytes() for _ in range(3))
    upload(owner, "recipe-owner/trained", trained)
    recipe = recipe_for(merged, "a" * 64)
    upload(owner, "recipe-owner/merged", merged, recipe=recipe)
    for name in ("trained", "merged"):
        sharing = {"visibility": "consortium", "rights": ["download", "redistribute"]}
        path = f"/api/v1/models/recipe-owner/{name}/sharing"
        assert owner.put(path, json=sharing).status_code == 200
    for name, content in (("trained", trained), ("merged", merged)):
        forged = recipe_for(content, sha256(part))
        upload(forger, f"recipe-forger/{name}-forged", content, recipe=forged)
    terms = [{"code": "DUO:0000028", "detail": "recipe-forger"}]
    upload(forger, "recipe-forger/part", part, terms=terms)
    for name in ("trained", "merged"):
        shown = owner.get(f"/api/v1/models/recipe-owner/{name}/versions/1").json()
        assert shown["terms"] == []
        assert owner.get(f"/api/v1/lineage/{sha256(part)}").json()["edges"] == []
    copy = announce(forger, "recipe-forger/merged", merged, recipe=recipe).json()
    assert copy["version"]["parent_digests"] == ["a" * 64], "the same making is no contradiction"


@pytest.mark.parametrize(
    "change",
    [
        {"output": {"digest": "0" * 64, "format": "safetensors"}},
        {"output": None},
        {"inputs": []},
        {"inputs": [{"digest": "a" * 64, "weight": -1.0}]},
        {"inputs": [{"digest": "a", "weight": 1.0}]},
        {"schema": "poolctl-recipe/9"},
        {"surprise": 1},
        {"method": {"name": "fedavg"}},
    ],
    ids=str,
)
def test_recipes_that_cannot_be(pool: PoolDriver, change: dict[str, Any]) -> None:
    content = network_bytes()
    recipe = recipe_for(content, "a" * 64) | change
    answer = announce(pool.member("recipes"), "recipes/refused", content, recipe=recipe)
    assert error_of(answer) == (422, "recipe_refused")
    assert pool.admin.get("/api/v1/models/recipes/refused").status_code == 404
