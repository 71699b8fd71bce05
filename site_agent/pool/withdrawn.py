"""Models that must not be used any more: withdrawn, flagged for an input, or replaced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pool_server.wire.models.models import ModelVersionResponse
from pool_server.wire.withdrawals import MOST_CHECKED, CheckedFile, Withdrawal
from site_agent.errors import WithdrawnError

if TYPE_CHECKING:
    from site_agent.pool.resources.models import Withdrawals


def refusal_of(version: ModelVersionResponse) -> str:
    """Return why a version can no longer be downloaded; ``""`` if it can."""
    own = version.withdrawal
    if own is not None and own.effect == "refuse":
        return _withdrawn_words(own)
    for flag in version.flags:
        if flag.digest == version.digest and flag.effect == "refuse":
            return f"{version.address} is {flag.address}, which was withdrawn ({flag.reason})"
    return ""


def require_usable(version: ModelVersionResponse) -> None:
    """Raise for a version that must not be used, wherever its bytes come from.

    Raises
    ------
    WithdrawnError
        With the reason, and what to use instead.
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
        words = f"withdrawn ({version.withdrawal.reason})"
    elif version.flags:
        words = "flagged (" + ", ".join(sorted({flag.reason for flag in version.flags})) + ")"
    else:
        return ""
    return f"{words}, replaced" if version.successors else words


@dataclass(frozen=True)
class WithdrawnFile:
    """A local file that was withdrawn, or contains something that was.

    Attributes
    ----------
    holds : tuple of str
        Addresses of what it holds that was withdrawn.
    """

    path: Path
    digest: str
    withdrawn: tuple[Withdrawal, ...] = ()
    holds: tuple[str, ...] = ()
    successors: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The problems, in words."""
        problems = [_withdrawn_words(each) for each in self.withdrawn]
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


def check_files(withdrawals: Withdrawals, files: Sequence[LocalFile]) -> list[WithdrawnFile]:
    """Return the files that were withdrawn, or contain something that was.

    A merged file need not be in the pool: the inputs of its recipe are checked as well.
    """
    digests = {file.digest for file in files}
    digests |= {digest for file in files for digest in file.holds}
    known: dict[str, CheckedFile] = {}
    for some in _batches(sorted(digests)):
        known |= {each.digest: each for each in withdrawals.check_digests(some)}
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
                WithdrawnFile(
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
