"""All errors that the pool server raises on purpose.

A class is there where something catches it, where a client acts on its code, or where many
places raise it; other cases are instances of their parent with a `code` of their own. They reach
the caller as they are, so functions of the server do not list their errors.
"""

from collections.abc import Mapping
from typing import ClassVar


class PoolError(Exception):
    """Root of all errors of the server; the text of a class is part of the API's description.

    `message` names the value found and the one expected, and may be shown to the caller; `hint` is
    the remedy. `code` is a stable word for programs, by default the one of the class, `details`
    are values for them. `shows_message` is False where the message could show the inside of the
    server: then the text of the class is sent.
    """

    status: ClassVar[int] = 500
    shows_message: ClassVar[bool] = True
    code: str = "internal_error"

    def __init_subclass__(
        cls, *, status: int = 0, code: str = "", shows_message: bool = True
    ) -> None:
        cls.status = status or cls.status
        cls.code = code or cls.code
        cls.shows_message = shows_message and cls.shows_message

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        hint: str = "",
        details: Mapping[str, object] | None = None,
    ) -> None:
        self.message = message
        self.code = code or self.code
        self.hint = hint
        self.details = dict(details or {})
        super().__init__(message)


class NotAuthenticatedError(PoolError, status=401, code="not_authenticated"):
    """No token, or one that is unknown, expired or revoked."""


class SignOnRefusedError(NotAuthenticatedError, code="sign_on_refused"):
    """The answer of a sign-on's provider is forged, stale, or meant for somebody else."""


class ProviderFailedError(PoolError, status=503, code="provider_failed"):
    """The provider of a sign-on does not answer, or not as its protocol demands."""


class NotAllowedError(PoolError, status=403, code="not_allowed"):
    """The token may not do this."""


class TooManyRequestsError(PoolError, status=429, code="too_many_requests"):
    """Too many attempts; `Retry-After` says when to try again."""


class MissingError(PoolError, status=404, code="not_found"):
    """It is not there, or not for this token."""


class VersionWithdrawnError(MissingError, status=410, code="version_withdrawn"):
    """The version was withdrawn; its file can no longer be downloaded."""


class ConflictError(PoolError, status=409, code="conflict"):
    """The state of the pool does not allow this."""


class TermsForbidError(ConflictError, code="terms_forbid"):
    """The terms of use of the files forbid this."""


class UploadBusyError(ConflictError, code="upload_busy"):
    """The upload is being checked; ask for it again in a moment."""


class UploadClosedError(ConflictError, code="upload_closed"):
    """The upload is over and takes no more parts."""


class UploadIncompleteError(ConflictError, code="upload_incomplete"):
    """Parts are missing."""


class RoundClosedError(ConflictError, code="round_closed"):
    """The round is over, or its deadline has passed."""


class RefusedError(PoolError, status=422, code="refused"):
    """The request cannot be accepted as it is."""


class InvalidRequestError(RefusedError, code="invalid_request"):
    """A field of the request is missing, unknown or not as described."""


class QueryError(RefusedError, code="invalid_query"):
    """A filter, reference or cursor cannot be read."""


class PartMismatchError(RefusedError, code="part_mismatch"):
    """The part has another number, size or digest than it should."""


class DigestMismatchError(RefusedError, code="digest_mismatch"):
    """The file has another SHA-256 than was announced."""


class FormatRefusedError(RefusedError, code="format_refused"):
    """The file is not a model in a format that the pool takes."""


class KeyRefusedError(RefusedError, code="key_refused"):
    """No proof of holding the key, or the key was revoked."""


class StatementRefusedError(RefusedError, code="statement_refused"):
    """The signature is by no valid key, or the statement does not fit."""


class RecipeRefusedError(RefusedError, code="recipe_refused"):
    """The recipe cannot be read or belongs to another file."""


class MergeRefusedError(RefusedError, code="merge_refused"):
    """The pool cannot make this merge: recipe, inputs, rights or limits."""


class RoundRefusedError(RefusedError, code="round_refused"):
    """A round cannot be held with this base, method, or deadline."""


class TooLargeError(RefusedError, status=413, code="too_large"):
    """More bytes than the pool takes."""


class StorageError(PoolError):
    """Model files cannot be written or found."""


class StorageFullError(StorageError, status=507, code="storage_full"):
    """The pool has no room left."""


class StorageFailedError(StorageError, status=503, code="storage_failed", shows_message=False):
    """The pool's storage does not answer."""


class ContentMissingError(StorageError, status=500, code="content_missing"):
    """The version's file is missing in the pool's storage."""


class TransactionError(PoolError):
    """The database could not finish the transaction; a later attempt may succeed."""


class DatabaseUnavailableError(
    TransactionError, status=503, code="database_unavailable", shows_message=False
):
    """The pool's database does not answer."""


class WriteConflictError(TransactionError, status=503, code="write_conflict"):
    """Others change the same thing at this moment; try again."""


class ServerBusyError(PoolError, status=503, code="too_busy"):
    """The server is busy; `Retry-After` says when to try again."""


class ClientVersionError(PoolError, status=426, code="client_too_old"):
    """The client speaks a version of the API that this pool does not."""


class ServerStoppingError(PoolError, status=503, code="stopping"):
    """This server finishes earlier requests, and ends."""


class StartError(PoolError, status=503, code="not_ready", shows_message=False):
    """The pool is not ready."""


class BackupUnusableError(StartError):
    """A backup that cannot be written, or that is missing, damaged or of another program."""


class DatabaseUnusableError(StartError):
    """The database cannot be opened or reached, or does not belong to a pool."""


class InternalError(PoolError):
    """Something unexpected happened; the pool's log has the details."""
