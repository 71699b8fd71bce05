"""The owner fixed the names at the top level."""

import subprocess

import pytest

from tests.conftest import PROJECT_ROOT

FIXED_NAMES = {
    "README.md",
    "aggregators",
    "cli",
    "migrations",
    "pool_server",
    "pyproject.toml",
    "site_agent",
    "tests",
}


def test_nothing_but_the_fixed_names_and_dotfiles() -> None:
    listing = subprocess.run(
        ["git", "ls-files"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    top_level = {line.split("/", 1)[0] for line in listing.stdout.splitlines()}
    assert {name for name in top_level if not name.startswith(".")} <= FIXED_NAMES
