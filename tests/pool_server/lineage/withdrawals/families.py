"""Small families of merged networks in a pool, as several sites make them."""

from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import PoolDriver, upload
from tests.pool_server.transfers.test_recipes import recipe_for


@dataclass
class Family:
    """Files by name; each belongs to the site named before the slash."""

    pool: PoolDriver
    prefix: str
    files: dict[str, bytes] = field(default_factory=dict)
    recipes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def site(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def member(self, name: str, role: str = "contributor") -> httpx.Client:
        return self.pool.member(self.site(name), role)

    def owner(self, name: str) -> httpx.Client:
        """Return a contributor of the site that a file belongs to."""
        return self.member(name.partition("/")[0])

    def address(self, name: str) -> str:
        site, model = name.split("/")
        return f"{self.site(site)}/{model}"

    def digest(self, name: str) -> str:
        return sha256(self.files[name])

    def add(self, name: str, *parents: str, **fields: Any) -> dict[str, Any]:
        """Upload a new file, merged from others by their names, despite any withdrawal."""
        content = self.files.setdefault(name, network_bytes())
        if parents:
            self.recipes[name] = recipe_for(content, *(self.digest(parent) for parent in parents))
            fields["recipe"] = self.recipes[name]
            fields.setdefault("despite_withdrawal", True)
        return upload(self.owner(name), self.address(name), content, **fields)

    def version(self, name: str, number: int = 1) -> dict[str, Any]:
        path = f"/api/v1/models/{self.address(name)}/versions/{number}"
        answer = self.pool.admin.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def download(self, name: str, by: str, number: int = 1) -> httpx.Response:
        path = f"/api/v1/models/{self.address(name)}/versions/{number}/content"
        return self.member(by).get(path)

    def events(self, site: str, **parameters: str) -> list[dict[str, Any]]:
        """Return a site's events, except those about merges and downloads by others."""
        answer = self.member(site).get("/api/v1/events", params=parameters)
        uses = {"version.merged", "version.downloaded"}
        return [item for item in answer.json()["items"] if item["kind"] not in uses]

    def withdraw(
        self, name: str, reason: str, *, client: httpx.Client | None = None, **fields: Any
    ) -> httpx.Response:
        path = f"/api/v1/models/{self.address(name)}/versions/1/withdraw"
        client = client or self.owner(name)
        return client.post(path, json={"reason": reason, **fields})


def three_merges(pool: PoolDriver, prefix: str) -> Family:
    """Return a family: a sub-model that is in three merged models, one of them merged again."""
    family = Family(pool, prefix)
    for name in ("a/bad", "b/good", "c/fine"):
        family.add(name)
    family.add("a/first", "a/bad", "b/good")
    family.add("b/second", "a/bad", "c/fine")
    family.add("c/third", "b/good", "a/bad", "c/fine")
    family.add("c/again", "c/third", "b/good")
    family.add("b/clean", "b/good", "c/fine")
    return family
