"""Whether a model may still be used: withdrawn, flagged because of what it holds, replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pool_server.wire.models.models import ModelVersionResponse
from pool_server.wire.withdrawals import MOST_CHECKED, CheckedFile, Withdrawal
from site_agent.errors import WithdrawnError

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient


def refusal_of(version: ModelVersionResponse) -> str:
    """Return why a version's bytes are not given out any more; ``""`` if they are."""
    own = version.withdrawal
    if own is not None and own.effect == "refuse":
        return _withdrawn_words(own)
    for flag in version.flags:
        if flag.digest == version.digest and flag.effect == "refuse":
            return f"{version.address} is {flag.address}, which was withdrawn ({flag.reason})"
    return ""


def require_usable(version: ModelVersionResponse) -> None:
    """Raise for a version that nobody shall use any more, wherever its bytes come from.

    Raises
    ------
    WithdrawnError
        Names the reason, and what to use instead.
    """
    refusal = refusal_of(version)
    if refusal:
        raise WithdrawnError(
            refusal,
            hint=f"use {version.successors[0]} instead, and delete your copies"
            if version.successors
            else "delete your copies; what else holds it: poolctl models check FILES",
            code="version_withdrawn",
        )


def warning_of(version: ModelVersionResponse) -> str:
    """Return what a user of a version has to know; ``""`` for one in good standing."""
    if version.withdrawal is not None:
        problem = _withdrawn_words(version.withdrawal)
    elif version.flags:
        held = ", ".join(f"{flag.address} ({flag.reason})" for flag in version.flags)
        problem = f"{version.address} holds what was withdrawn: {held}"
    else:
        return ""
    return f"{problem}; replaced by {version.successors[0]}" if version.successors else problem


def standing_words(version: ModelVersionResponse) -> str:
    """Return a version's standing in a few words; ``""`` where all is well."""
    if version.withdrawal is not None:
        words = f"withdrawn ({version.withdrawal.reason})"
    elif version.flags:
        words = "flagged (" + ", ".join(sorted({flag.reason for flag in version.flags})) + ")"
    else:
        return ""
    return f"{words}, replaced" if version.successors else words


@dataclass(frozen=True)
class FileStanding:
    """What is wrong with a file on this machine.

    Attributes
    ----------
    withdrawn : tuple of Withdrawal
        Of the file itself.
    holds : tuple of str
        Addresses of what it holds that was withdrawn.
    successors : tuple of str
        Addresses of what replaces it.
    """

    path: Path
    digest: str
    withdrawn: tuple[Withdrawal, ...] = ()
    holds: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """What is wrong, for people."""
        problems = [_withdrawn_words(each) for each in self.withdrawn]
        if self.holds:
            problems.append(f"holds {', '.join(self.holds)}, withdrawn")
        replaced = f"replaced by {', '.join(self.successors)}" if self.successors else ""
        return "; ".join([*problems, *([replaced] if replaced else [])])


@dataclass
class LocalFile:
    """A file here: its digest, and those of what it was merged from as far as is known."""

    path: Path
    digest: str
    holds: Mapping[str, str] = field(default_factory=dict)
    """Digests of what it was merged from, and what to call each."""


def check_files(pool: PoolClient, files: Sequence[LocalFile]) -> list[FileStanding]:
    """Return those files that were withdrawn, or hold something that was.

    A merged file need not be in the pool: what its recipe names is asked for, too.

    Raises
    ------
    PoolClientError
    """
    digests = {file.digest for file in files}
    digests |= {digest for file in files for digest in file.holds}
    known: dict[str, CheckedFile] = {}
    for some in _batches(sorted(digests)):
        known |= {each.digest: each for each in pool.withdrawals.check_digests(some)}
    found = []
    for file in files:
        own = known.get(file.digest)
        holds = [flag.address for flag in own.flags] if own else []
        for digest in file.holds:
            if (inside := known.get(digest)) is not None:
                holds += [each.address for each in inside.withdrawals]
                holds += [flag.address for flag in inside.flags]
        if own is not None or holds:
            found.append(
                FileStanding(
                    path=file.path,
                    digest=file.digest,
                    withdrawn=tuple(own.withdrawals) if own else (),
                    holds=tuple(dict.fromkeys(holds)),
                    successors=tuple(own.successors) if own else (),
                )
            )
    return found


def _withdrawn_words(withdrawal: Withdrawal) -> str:
    words = f"{withdrawal.address} was withdrawn ({withdrawal.reason})"
    return f"{words}: {withdrawal.explanation}" if withdrawal.explanation else words


def _batches(digests: Sequence[str]) -> Iterator[Iterable[str]]:
    for start in range(0, len(digests), MOST_CHECKED):
        yield digests[start : start + MOST_CHECKED]
