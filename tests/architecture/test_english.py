"""Docstrings, messages and names read as a native engineer would write them.

`python -m tests.architecture.test_english [FOLDER ...]` lists the findings.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("aggregators", "pool_server", "site_agent", "cli", "migrations", "tests")
_RELATIVE = "name the thing instead of a relative clause"
PATTERNS = {
    _RELATIVE: re.compile(
        r"\b(?:what|whatever|who|whoever|whom|whichever|whose|of which)\b", re.IGNORECASE
    ),
    "write can, may or must": re.compile(r"\b(?:is|are|was|were) (?:not )?to (?!the\b)[a-z]"),
    "write 'at least N' or 'at most N'": re.compile(
        r"\b(?<!times )(?<!twice )(?:so|as) (?:many|much|few|often)\b"
        r"(?!(?: [\w-]+){0,2} (?:as|that)\b)"
    ),
    "write again, next to or with": re.compile(r"\b(?:anew|beside)\b", re.IGNORECASE),
    "write the usual word": re.compile(
        r"\b(?:none that|any more|to be had|gone on with|under no name|all the same|in vain)\b"
    ),
}
"""Advice by the pattern it answers."""
_VAGUE_START = re.compile(r"#?\s*(?:what|who|whoever|whose|whether)\b", re.IGNORECASE)
VAGUE_NAMES = frozenset({"found", "given", "taken", "own", "wanted", "words", "done", "each"})
"""Names that say when a value was obtained, and not what it is."""
WIRE_FIELDS = {(ROOT / "pool_server/wire/cards.py", "found")}
"""Fields of published formats, which keep their names."""
_PROSE_KEYWORDS = frozenset({"help", "hint", "description", "summary", "problem", "message"})
_CODE = re.compile(r"``.*?``|`[^`]*`|\{[^}]*\}|https?://\S+", re.DOTALL)


@dataclass(frozen=True)
class Finding:
    """A place that breaks a rule."""

    path: Path
    line: int
    advice: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.advice}: {self.text}"


def list_sources(*folders: str) -> Iterator[Path]:
    """Yield the Python files of the project's folders."""
    for folder in folders or PACKAGES:
        yield from sorted((ROOT / folder).rglob("*.py"))


def find_docstrings(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and text of docstrings and of literals below fields."""
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield from _texts(node.value)


def find_prose(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and text of docstrings, field descriptions, help texts and error messages."""
    yield from find_docstrings(nodes)
    for node in nodes:
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in _PROSE_KEYWORDS:
                    yield from _texts(keyword.value)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for argument in node.exc.args:
                yield from _texts(argument)


def _texts(node: ast.AST) -> Iterator[tuple[int, str]]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.lineno, part.value


def find_sentences(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and text of all strings of several words."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def find_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and text of each line of comments."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def find_assigned_names(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield line and name of variables, parameters and fields."""
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def check_file(path: Path) -> Iterator[Finding]:
    """Yield the findings of a file."""
    source = path.read_text(encoding="utf-8")
    nodes = list(ast.walk(ast.parse(source)))
    comments = dict(find_comments(source))
    first_lines = [(line, text) for line, text in comments.items() if line - 1 not in comments]
    for line, text in [*first_lines, *find_docstrings(nodes)]:
        if _VAGUE_START.match(text):
            yield Finding(path, line, "begin with the subject", " ".join(text.split())[:60])
    prose = set(find_prose(nodes))
    texts = prose | set(comments.items()) | set(find_sentences(nodes))
    for line, text in sorted(texts):
        plain = _CODE.sub("X", text)
        for advice, pattern in PATTERNS.items():
            if advice == _RELATIVE and (line, text) not in prose:
                continue
            for match in pattern.finditer(plain):
                start, end = max(match.start() - 30, 0), match.end() + 30
                excerpt = " ".join(plain[start:end].split())
                yield Finding(path, line + plain[: match.start()].count("\n"), advice, excerpt)
    for line, name in find_assigned_names(nodes):
        if name in VAGUE_NAMES:
            yield Finding(path, line, "name the noun of the domain", name)


@pytest.mark.parametrize("package", PACKAGES)
def test_prose_and_names_follow_the_house_style(package: str) -> None:
    assert [str(finding) for finding in check_folders(package)] == []


def check_folders(*folders: str) -> list[Finding]:
    """Return the findings of all files but this one, which names them."""
    return [
        finding
        for path in list_sources(*folders)
        if path != Path(__file__)
        for finding in check_file(path)
        if (finding.path, finding.text) not in WIRE_FIELDS
    ]


def main() -> None:
    findings = check_folders(*sys.argv[1:])
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings")


if __name__ == "__main__":
    main()
