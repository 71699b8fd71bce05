"""The one-way imports of the packages, held by import-linter."""

import ast
import subprocess
import sys
from pathlib import Path

from tests.architecture.counts import PRODUCT, count_deferred_imports
from tests.architecture.test_english import list_sources
from tests.conftest import PROJECT_ROOT

MOST_DEFERRED = 200
"""Imports within functions: of optional libraries, and of those that cost start-up time."""


def test_few_imports_are_deferred() -> None:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in list_sources(*PRODUCT))
    assert sum(map(count_deferred_imports, trees)) < MOST_DEFERRED


def test_import_contracts_hold() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [lint_imports, "--no-cache"], cwd=PROJECT_ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
