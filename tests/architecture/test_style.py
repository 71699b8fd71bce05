"""ruff, the README's commands and the top level: one command runs all checks of CI."""

import re
import subprocess
import sys

import pytest

from aggregators import METHODS
from tests.conftest import PROJECT_ROOT


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "--no-cache", "."], id="ruff-lint"),
        pytest.param(["ruff", "format", "--check", "."], id="ruff-format"),
    ],
)
def test_sources_are_clean(command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


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


def code_blocks() -> list[str]:
    readme = (PROJECT_ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", readme, flags=re.M | re.S)
    return [block for language, block in blocks if language == "bash"]


def find_test_command() -> str:
    [block] = [block.strip() for block in code_blocks() if "pytest" in block]
    return block


def test_the_first_command_runs_quickstart_and_the_last_the_tests() -> None:
    first = code_blocks()[0].strip()
    assert first.endswith("poolctl quickstart"), first
    assert find_test_command().endswith(".venv/bin/pytest -n auto")
    assert code_blocks()[-1].strip() == find_test_command()


def test_ci_runs_exactly_the_test_command_of_the_readme() -> None:
    script = (PROJECT_ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert script[-1] == find_test_command()
    assert sum("pytest" in line for line in script) == 1


@pytest.mark.parametrize("readme", ["README.md", "aggregators/README.md"])
def test_every_aggregation_method_is_named(readme: str) -> None:
    text = (PROJECT_ROOT / readme).read_text(encoding="utf-8")
    assert [name for name in METHODS if f"`{name}`" not in text] == []
