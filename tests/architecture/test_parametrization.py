"""The processes of a parallel run collect the same tests: no parameter depends on the moment."""

import ast

import pytest

from tests.architecture.test_english import ROOT, list_sources

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


@pytest.mark.parametrize(
    ("values", "lines"), [("[time.time() - 90]", [1]), ("[1, 2]", []), ("set(NAMES)", [1])]
)
def test_the_check_sees_what_it_is_for(values: str, lines: list[int]) -> None:
    source = f"@pytest.mark.parametrize('value', {values})\ndef test(value): ..."
    assert changing_parameters(source) == lines
