"""Count the project's lines, files, imports and names: `python -m tests.architecture.counts`."""

import ast
import statistics
import tokenize
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.architecture.test_english import ROOT, list_sources

PRODUCT = ("aggregators", "pool_server", "site_agent", "cli", "migrations")
_CHILD_CALLS = (
    "subprocess.Popen",
    "subprocess.run",
    "ProcessPool",
    "ProcessPoolExecutor",
    "get_context",
    "os.fork",
    "os.posix_spawn",
)


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
        ("comment lines", f"{100 * sum(map(count_comment_lines, product)) / total:.1f} %"),
        ("functions over 40 lines", sum(map(count_long_functions, trees.values()))),
        ("deferred imports", sum(map(count_deferred_imports, trees.values()))),
        ("`Any`", sum(map(count_any, trees.values()))),
        ("commands", count_commands()),
        ("options used once", count_options_used_once()),
        ("files that start a child", ", ".join(find_children(product))),
    ]
    print("| measure | count |\n|---|--:|")
    for measure, count in rows:
        print(f"| {measure} | {count} |")


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def count_import_lines(tree: ast.Module) -> int:
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)


def count_comment_lines(path: Path) -> int:
    """Count comments that stand alone in their line."""
    with path.open("rb") as stream:
        return sum(
            token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")
            for token in tokenize.tokenize(stream.readline)
        )


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


def find_children(paths: Sequence[Path]) -> list[str]:
    return [
        str(path.relative_to(ROOT))
        for path in paths
        if any(call in path.read_text(encoding="utf-8") for call in _CHILD_CALLS)
    ]


def count_commands() -> int:
    return sum(1 for _ in list_commands())


def count_options_used_once() -> int:
    names = Counter(
        name
        for command in list_commands()
        for name in {
            option
            for parameter in command.params
            for option in parameter.opts
            if option.startswith("--")
        }
    )
    return sum(count == 1 for count in names.values())


def list_commands() -> Iterable[object]:
    """Yield each command that does something, without the groups that hold it."""
    import typer.main

    from cli.frame.app import app

    waiting = [typer.main.get_command(app)]
    while waiting:
        command = waiting.pop()
        if hasattr(command, "list_commands"):
            context = command.make_context("poolctl", [], resilient_parsing=True)
            names = command.list_commands(context)
            waiting += filter(None, (command.get_command(context, name) for name in names))
        else:
            yield command


if __name__ == "__main__":
    main()
