"""The errors that `site_agent` raises on purpose; all derive from `SiteAgentError`.

None of them knows of exit codes; `cli/frame/errors.py` maps the types.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aggregators.whole_file import is_disk_full


class SiteAgentError(Exception):
    """Root of all errors of this package.

    `hint`: the remedy; may be empty.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.hint = hint
        super().__init__(message)


class InvalidInputError(SiteAgentError):
    """A request that cannot be met: a name, a key, a card, a camera, a plan or a folder."""


@contextmanager
def writing_to(
    place: Path | str, refusal: type[SiteAgentError] = InvalidInputError
) -> Iterator[None]:
    """Raise `refusal` with the name of the file or folder that cannot be written."""
    try:
        yield
    except OSError as error:
        # A full disk stops files that are written elsewhere before they become the named one.
        where = place if is_disk_full(error) else error.filename or place
        reason = error.strerror or error
        raise refusal(f"{where}: cannot be written: {reason}") from error


class BusyError(SiteAgentError):
    """Another process is at work in the same folder."""


class StalePreviewError(SiteAgentError):
    """The content to send differs from its preview; nothing was sent."""


class AgentError(SiteAgentError):
    """An agent cannot use its workspace or its files."""


class AnnotationFileError(SiteAgentError):
    """An annotation file, or an image that it names, cannot be used.

    Attributes
    ----------
    path : Path
        The annotation file.
    line : int
        Line of it that is at fault, 0 where the whole file is.
    problem : str
        The actual and the expected content.
    """

    def __init__(self, path: Path, line: int, problem: str) -> None:
        self.path = path
        self.line = line
        self.problem = problem
        place = f"{path}, line {line}" if line else f"{path}"
        super().__init__(f"{place}: {problem}")


class SettingsError(SiteAgentError, ValueError):
    """A setting that does not exist, or a value of the wrong type."""


class PoolClientError(SiteAgentError):
    """Root of the errors between a site and its pool.

    `code`: the pool's own code (``"upload_busy"``); empty where it gave none.
    """

    def __init__(self, message: str, *, hint: str = "", code: str = "") -> None:
        self.code = code
        super().__init__(message, hint=hint)


class NotLoggedInError(PoolClientError):
    """No pool or token is known, or the pool does not accept the token."""


class ForbiddenError(PoolClientError):
    """The token's role or site does not allow this."""


class NotFoundError(PoolClientError):
    """The pool, or the cache when offline, does not have it."""


class ConflictError(PoolClientError):
    """It exists already, or exceeds a quota."""


class PoolUnreachableError(PoolClientError):
    """The pool does not answer after several attempts; can be tried again."""


class AddressGoneError(PoolUnreachableError):
    """The storage does not have the file of an address."""


class PoolRefusedFileError(PoolClientError):
    """The pool refused a file: not the announced content, or not a known model format."""


class PoolRefusedRequestError(PoolClientError):
    """The pool refuses a request: a name, a label, a filter."""


class PoolAnswerError(PoolClientError):
    """An answer that does not follow the pool's API: another program, or another version."""


class WithdrawnError(PoolClientError):
    """A model that was withdrawn and must no longer be used."""


class DigestMismatchError(PoolClientError):
    """Bytes with another digest than expected."""


class SignatureError(PoolClientError):
    """A signature that is missing, invalid, or made with a key that is not trusted."""


class ContributionWithheldError(SiteAgentError):
    """The rules of this site forbid a contribution to a round; gives all reasons."""

    def __init__(self, round_id: str, reasons: Iterable[str], *, hint: str = "") -> None:
        lines = [f"this site does not contribute to round {round_id}:", *reasons]
        super().__init__("\n  ".join(lines), hint=hint)


class BaseNotAcceptedError(ContributionWithheldError):
    """The base of a round cannot be accounted for, and nobody has accepted it here.

    `digest`: of the base, by which it can be accepted once.
    """

    def __init__(self, round_id: str, reasons: Iterable[str], *, digest: str, hint: str) -> None:
        self.digest = digest
        super().__init__(round_id, reasons, hint=hint)


