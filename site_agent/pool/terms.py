"""Terms of use at a site: read from files, and checked before merges.

The rules are the pool's own (`pool_server.wire.data_use_rules`), so that what is refused
there is refused here before any work is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from pool_server.wire.data_use import Term
from pool_server.wire.data_use_rules import (
    IntendedUse,
    TermsOf,
    check_merge,
)
from pool_server.wire.models.models import ModelVersionResponse
from site_agent.errors import TermsFileError, TermsForbidError

MOST_FILE_BYTES = 64 * 1024


def today_utc() -> date:
    return datetime.now(UTC).date()


def read_terms_file(path: Path) -> list[Term]:
    """Read terms, one a line as ``CODE`` or ``CODE=DETAIL``; ``#`` begins a remark.

    Raises
    ------
    TermsFileError
        Naming every line that is not a term.
    """
    with path.open("rb") as stream:
        content = stream.read(MOST_FILE_BYTES + 1)
    if len(content) > MOST_FILE_BYTES:
        raise TermsFileError(path, [(0, f"more than {MOST_FILE_BYTES:,} bytes; expected terms")])
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise TermsFileError(path, [(0, f"no UTF-8 text: {error.reason}")]) from error
    terms: dict[Term, None] = {}
    problems = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            terms[Term.parse(text, today_utc())] = None
        except ValueError as error:
            problems.append((number, str(error)))
    if problems:
        raise TermsFileError(path, problems)
    return list(terms)


def terms_of_version(version: ModelVersionResponse) -> list[Term]:
    """Return the terms that the pool says a version has, inherited ones among them.

    A code that this version of the program does not know is kept as words: it binds people, even
    where it cannot be checked.
    """
    terms = []
    for each in version.terms:
        try:
            terms.append(each.term())
        except ValueError:
            words = f"{each.label} ({each.code}) {each.detail}".strip()
            terms.append(Term(code="text", detail=words.replace(",", ";")[:256]))
    return terms


def require_mergeable(
    inputs: Sequence[TermsOf], use: IntendedUse | None = None, *, institution: Iterable[str] = ()
) -> list[str]:
    """Raise where the terms of inputs forbid their merge, or what it is declared to be for.

    Returns
    -------
    list of str
        What only people can judge.
    """
    problems = check_merge(inputs, use, today=today_utc(), institution=institution)
    forbidding = dict.fromkeys(each.message for each in problems if each.forbids)
    if forbidding:
        raise TermsForbidError("these models must not be merged", forbidding)
    return list(dict.fromkeys(each.message for each in problems))
