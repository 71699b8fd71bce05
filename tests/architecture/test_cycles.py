"""No module and no folder imports itself through others, at the top or inside a function."""

from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter

import grimp
import pytest

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
