"""`poolctl keys`, and the report of downloads on signatures, against a real server."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from aggregators.formats import write_model
from aggregators.methods.round_options import protect
from site_agent import PoolClient
from site_agent.errors import SignatureError
from site_agent.rounds.terms import check_terms
from tests.aggregators.small_models import make_detector
from tests.cli.conftest import Outcome, Run
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pages.browser import Browser
from tests.site_agent.live_pool import LivePool, live_pool


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[LivePool]:
    with live_pool(tmp_path / "pool") as running:
        yield running


class Desk:
    """`poolctl` at a desk of its own: its own home, its own token."""

    def __init__(self, run: Run, home: Path, patch: pytest.MonkeyPatch, token: str) -> None:
        self._run, self._home, self._patch, self._token = run, home, patch, token

    def __call__(self, *arguments: object) -> Outcome:
        self._patch.setenv("POOL_HOME", str(self._home))
        self._patch.setenv("POOL_TOKEN", self._token)
        return self._run(*arguments)


@pytest.fixture
def desks(
    pool: LivePool, poolctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Desk, Desk]:
    """A contributor of site-a, and a reader of its models at site-b."""
    monkeypatch.setenv("POOL_ENDPOINT", pool.url)
    monkeypatch.chdir(tmp_path)
    return (
        Desk(poolctl, tmp_path / "home-a", monkeypatch, pool.tokens["site-a"]),
        Desk(poolctl, tmp_path / "home-b", monkeypatch, pool.tokens["site-b"]),
    )


def test_a_key_from_making_to_revoking(desks: tuple[Desk, Desk], tmp_path: Path) -> None:
    site, reader = desks
    made = site("keys", "create", "--name", "desk", "--json").data
    assert Path(made["path"]).stat().st_mode & 0o077 == 0
    assert site("keys", "create", "-q").out.strip() == made["key_id"], "the same key"
    (tmp_path / "site-a.pub.pem").write_text(site("keys", "ls", "--json").data["own"]["pem"])
    subprocess.run(
        ["openssl", "pkey", "-pubin", "-in", tmp_path / "site-a.pub.pem", "-noout"], check=True
    )
    [listed] = site("keys", "ls", "--json").data["items"]
    assert (listed["name"], listed["signs_here"], listed["trusted"]) == ("desk", True, "trusted")

    write_model(make_detector(1), tmp_path / "1.svm")
    assert ", signed)" in site("upload", "1.svm", "--name", "face").out
    write_model(make_detector(2), tmp_path / "2.svm")
    unsigned = site("upload", "2.svm", "--name", "plain", "--no-sign", "--json").data["version"]
    assert unsigned["signed_by"] is None
    got = reader("download", "site-a/face")
    assert "met for the first time" in got.err
    assert f"signed with {made['key_id'][:16]}" in got.out
    reader("download", "site-a/plain", "--json").fails(
        5, "signature_missing", "poolctl models sign site-a/plain@1"
    )
    assert site("models", "sign", "site-a/plain").code == 0
    assert reader("download", "site-a/plain").code == 0

    # The site changes its key; its readers are told, and ask.
    new = site("keys", "create", "--force", "--json").data["key_id"]
    arguments = ("keys", "revoke", made["key_id"][:12])
    assert site(*arguments, "--reason", "superseded").code == 2, "nobody can be asked here"
    assert site(*arguments, "--reason", "superseded", "-y").code == 0
    write_model(make_detector(3), tmp_path / "3.svm")
    assert site("upload", "3.svm", "--name", "face").code == 0
    reader("download", "site-a/face@2", "--json").fails(
        5, "key_not_trusted", f"poolctl keys trust site-a {new[:16]}"
    )
    assert reader("keys", "trust", "site-a", new[:16]).code == 2, "nobody can be asked here"
    assert reader("keys", "trust", "site-a", new[:16], "-y", "-q").out.strip() == new
    assert reader("download", "site-a/face@2").code == 0
    assert reader("download", "site-a/face@1", "--force").code == 0, "signed before"

    assert site(*arguments, "--reason", "compromised", "-y").code == 0
    reader("download", "site-a/face@1", "--json").fails(5, "signature_refused")
    forgotten = reader("keys", "trust", "site-a", "--remove", "-y", "--json").data["forgotten"]
    assert sorted(forgotten) == sorted([made["key_id"], new])


def test_what_a_browser_made_reaches_others_once_it_is_signed(
    pool: LivePool, desks: tuple[Desk, Desk], tmp_path: Path
) -> None:
    """A page warns, its upload waits as a draft, and a round waits for a signature."""
    site, reader = desks
    assert site("keys", "create").code == 0
    content = network_bytes()
    (tmp_path / "gaze.safetensors").write_bytes(content)
    assert site("upload", "gaze.safetensors", "--name", "gaze").code == 0
    assert reader("download", "site-a/gaze", "-o", "gaze-1").code == 0, "the key is known now"
    with ExitStack() as stack:
        transport = httpx.HTTPTransport()
        driver: Any = SimpleNamespace(url=pool.url, stack=stack, transport=transport)
        page = Browser(driver).log_in(pool.tokens["site-a"])
        other = Browser(driver).log_in(pool.tokens["site-b"])
        curator = Browser(driver).log_in(pool.admin_token)
        assert "site-a signs its" in page.get("/upload").text
        assert "site-b signs its" not in other.get("/upload").text
        sent = {"name": "copy", "file_name": "gaze.safetensors", "digest": sha256(content)}
        made = page.post("/uploads", sent | {"size_bytes": len(content)}).json()["version"]
        assert (made["state"], made["signed_by"]) == ("draft", None)
        command = "models sign site-a/copy@1 --publish"
        assert command in page.get("/models/site-a/copy@1").text
        assert command in curator.get("/admin/queue").text
        assert reader("download", "site-a/copy").code == 4
        assert "signed" in site(*command.split()).out
        assert command not in page.get("/models/site-a/copy@1").text
        assert reader("download", "site-a/copy", "-o", "copy").code == 0

        with PoolClient(pool.url, pool.tokens["site-a"]) as client:
            tomorrow = datetime.now(UTC) + timedelta(days=1)
            options = protect("fedavg", {}, secure=False)
            key = client.rounds.start(
                "site-a/gaze", ["site-a", "site-b"], tomorrow, method="fedavg", options=options
            ).round_id
        path = f"/rounds/{key}"
        assert f"poolctl rounds sign {key}" in page.get(path).text
        assert "Wait with your contribution" in other.get(path).text
        with PoolClient(pool.url, pool.tokens["site-b"]) as client:
            with pytest.raises(SignatureError, match="not signed"):
                check_terms(client, client.rounds.get(key))
            assert "base digest" not in reader("rounds", "sign", key).out
            assert site("rounds", "sign", key).code == 2, "nobody can be asked here"
            assert site("rounds", "sign", key, "-y", "-q").out.strip() == key
            assert check_terms(client, client.rounds.get(key)).started_by == "site-a"
        assert f"poolctl rounds contribute {key}" in other.get(path).text
