"""Input from outside fits a pattern as a whole: ``$`` also fits before a last line end."""

import ast
from pathlib import Path

import pytest

from tests.conftest import PROJECT_ROOT

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


def test_the_check_sees_what_it_is_for() -> None:
    assert loose_matches('re.match("^a$", text)\n_A.match(text)\nre.match("a", text)') == [1, 2]