class SecureSumError(SiteAgentError):
    """A secure sum that cannot go on, or does not verify."""

    def __init__(self, faults: tuple[Any, ...], *, hint: str = "") -> None:
        self.faults = faults
        """`site_agent.secure.session.Fault`: the phase, and the party at fault if known."""
        super().__init__("; ".join(str(fault) for fault in faults), hint=hint)


class FederationError(SiteAgentError):
    """Live rounds cannot go on: no answer, a refusal, too few sites, or rounds without a result."""


class UntrustedServiceError(FederationError):
    """A live service's certificate, or this kit's, is of another authority."""


class ReleaseRefusedError(SiteAgentError):
    """An export of a model that is none, is damaged, or contradicts itself."""


class MissingExtraError(SiteAgentError):
    """A part of the program that needs libraries which are not installed.

    Attributes
    ----------
    library, extra : str
        The library that is missing, and the extra of the distribution that brings it.
    """

    def __init__(self, library: str, extra: str) -> None:
        self.library = library
        self.extra = extra
        super().__init__(
            f"this needs the library {library!r}, which is not installed; "
            f'install it with: pip install "poolctl[{extra}]"'
        )


class ImageFileError(SiteAgentError):
    """A file that cannot be read as an image; names the file and the reason."""


class VideoFileError(SiteAgentError):
    """A video without a readable frame: missing, empty, without picture, unknown codec."""


class FaceModelError(SiteAgentError):
    """A file that is not the requested face model; names the actual and the expected kind."""


class LinesError(SiteAgentError):
    """A file, or a data set, with lines that cannot be used.

    `problems`: pairs of a line, counted from 1, and a text, or the text of one that is about the
    whole file, as line 0 is.
    """

    _MOST_SHOWN = 12

    def __init__(
        self, path: Path | None, problems: str | Iterable[tuple[int, str]], *, hint: str = ""
    ) -> None:
        self.path = path
        self.problems = ((0, problems),) if isinstance(problems, str) else tuple(problems)
        place = str(path) if path else "the data set"
        lines = [
            f"{place}, line {line}: {text}" if line else f"{place}: {text}"
            for line, text in self.problems[: self._MOST_SHOWN]
        ]
        if (more := len(self.problems) - self._MOST_SHOWN) > 0:
            lines.append(f"... and {more} more of this kind")
        super().__init__("\n".join([*lines, *([hint] if hint else [])]), hint=hint)


class UnsoundDataError(SiteAgentError):
    """Data with faults that would spoil models and scores."""

    def __init__(self, count: int, faults: Iterable[str]) -> None:
        number = "1 finding" if count == 1 else f"{count} findings"
        super().__init__("\n".join([f"{number} in the data must be mended:", *faults]))


class TrainingDataError(LinesError):
    """A data set cannot be trained on as it is."""


class TrainingFailedError(SiteAgentError):
    """The training process ended without a model."""


class EvaluationError(SiteAgentError):
    """A model cannot be scored on a data set: nothing to compare with, or parts that differ."""


class TableFileError(LinesError):
    """A table of trials, pulses, eye aspect ratios, times or sessions that cannot be used."""


class ConditioningError(SiteAgentError):
    """Conditioning measures cannot be computed: settings, trials or trace do not fit."""


class ReviewFolderError(SiteAgentError):
    """A folder that cannot be reviewed: no result of an analysis, or a damaged review."""


class ReviewOutdatedError(SiteAgentError):
    """Corrections, a video or a model that belong to another result than the one that is there."""


class ReviewActionError(SiteAgentError):
    """A reviewer's action that does not apply to the present blinks."""


class StudyFolderError(SiteAgentError):
    """A folder that holds no sessions of a study, or one that cannot become a study's folder."""


class TermsFileError(TableFileError):
    """A file with terms of use that cannot be read; names every bad line."""


class TermsForbidError(SiteAgentError):
    """Terms of use forbid a merge.

    `problems`: the objection of each term.
    """

    def __init__(self, what: str, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join([f"{what}:", *(f"  {problem}" for problem in self.problems)]))
