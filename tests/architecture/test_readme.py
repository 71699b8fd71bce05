"""The README's commands are those that CI and the tests run."""

from __future__ import annotations

import re

import pytest

from aggregators import METHODS
from tests.conftest import PROJECT_ROOT


def code_blocks() -> list[str]:
    readme = (PROJECT_ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```(?:bash|sh|console)?\n(.*?)^```", readme, flags=re.M | re.S)


def test_the_first_command_runs_quickstart_and_the_second_the_tests() -> None:
    first, second = (block.strip() for block in code_blocks()[:2])
    assert first.endswith("poolctl quickstart"), first
    assert second.endswith(".venv/bin/pytest -n auto"), second


def test_ci_runs_exactly_the_test_command_of_the_readme() -> None:
    script = (PROJECT_ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert script[-1] == code_blocks()[1].strip()
    assert sum("pytest" in line for line in script) == 1


@pytest.mark.parametrize("readme", ["README.md", "aggregators/README.md"])
def test_every_aggregation_method_is_named(readme: str) -> None:
    text = (PROJECT_ROOT / readme).read_text(encoding="utf-8")
    assert [name for name in METHODS if f"`{name}`" not in text] == []
