"""The imports of the packages: one way, in no circle, few of them deferred."""

import ast
import subprocess
import sys
from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

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


PACKAGES = ("aggregators", "pool_server", "site_agent", "cli", "migrations")


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def test_no_module_imports_itself_through_others(graph: grimp.ImportGraph) -> None:
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    fail_on_circle(imports)


def test_no_folder_imports_itself_through_others(graph: grimp.ImportGraph) -> None:
    """The folders and modules of each folder have an order, in which they import one way."""
    for folder in sorted(graph.modules):
        children = graph.find_children(folder)
        part_of = {
            module: child
            for child in children
            for module in (child, *graph.find_descendants(child))
        }
        imports: dict[str, set[str]] = {child: set() for child in children}
        for module, part in part_of.items():
            for other in graph.find_modules_directly_imported_by(module):
                if part_of.get(other, part) != part:
                    imports[part].add(part_of[other])
        fail_on_circle(imports)


def fail_on_circle(imports: Mapping[str, Collection[str]]) -> None:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))
