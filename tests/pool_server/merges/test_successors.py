"""After a withdrawal the pool merges again, and replaces models that held the withdrawn one."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from aggregators.formats import file_digest
from aggregators.methods import (
    LeftOut,
    Recipe,
    RecipeInput,
    merge,
    read_recipe,
    recipe_path,
    replay,
)
from tests.pool_server.merges.merge_driver import OVER, ask, landmark_bytes, wait_for
from tests.pool_server.pool_driver import PoolDriver, upload

SITE = "again"


class Workshop:
    """A site's folder, and the pool to which all of it is sent."""

    def __init__(self, folder: Path, client: httpx.Client) -> None:
        self.folder, self.client = folder, client

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.dat"

    def digest(self, name: str) -> str:
        return file_digest(self.path(name))

    def recipe(self, name: str) -> Recipe:
        return read_recipe(recipe_path(self.path(name)))

    def trained(self, **seeds: int) -> None:
        for name, seed in seeds.items():
            self.path(name).write_bytes(landmark_bytes(seed))
            self.upload(name)

    def merged(self, name: str, weights: Mapping[str, float]) -> None:
        inputs, chosen = [self.path(part) for part in weights], list(weights.values())
        options = {"step": 1.1}
        merge("wba-cascade", inputs, weights=chosen, options=options, output=self.path(name))
        self.upload(name, recipe=document_of(self.recipe(name)))

    def upload(self, name: str, **fields: Any) -> None:
        upload(self.client, f"{SITE}/{name}", self.path(name).read_bytes(), **fields)

    def find(self, digest: str) -> Path:
        return next(path for path in self.folder.glob("*.dat") if file_digest(path) == digest)

    def replayed(self, name: str, without: Sequence[str], **again: Any) -> Recipe:
        """Make a model again at home, and return the recipe of that."""
        output = self.path(f"{name}-2")
        return replay(self.recipe(name), self.find, output, without=without, **again).recipe

    def made_by_pool(self, name: str, recipe: Recipe) -> dict[str, Any]:
        asked = ask(self.client, document_of(recipe), site=SITE, name=name)
        return wait_for(self.client, asked.json()["merge_id"], OVER)


def without_output(recipe: Recipe) -> Recipe:
    """Return a recipe as a site asks the pool to follow it."""
    return recipe.model_copy(update={"output": None})


def document_of(recipe: Recipe) -> dict[str, Any]:
    return json.loads(recipe.to_json())


def test_the_pool_makes_successors(pool: PoolDriver, tmp_path: Path) -> None:
    shop = Workshop(tmp_path, pool.member(SITE))
    shop.trained(bad=81, good=82, fine=83)
    shop.merged("third", {"good": 1, "bad": 2, "fine": 3})
    shop.merged("fourth", {"third": 4, "good": 1})
    bad, third = shop.digest("bad"), shop.digest("third")
    withdrawn = shop.client.post(
        f"/api/v1/models/{SITE}/bad/versions/1/withdraw", json={"reason": "consent-withdrawn"}
    )
    assert [version["address"] for version in withdrawn.json()["versions"]] == [
        f"pool://{SITE}/third@1", f"pool://{SITE}/fourth@1",
    ]  # fmt: skip
    as_it_was = ask(shop.client, document_of(shop.recipe("third")), site=SITE)
    assert "was withdrawn (consent-withdrawn)" in as_it_was.json()["error"]["message"]

    at_home = shop.replayed("third", [bad])
    there = shop.made_by_pool("third", without_output(at_home))
    assert at_home.output is not None
    assert (there["version"], there["digest"]) == (
        f"pool://{SITE}/third@2", at_home.output.digest,
    )  # fmt: skip
    recipe = shop.client.get(f"/api/v1/lineage/{there['digest']}").json()["recipe"]
    assert recipe["successor_of"] == document_of(at_home)["successor_of"]

    rebuilt = {third: RecipeInput(digest=there["digest"], address=there["version"])}
    left_out = [LeftOut(digest=bad)]
    at_home = shop.replayed("fourth", [], rebuilt=rebuilt, left_out=left_out)
    there = shop.made_by_pool("fourth", without_output(at_home))
    assert at_home.output is not None
    assert there["digest"] == at_home.output.digest
    for name in ("third", "fourth"):
        versions = f"/api/v1/models/{SITE}/{name}/versions"
        old, new = (shop.client.get(f"{versions}/{number}").json() for number in (1, 2))
        assert [flag["reason"] for flag in old["flags"]] == ["consent-withdrawn"]
        assert old["successors"] == [new["address"]]
        assert (new["flags"], new["state"]) == ([], "available")
