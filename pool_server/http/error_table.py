"""Status, code and text of each error of the server on the wire.

A class that is not here has the entry of its parent; an error may have a code of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pool_server import errors
from pool_server.errors import PoolError


@dataclass(frozen=True)
class ErrorEntry:
    """The outside of one class of error.

    Attributes
    ----------
    status : int
        HTTP status.
    code : str
        Stable word for programs.
    text : str
        What it means, for the documentation; also sent in place of the error's own message
        where that could show the inside of the server.
    shows_message : bool
        False where only `text` goes out.
    """

    status: int
    code: str
    text: str
    shows_message: bool = True


ERROR_TABLE: dict[type[PoolError], ErrorEntry] = {
    errors.NotAuthenticatedError: ErrorEntry(
        401, "not_authenticated", "No token, or one that is unknown, expired or revoked."
    ),
    errors.NotAllowedError: ErrorEntry(403, "not_allowed", "The token may not do this."),
    errors.TooManyRequestsError: ErrorEntry(
        429, "too_many_requests", "Too many attempts; `Retry-After` says when to try again."
    ),
    errors.MissingError: ErrorEntry(404, "not_found", "It is not there, or not for this token."),
    errors.VersionWithdrawnError: ErrorEntry(
        410, "version_withdrawn", "The version was withdrawn; its bytes are not given out any more."
    ),
    errors.KeyRefusedError: ErrorEntry(
        422, "key_refused", "No proof of holding the key, or the key was revoked."
    ),
    errors.StatementRefusedError: ErrorEntry(
        422, "statement_refused", "The signature is by no valid key, or the statement does not fit."
    ),
    errors.ConflictError: ErrorEntry(409, "conflict", "The state of the pool does not allow this."),
    errors.TermsForbidError: ErrorEntry(
        409, "terms_forbid", "The terms of use of the files forbid this."
    ),
    errors.UploadBusyError: ErrorEntry(
        409, "upload_busy", "The upload is being checked; ask for it again in a moment."
    ),
    errors.UploadClosedError: ErrorEntry(
        409, "upload_closed", "The upload is over and takes no more parts."
    ),
    errors.UploadIncompleteError: ErrorEntry(409, "upload_incomplete", "Parts are missing."),
    errors.RoundClosedError: ErrorEntry(
        409, "round_closed", "The round is over, or its deadline has passed."
    ),
    errors.RefusedError: ErrorEntry(422, "refused", "The request cannot be accepted as it is."),
    errors.QueryError: ErrorEntry(
        422, "invalid_query", "A filter, reference or cursor cannot be read."
    ),
    errors.PartMismatchError: ErrorEntry(
        422, "part_mismatch", "The part has another number, size or digest than it should."
    ),
    errors.DigestMismatchError: ErrorEntry(
        422, "digest_mismatch", "The file has another SHA-256 than was announced."
    ),
    errors.FormatRefusedError: ErrorEntry(
        422, "format_refused", "The file is not a model in a format that the pool takes."
    ),
    errors.RecipeRefusedError: ErrorEntry(
        422, "recipe_refused", "The recipe cannot be read or belongs to another file."
    ),
    errors.MergeRefusedError: ErrorEntry(
        422, "merge_refused", "The pool cannot make this merge: recipe, inputs, rights or limits."
    ),
    errors.RoundRefusedError: ErrorEntry(
        422, "round_refused", "A round cannot be held with this base, method, or deadline."
    ),
    errors.TooLargeError: ErrorEntry(413, "too_large", "More bytes than the pool takes."),
    errors.StorageFullError: ErrorEntry(507, "storage_full", "The pool has no room left."),
    errors.StorageFailedError: ErrorEntry(
        503, "storage_failed", "The pool's storage does not answer.", shows_message=False
    ),
    errors.ContentMissingError: ErrorEntry(
        500, "content_missing", "The version's file is missing in the pool's storage."
    ),
    errors.DatabaseUnavailableError: ErrorEntry(
        503, "database_unavailable", "The pool's database does not answer.", shows_message=False
    ),
    errors.WriteConflictError: ErrorEntry(
        503, "write_conflict", "Others change the same thing at this moment; try again."
    ),
    errors.StartError: ErrorEntry(503, "not_ready", "The pool is not ready.", shows_message=False),
    errors.ServerStoppingError: ErrorEntry(
        503, "stopping", "This server finishes what it was asked before, and ends."
    ),
}


def entry_of(error: PoolError) -> ErrorEntry:
    """Return the entry of an error's class, or of the nearest one above it, with its own code."""
    entry = next(ERROR_TABLE[kind] for kind in type(error).__mro__ if kind in ERROR_TABLE)
    return replace(entry, code=error.code) if error.code and entry.shows_message else entry
