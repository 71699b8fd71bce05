"""Map errors to exit codes and to the stable codes of ``--json``.

Other packages know no exit codes. `ERROR_TABLE` has every error that they raise on purpose; a test
proves that none is missing.
"""

import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from pydantic import ValidationError

from aggregators import errors as aggregator_errors
from cli.frame.terminal import print_json, print_labelled
from pool_server import errors as server_errors
from site_agent import errors as agent_errors


class ExitCode(IntEnum):
    """Exit codes of ``poolctl``."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    NOT_ALLOWED = 3
    NOT_FOUND = 4
    INTEGRITY = 5
    INCOMPATIBLE = 6
    CONFLICT = 7
    NETWORK = 8
    INTERRUPTED = 130


@dataclass(frozen=True)
class Outcome:
    """The program's answer to one type of error."""

    exit_code: ExitCode
    code: str
    hint: str = ""


class CliError(Exception):
    """Base of the errors of the command line; `outcome` overrides that of the type."""

    def __init__(self, message: str, outcome: Outcome | None = None) -> None:
        super().__init__(message)
        self.outcome = outcome


def incomplete(what: str, text: str, failures: Sequence[str]) -> CliError:
    """Return the error of partly failed work: a "batch" or a "study"."""
    hint = "once the reasons are mended, run it again: what is finished is kept"
    outcome = Outcome(ExitCode.INTEGRITY, f"{what}_incomplete", hint)
    return CliError("\n".join([f"{text}:", *failures]), outcome)


class UsageError(CliError):
    """Arguments that contradict each other, or lack another."""


class CancelledError(CliError):
    """The user answered no."""


class OutputExistsError(CliError):
    """A file that would be overwritten by different bytes."""


class InputMissingError(CliError):
    """A file named on the command line that is not there."""


class VerificationError(CliError):
    """Files that do not have the content they should have."""


_PATH_HINT = "check the spelling; paths count from the folder of this terminal"
_AGAIN_HINT = "run the same command again to continue"
_LOGIN_HINT = "log in with: poolctl auth login URL"
_FORMATS_HINT = "poolctl inspect FILE describes a file"

