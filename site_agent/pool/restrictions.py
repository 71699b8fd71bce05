"""Restrictions on the use of models: terms of use, and withdrawals.

The rules of terms are the pool's own (`pool_server.wire.data_use_rules`), so that a merge the pool
would refuse is refused here before any work starts. A model that was withdrawn, or contains a
withdrawn model, is refused or warned of regardless of the source of its bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pool_server.wire.data_use import Term
from pool_server.wire.data_use_rules import TermsOf, check_merge, today_utc
from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.withdrawals import MOST_CHECKED, CheckedFile, Withdrawal
from site_agent.errors import TermsFileError, TermsForbidError, WithdrawnError
from site_agent.pool.cache import ModelCache

if TYPE_CHECKING:
    from site_agent.pool.resources.models import Withdrawals

MOST_FILE_BYTES = 64 * 1024


def read_terms_file(path: Path) -> list[Term]:
    """Read terms, one a line as ``CODE`` or ``CODE=DETAIL``; ``#`` begins a remark."""
    with path.open("rb") as stream:
        content = stream.read(MOST_FILE_BYTES + 1)
    if len(content) > MOST_FILE_BYTES:
        raise TermsFileError(path, f"more than {MOST_FILE_BYTES:,} bytes; expected terms")
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise TermsFileError(path, f"no UTF-8 text: {error.reason}") from error
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
    for term in version.terms:
        try:
            terms.append(term.term())
        except ValueError:
            sentence = f"{term.label} ({term.code}) {term.detail}".strip()
            terms.append(Term(code="text", detail=sentence.replace(",", ";")[:256]))
    return terms


def require_mergeable(inputs: Sequence[TermsOf]) -> list[str]:
    """Raise if terms forbid a merge; return the terms for people to judge."""
    problems = check_merge(inputs, today=today_utc())
    forbidding = dict.fromkeys(problem.message for problem in problems if problem.forbids)
    if forbidding:
        raise TermsForbidError("these models must not be merged", forbidding)
    return list(dict.fromkeys(problem.message for problem in problems))


def refusal_of(version: ModelVersionResponse) -> str:
    """Return why a version can no longer be downloaded; ``""`` if it can."""
    withdrawal = version.withdrawal
    if withdrawal is not None and withdrawal.effect == "refuse":
        return _withdrawn_words(withdrawal)
    for flag in version.flags:
        if flag.digest == version.digest and flag.effect == "refuse":
            return f"{version.address} is {flag.address}, which was withdrawn ({flag.reason})"
    return ""


def require_usable(version: ModelVersionResponse) -> None:
    """Raise for a version that must not be used, wherever its bytes come from."""
    refusal = refusal_of(version)
    if refusal:
        raise WithdrawnError(
            refusal,
            hint=f"use {version.successors[0]} instead, and delete your copies"
            if version.successors
            else "delete your copies; to find other files with it: poolctl models check FILES",
            code="version_withdrawn",
        )


def warning_of(version: ModelVersionResponse) -> str:
    """Return why a version should not be used; ``""`` if it may be."""
    if version.withdrawal is not None:
        problem = _withdrawn_words(version.withdrawal)
    elif version.flags:
        held = ", ".join(f"{flag.address} ({flag.reason})" for flag in version.flags)
        problem = f"{version.address} holds what was withdrawn: {held}"
    else:
        return ""
    return f"{problem}; replaced by {version.successors[0]}" if version.successors else problem


def withdrawal_summary(version: ModelVersionResponse) -> str:
    """Return in a few words that a version is withdrawn or flagged; ``""`` if it is not."""
    if version.withdrawal is not None:
        sentence = f"withdrawn ({version.withdrawal.reason})"
    elif version.flags:
        sentence = "flagged (" + ", ".join(sorted({flag.reason for flag in version.flags})) + ")"
    else:
        return ""
    return f"{sentence}, replaced" if version.successors else sentence


@dataclass(frozen=True)
class WithdrawnFile:
    """A local file that was withdrawn, or contains something that was (addresses in `holds`)."""

    path: Path
    digest: str
    withdrawn: tuple[Withdrawal, ...] = ()
    holds: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The problems, in words."""
        problems = [_withdrawn_words(item) for item in self.withdrawn]
        if self.holds:
            problems.append(f"holds {', '.join(self.holds)}, withdrawn")
        replaced = f"replaced by {', '.join(self.successors)}" if self.successors else ""
        return "; ".join([*problems, *([replaced] if replaced else [])])


@dataclass
class LocalFile:
    """A local file: its digest, and those of its inputs as far as they are known."""

    path: Path
    digest: str
    holds: Mapping[str, str] = field(default_factory=dict)
    """Digests of its inputs, each with a name to show."""


def cached_files() -> list[LocalFile]:
    """Return the whole files of the cache of models."""
    cache = ModelCache()
    return [
        LocalFile(cache.path_of(entry.digest), entry.digest)
        for entry in cache.entries()
        if entry.complete
    ]


def check_files(withdrawals: "Withdrawals", files: Sequence[LocalFile]) -> list[WithdrawnFile]:
    """Return the files that were withdrawn, or contain something that was.

    A merged file need not be in the pool: the inputs of its recipe are checked as well.
    """
    digests = sorted({file.digest for file in files}.union(*(file.holds for file in files)))
    known: dict[str, CheckedFile] = {}
    for start in range(0, len(digests), MOST_CHECKED):
        checked = withdrawals.check_digests(digests[start : start + MOST_CHECKED])
        known |= {item.digest: item for item in checked}
    withdrawn = []
    for file in files:
        checked_file = known.get(file.digest)
        holds = [flag.address for flag in checked_file.flags] if checked_file else []
        for digest in file.holds:
            if (inside := known.get(digest)) is not None:
                holds += [withdrawal.address for withdrawal in inside.withdrawals]
                holds += [flag.address for flag in inside.flags]
        if checked_file is not None or holds:
            withdrawn.append(
                WithdrawnFile(
                    path=file.path,
                    digest=file.digest,
                    withdrawn=tuple(checked_file.withdrawals) if checked_file else (),
                    holds=tuple(dict.fromkeys(holds)),
                    successors=tuple(checked_file.successors) if checked_file else (),
                )
            )
    return withdrawn


def _withdrawn_words(withdrawal: Withdrawal) -> str:
    sentence = f"{withdrawal.address} was withdrawn ({withdrawal.reason})"
    return f"{sentence}: {withdrawal.explanation}" if withdrawal.explanation else sentence
