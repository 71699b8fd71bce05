"""Count the project's lines, files, imports and names: `python -m tests.architecture.counts`."""

import ast
import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.architecture.test_english import list_sources
from tests.cli.test_conventions import ALL_COMMANDS

PRODUCT = ("aggregators", "pool_server", "site_agent", "cli", "migrations")


def main() -> None:
    """Print the counts as a Markdown table."""
    product, tests = list(list_sources(*PRODUCT)), list(list_sources("tests"))
    lines = Counter({path: len(read_lines(path)) for path in [*product, *tests]})
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in product}
    total = sum(lines[path] for path in product)
    rows = [
        ("product lines", f"{total:,}"),
        ("test lines", f"{sum(lines[path] for path in tests):,}"),
        ("product files with code", len([path for path in product if lines[path]])),
        (
            "lines of a product file, median",
            round(statistics.median(lines[path] for path in product if lines[path])),
        ),
        ("import lines", f"{100 * sum(map(count_import_lines, trees.values())) / total:.1f} %"),
        ("functions over 40 lines", sum(map(count_long_functions, trees.values()))),
        ("deferred imports", sum(map(count_deferred_imports, trees.values()))),
        ("`Any`", sum(map(count_any, trees.values()))),
        ("commands", len(ALL_COMMANDS)),
        ("options used once", count_options_used_once()),
    ]
    print("| measure | count |\n|---|--:|")
    for measure, count in rows:
        print(f"| {measure} | {count} |")


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def count_import_lines(tree: ast.Module) -> int:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)


def list_functions(tree: ast.Module) -> Iterable[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def count_long_functions(tree: ast.Module) -> int:
    return sum((node.end_lineno or 0) - node.lineno + 1 > 40 for node in list_functions(tree))


def count_deferred_imports(tree: ast.Module) -> int:
    return len(
        {
            (node.lineno, node.col_offset)
            for function in list_functions(tree)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
    )


def count_any(tree: ast.Module) -> int:
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))


def count_options_used_once() -> int:
    names = Counter(
        name
        for command in ALL_COMMANDS.values()
        for name in {
            option
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("--")
        }
    )
    return sum(count == 1 for count in names.values())


if __name__ == "__main__":
    main()