ERROR_TABLE: dict[type[BaseException], Outcome] = {
    UsageError: Outcome(ExitCode.USAGE, "usage"),
    CancelledError: Outcome(ExitCode.UNEXPECTED, "cancelled"),
    OutputExistsError: Outcome(
        ExitCode.CONFLICT, "file_exists", "replace it with --force, or give another name"
    ),
    InputMissingError: Outcome(ExitCode.NOT_FOUND, "file_not_found", _PATH_HINT),
    VerificationError: Outcome(ExitCode.INTEGRITY, "integrity"),
    KeyboardInterrupt: Outcome(ExitCode.INTERRUPTED, "interrupted", _AGAIN_HINT),
    FileNotFoundError: Outcome(ExitCode.NOT_FOUND, "file_not_found", _PATH_HINT),
    FileExistsError: Outcome(ExitCode.CONFLICT, "file_exists"),
    OSError: Outcome(ExitCode.UNEXPECTED, "system"),
    aggregator_errors.FormatError: Outcome(
        ExitCode.INTEGRITY, "format", "the file is damaged or incomplete: copy or download it again"
    ),
    aggregator_errors.UnknownFormatError: Outcome(
        ExitCode.INTEGRITY,
        "unknown_format",
        "models are dlib .svm and .dat files, poolctl's .forest files, .safetensors and .sparse",
    ),
    aggregator_errors.SiteOnlyError: Outcome(ExitCode.INTEGRITY, "site_only"),
    aggregator_errors.IncompatibleModelsError: Outcome(
        ExitCode.INCOMPATIBLE,
        "incompatible_models",
        "find models that fit with: poolctl models ls --mergeable-with FILE",
    ),
    aggregator_errors.WrongKindError: Outcome(ExitCode.INCOMPATIBLE, "incompatible_models"),
    aggregator_errors.ContributionError: Outcome(ExitCode.INCOMPATIBLE, "contribution"),
    aggregator_errors.WeightError: Outcome(ExitCode.USAGE, "weight"),
    aggregator_errors.OptionError: Outcome(
        ExitCode.USAGE, "option", "'poolctl methods METHOD' explains the options"
    ),
    aggregator_errors.UnknownMethodError: Outcome(ExitCode.USAGE, "unknown_method"),
    aggregator_errors.RecipeError: Outcome(
        ExitCode.INTEGRITY, "recipe", "'poolctl merge' writes a model's recipe: MODEL.recipe.json"
    ),
    aggregator_errors.RecipeInputMissingError: Outcome(ExitCode.NOT_FOUND, "recipe_input_missing"),
    aggregator_errors.ConversionError: Outcome(
        ExitCode.INCOMPATIBLE, "conversion", "poolctl convert --help lists the possible conversions"
    ),
    aggregator_errors.ImageArrayError: Outcome(ExitCode.INTEGRITY, "image_array"),
    aggregator_errors.FaceBoxError: Outcome(ExitCode.USAGE, "face_box"),
    aggregator_errors.InconsistentModelError: Outcome(ExitCode.INTEGRITY, "inconsistent_model"),
    agent_errors.NotLoggedInError: Outcome(ExitCode.NOT_ALLOWED, "not_logged_in", _LOGIN_HINT),
    agent_errors.ForbiddenError: Outcome(
        ExitCode.NOT_ALLOWED, "forbidden", "poolctl auth whoami shows your site and role"
    ),
    agent_errors.NotFoundError: Outcome(
        ExitCode.NOT_FOUND, "not_found", "poolctl models ls lists what the pool has"
    ),
    agent_errors.ConflictError: Outcome(ExitCode.CONFLICT, "conflict"),
    agent_errors.PoolUnreachableError: Outcome(ExitCode.NETWORK, "pool_unreachable", _AGAIN_HINT),
    agent_errors.AddressGoneError: Outcome(ExitCode.NETWORK, "address_gone"),
    agent_errors.PoolRefusedFileError: Outcome(ExitCode.INTEGRITY, "file_refused", _FORMATS_HINT),
    agent_errors.PoolRefusedRequestError: Outcome(ExitCode.USAGE, "request_refused"),
    agent_errors.PoolAnswerError: Outcome(
        ExitCode.NETWORK, "pool_answer", "poolctl env shows which pool this is"
    ),
    agent_errors.WithdrawnError: Outcome(
        ExitCode.NOT_ALLOWED, "withdrawn", "poolctl models info shows why it was withdrawn"
    ),
    agent_errors.DigestMismatchError: Outcome(ExitCode.INTEGRITY, "digest_mismatch"),
    agent_errors.ContributionWithheldError: Outcome(ExitCode.NOT_ALLOWED, "contribution_withheld"),
    agent_errors.BaseNotAcceptedError: Outcome(ExitCode.USAGE, "base_not_accepted"),
    agent_errors.SecureSumError: Outcome(
        ExitCode.INTEGRITY, "secure_sum", "poolctl secure status shows who is waited for"
    ),
    agent_errors.ReleaseRefusedError: Outcome(ExitCode.INTEGRITY, "release_refused"),
    agent_errors.TermsFileError: Outcome(
        ExitCode.USAGE, "terms_file", "poolctl models vocabulary terms lists the codes"
    ),
    agent_errors.TermsForbidError: Outcome(
        ExitCode.NOT_ALLOWED, "terms_forbid", "ask the sites that set the terms"
    ),
    agent_errors.MissingExtraError: Outcome(ExitCode.USAGE, "missing_extra"),
    agent_errors.InvalidInputError: Outcome(ExitCode.USAGE, "invalid_input"),
    agent_errors.BusyError: Outcome(
        ExitCode.CONFLICT, "busy", "wait for the other process, or choose another folder"
    ),
    agent_errors.StalePreviewError: Outcome(ExitCode.CONFLICT, "preview_stale"),
    agent_errors.AgentError: Outcome(ExitCode.INTEGRITY, "agent"),
    agent_errors.FederationError: Outcome(ExitCode.NETWORK, "federation"),
    agent_errors.UntrustedServiceError: Outcome(ExitCode.NETWORK, "federation"),
    agent_errors.SignatureError: Outcome(ExitCode.INTEGRITY, "signature_refused"),
    agent_errors.SettingsError: Outcome(ExitCode.USAGE, "settings"),
    server_errors.PoolError: Outcome(ExitCode.UNEXPECTED, "server"),
    server_errors.BackupUnusableError: Outcome(ExitCode.INTEGRITY, "backup"),
    server_errors.StartError: Outcome(ExitCode.UNEXPECTED, "server"),
    server_errors.DatabaseUnusableError: Outcome(ExitCode.INTEGRITY, "database_unusable"),
    agent_errors.AnnotationFileError: Outcome(ExitCode.INTEGRITY, "annotation_file"),
    agent_errors.ImageFileError: Outcome(ExitCode.INTEGRITY, "image_file"),
    agent_errors.VideoFileError: Outcome(ExitCode.INTEGRITY, "video_file"),
    agent_errors.TableFileError: Outcome(ExitCode.INTEGRITY, "table_file"),
    agent_errors.FaceModelError: Outcome(ExitCode.INTEGRITY, "face_model", _FORMATS_HINT),
    agent_errors.TrainingDataError: Outcome(
        ExitCode.INTEGRITY, "training_data", "poolctl dataset check FACES.XML lists the mistakes"
    ),
    agent_errors.UnsoundDataError: Outcome(
        ExitCode.INTEGRITY,
        "unsound_data",
        "'poolctl dataset check DATA' lists all; --despite-findings goes on, and is recorded",
    ),
    agent_errors.TrainingFailedError: Outcome(ExitCode.UNEXPECTED, "training_failed"),
    agent_errors.EvaluationError: Outcome(ExitCode.INCOMPATIBLE, "evaluation"),
    agent_errors.ConditioningError: Outcome(ExitCode.USAGE, "conditioning"),
    agent_errors.StudyFolderError: Outcome(
        ExitCode.INTEGRITY, "study_folder", "poolctl blink batch SESSIONS -o STUDY creates a study"
    ),
    agent_errors.ReviewFolderError: Outcome(ExitCode.INTEGRITY, "review_folder"),
    agent_errors.ReviewOutdatedError: Outcome(ExitCode.INCOMPATIBLE, "review_outdated"),
    agent_errors.ReviewActionError: Outcome(ExitCode.USAGE, "review_action"),
}

