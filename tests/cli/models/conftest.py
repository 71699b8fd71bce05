"""A pool of the module, and a contributor in an empty folder."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.site_agent.live_pool import LivePool


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of one's own."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def member(pool: LivePool, here: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`poolctl` as a contributor of site-a is logged in, in a folder of its own."""
    monkeypatch.setenv("POOL_ENDPOINT", pool.url)
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-a"])
    return poolctl
