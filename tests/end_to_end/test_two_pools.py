"""Models from one pool to another by a file, with processes of their own on both sides."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from aggregators.formats import file_digest, write_model
from site_agent import ModelCache, PoolClient
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Outcome, run_here
from tests.pool_server.pool_driver import pool_process


@dataclass(frozen=True)
class Desk:
    """Where somebody works: a home of its own, logged in to one pool."""

    url: str
    token: str
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"POOL_ENDPOINT": self.url, "POOL_TOKEN": self.token, "POOL_HOME": str(self.home)}

    def run(self, *arguments: object, **environment: str) -> Outcome:
        """Run a command as this site."""
        return run_here(*arguments, **(self.environment | environment))

    def client(self) -> PoolClient:
        return PoolClient(self.url, self.token, cache=ModelCache(self.home / "cache"))


class Pools:
    """Two pools that cannot reach one another."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.folder = folder
        self.admins: dict[str, Desk] = {}
        for name in ("here", "there"):
            _, url, secret = stack.enter_context(pool_process(folder / name))
            assert secret is not None
            self.admins[name] = Desk(url, secret, folder / f"{name}-admin")

    def desk(self, pool: str, site: str, role: Any = "contributor") -> Desk:
        admin = self.admins[pool]
        with admin.client() as client:
            if site not in {known.name for known in client.sites.list()}:
                client.sites.create(site)
            token = client.tokens.create(site, f"desk-{role}", role=role).secret
        return Desk(admin.url, token, self.folder / f"{pool}-{site}-{role}")


@pytest.fixture
def pools(tmp_path: Path) -> Iterator[Pools]:
    with ExitStack() as stack:
        yield Pools(stack, tmp_path)


@pytest.mark.slow
def test_models_travel_with_all_that_belongs_to_them(pools: Pools, tmp_path: Path) -> None:
    a, b = pools.desk("here", "site-a"), pools.desk("here", "site-b")
    for number, desk in enumerate((a, b), start=1):
        assert desk.run("keys", "create").code == 0
        write_model(make_detector(number), tmp_path / f"{number}.svm")
    options = ("-l", "population=infant", "-m", "recall=0.9", "--description", "Infants")
    assert a.run("upload", tmp_path / "1.svm", "--name", "face", *options).code == 0
    assert b.run("upload", tmp_path / "2.svm", "--name", "face").code == 0

    merged = tmp_path / "merged.svm"
    made = b.run("merge", "mwma", "site-a/face", "site-b/face", "-o", merged)
    assert made.code == 0, made.err
    assert "met for the first time" in made.err, "the key of the other site"
    assert b.run("upload", merged, "--name", "merged", "--json").data["version"]["signed_by"]

    # Handing on needs the owners' word, and the pool gives the reason.
    bundle = tmp_path / "faces.bundle"
    asked = ("bundle", "export", "site-b/merged", "--with-parents", "-o", bundle)
    refused = b.run(*asked, "--json")
    assert (refused.code, bundle.exists()) == (3, False)
    assert "site-a has not granted redistribute" in refused.error["message"]
    shared = httpx.put(
        f"{a.url}/api/v1/models/site-a/face/sharing",
        json={"visibility": "consortium", "rights": ["download", "merge", "redistribute"]},
        headers={"Authorization": f"Bearer {a.token}"},
        timeout=540,
    )
    assert shared.status_code == 200, shared.text
    exported = b.run(*asked, "--json").data
    assert exported["addresses"] == [
        "pool://site-a/face@1", "pool://site-b/face@1", "pool://site-b/merged@1",
    ]  # fmt: skip
    again = tmp_path / "again.bundle"
    assert b.run(*asked[:-1], again).code == 0
    assert again.read_bytes() == bundle.read_bytes(), "equal models, equal bytes"

    # On the other side, with nothing but the file.
    there = pools.admins["there"]
    report = there.run("inspect", bundle, "--json", POOL_OFFLINE="1").data
    assert report["identifier"] == exported["identifier"]
    assert [version["origin"].partition("@")[0] for version in report["versions"]] == [
        "site-a", "site-b", "site-b",
    ]  # fmt: skip
    missing = there.run("bundle", "import", bundle, "--json")
    assert (missing.code, missing.error["code"]) == (3, "forbidden")
    assert "site-a, site-b" in missing.error["message"]
    for site in ("site-a", "partner"):
        assert there.run("admin", "sites", "create", site).code == 0
    command = ("bundle", "import", bundle, "--site-map", "site-b=partner", "--json")
    assert there.run(*command, "--dry-run").data["imported"] is False
    outcome = there.run(*command).data
    assert [(item["source"], item["address"], item["signed"]) for item in outcome["items"]] == [
        ("pool://site-a/face@1", "pool://site-a/face@1", True),
        ("pool://site-b/face@1", "pool://partner/face@1", True),
        ("pool://site-b/merged@1", "pool://partner/merged@1", True),
    ]
    repeated = there.run(*command).data["items"]
    assert [(item["was_there"], item["sent_bytes"]) for item in repeated] == [(True, 0)] * 3

    # A reader who downloads there checks the signatures made here.
    reader = pools.desk("there", "reader", "viewer")
    got = reader.run("download", "partner/merged", "-o", tmp_path / "got.svm", "--json")
    assert got.data["items"][0]["signature"] == "verified"
    assert "imported from site-b@" in got.err
    assert file_digest(tmp_path / "got.svm") == file_digest(merged)
    with reader.client() as client:
        version = client.version("site-a/face")
        assert (version.labels, version.metrics, version.description) == (
            {"population": "infant"}, {"recall": 0.9}, "Infants",
        )  # fmt: skip
        lineage = client.models.lineage("partner/merged")
        assert {tuple(node.addresses) for node in lineage.nodes if node.depth < 0} == {
            ("pool://site-a/face@1",),
            ("pool://partner/face@1",),
        }
        assert lineage.recipe is not None
        keys = client.signatures.keys("partner")
    assert [key.origin for key in keys] == [f"site-b@{b.url.split('//')[1].replace(':', '-')}"]