_START_EXIT_CODES = {
    "pool_not_empty": ExitCode.CONFLICT,
    "address_busy": ExitCode.CONFLICT,
    "folder_busy": ExitCode.CONFLICT,
    "folder_unusable": ExitCode.USAGE,
    "schema_newer": ExitCode.INCOMPATIBLE,
    "schema_older": ExitCode.INCOMPATIBLE,
}
"""Exit codes of the reasons for which a server does not start; the others are unexpected."""

EXTRA_OF_LIBRARY = {
    "alembic": "server",
    "boto3": "server",
    "fastapi": "server",
    "pydantic_settings": "server",
    "sqlalchemy": "server",
    "uvicorn": "server",
    "av": "vision",
    "cv2": "vision",
    "dlib": "vision",
    "matplotlib": "vision",
    "scipy": "vision",
    "starlette": "vision",
    "h5py": "gaze",
    "opacus": "gaze",
    "torch": "gaze",
    "pynwb": "nwb",
    "distributed": "cluster",
    "huggingface_hub": "hub",
}
"""The extra of the distribution that installs each optional library."""

_UNEXPECTED = Outcome(
    ExitCode.UNEXPECTED, "unexpected", "run the command again with --debug for the traceback"
)


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of an error: its own, or that of its nearest type."""
    if isinstance(error, CliError) and error.outcome is not None:
        return error.outcome
    if isinstance(error, server_errors.StartError) and error.code in _START_EXIT_CODES:
        return Outcome(_START_EXIT_CODES[error.code], error.code)
    if isinstance(error, agent_errors.SignatureError) and error.code:
        return Outcome(ExitCode.INTEGRITY, error.code)
    for ancestor in type(error).__mro__:
        if ancestor in ERROR_TABLE:
            return ERROR_TABLE[ancestor]
    return _UNEXPECTED


def report_failure(error: BaseException, command_line: Sequence[str]) -> int:
    """Print an error for the user and return the exit code."""
    options = (
        list(command_line[: command_line.index("--")])
        if "--" in command_line
        else list(command_line)
    )
    if "--debug" in options or os.environ.get("POOL_DEBUG", "") not in {"", "0"}:
        traceback.print_exception(error, file=sys.stderr)
    if hasattr(error, "format_message") and getattr(error, "exit_code", None) == 2:
        return _report_usage_error(error, as_json="--json" in options)
    error = _translate(error)
    outcome = outcome_of(error)
    message = _message_of(error, outcome)
    hint = getattr(error, "hint", "") or outcome.hint
    if hint and message.endswith(hint):
        message = message.removesuffix(hint).rstrip(" ;\n")
    _print_failure(outcome.code, message, hint, as_json="--json" in options)
    return int(outcome.exit_code)


def _translate(error: BaseException) -> BaseException:
    """Replace the error of a missing library by one that names its extra."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        library = error.name.split(".")[0]
        if library in EXTRA_OF_LIBRARY:
            return agent_errors.MissingExtraError(library, EXTRA_OF_LIBRARY[library])
    return error


