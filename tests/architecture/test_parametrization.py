"""Laws of the source: repeatable parameters, and patterns held against the whole text."""

import ast
from pathlib import Path

import pytest

from tests.architecture.test_english import ROOT, list_sources
from tests.conftest import PROJECT_ROOT

CHANGING = {"time", "time_ns", "monotonic", "perf_counter", "now", "now_utc", "today", "utcnow"}

CHANGING |= {"random", "uuid1", "uuid4", "token_hex", "token_urlsafe", "getpid", "mkdtemp", "set"}


def changing_parameters(source: str) -> list[int]:
    """Return the lines of parameters that differ from process to process."""
    decorators = (
        decorator
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize")
    )
    return sorted({node.lineno for call in decorators for node in ast.walk(call) if _changes(node)})


def _changes(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2] in CHANGING
    return False


def test_every_process_collects_the_same_tests() -> None:
    """One differing identifier stops the whole run, and a time of collection is old by its test."""
    problems = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in list_sources("tests")
        for line in changing_parameters(path.read_text(encoding="utf-8"))
    ]
    assert not problems


PACKAGES = ("pool_server", "site_agent", "aggregators", "cli")


def loose_matches(source: str) -> list[int]:
    """Return the lines that call ``match``, save for a written-out beginning: no ``$`` in it."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "match"
        and not _is_beginning(node)
    ]


def _is_beginning(call: ast.Call) -> bool:
    pattern = call.args[0] if len(call.args) > 1 else None
    return isinstance(pattern, ast.Constant) and "$" not in str(pattern.value)


@pytest.mark.parametrize("package", PACKAGES)
def test_patterns_are_held_against_the_whole_text(package: str) -> None:
    calls = [
        f"{path.relative_to(PROJECT_ROOT)}:{line}"
        for path in sorted(Path(PROJECT_ROOT, package).rglob("*.py"))
        for line in loose_matches(path.read_text(encoding="utf-8"))
    ]
    assert not calls, f"use fullmatch, which takes no line end along: {', '.join(calls)}"