def _message_of(error: BaseException, outcome: Outcome) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) and error.strerror:
        places = [str(name) for name in (error.filename, error.filename2) if name]
        return ": ".join([" -> ".join(places), error.strerror] if places else [error.strerror])
    text = str(error).strip()
    if outcome is _UNEXPECTED:
        return f"{type(error).__name__}: {text}" if text else type(error).__name__
    return text or type(error).__name__


def _print_failure(code: str, message: str, hint: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"success": False, "error": {"code": code, "message": message, "hint": hint}})
        return
    print_labelled("Error:", "31", message)
    if hint:
        print_labelled("Hint:", "36", hint)


def _report_usage_error(error: BaseException, *, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    message = str(error.format_message()) if hasattr(error, "format_message") else str(error)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()  # type: ignore[attr-defined]
        return int(ExitCode.USAGE)
    path = context.command_path if context is not None else "poolctl"
    message = _range_message(error) or message.replace("Value error, ", "").rstrip(".")
    _print_failure("usage", message, f"see {path} --help", as_json=as_json)
    return int(ExitCode.USAGE)


def _range_message(error: BaseException) -> str:
    """Return the refusal of a number outside its option's range; nothing for other errors."""
    cause = error.__cause__
    fault = cause.errors()[0] if isinstance(cause, ValidationError) else {"type": ""}
    if fault["type"] not in {"less_than_equal", "greater_than_equal"}:
        return ""
    option = getattr(error, "param", None)
    number, low, high = fault["input"], getattr(option, "min", None), getattr(option, "max", None)
    expected = f"at least {low:g}" if high is None else f"{low:g} to {high:g}"
    if high is not None and 0 < high <= 1 < float(number) <= 100 * high:
        expected += f"; {float(number):g} % is {float(number) / 100:g}"
    return f"{getattr(option, 'opts', ['the number'])[0]} {number}: expected {expected}"
