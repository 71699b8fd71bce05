"""Everything that the pool server raises on purpose.

A class is there where something catches it, where a client acts on its code, or where many
places raise it; other cases are instances of their parent with a `code` of their own. None of
them knows of HTTP: `pool_server.http.error_table` gives each class its status, code and text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class PoolError(Exception):
    """Root of all errors of the server.

    Parameters
    ----------
    message : str
        What was found and what was expected; may be shown to the caller.
    code : str
        Stable word for programs; by default the one of the class.
    hint : str
        What to do about it.
    details : mapping
        Values for programs.
    """

    code = ""

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        hint: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self.message = message
        self.code = code
        self.hint = hint
        self.details = dict(details or {})
        super().__init__(message)


class NotAuthenticatedError(PoolError):
    """No token, or one that is unknown, expired or revoked."""


class NotAllowedError(PoolError):
    """A valid token whose role or site does not allow the act."""


class TooManyRequestsError(PoolError):
    """Too many attempts within a short time; `details` has ``retry_after_s``."""


class MissingError(PoolError):
    """The pool does not have it, or the caller may not know that it has."""


class VersionWithdrawnError(MissingError):
    """The version was withdrawn for a reason for which its bytes are not given out any more."""


class ConflictError(PoolError):
    """The act does not fit the state that the pool is in."""


class TermsForbidError(ConflictError):
    """The terms of use of the files forbid what was asked for."""


class UploadBusyError(ConflictError):
    """The upload is being checked at this moment."""


class UploadClosedError(ConflictError):
    """The upload is over and takes no more parts."""


class UploadIncompleteError(ConflictError):
    """Parts are missing."""


class RoundClosedError(ConflictError):
    """The round is over, or its deadline has passed."""


class RefusedError(PoolError):
    """The request cannot be taken as it is."""


class QueryError(RefusedError):
    """A filter, a reference or a cursor that cannot be read."""


class PartMismatchError(RefusedError):
    """A part of the wrong number, size or digest."""


class DigestMismatchError(RefusedError):
    """The assembled file has another digest than was announced."""


class FormatRefusedError(RefusedError):
    """Not a well-formed model file, or one that could not be checked within the limits."""


class KeyRefusedError(RefusedError):
    """A key whose holder was not proved, that was revoked, or one too many."""


class StatementRefusedError(RefusedError):
    """A signature by no valid key of the site, or a statement about something else."""


class RecipeRefusedError(RefusedError):
    """A recipe that cannot be read, or that belongs to another file."""


class MergeRefusedError(RefusedError):
    """A merge that the pool cannot make: recipe, inputs, rights, or limits are against it."""


class RoundRefusedError(RefusedError):
    """A round of this base, method, options, sites or deadline cannot be held."""


class TooLargeError(RefusedError):
    """More bytes than this pool takes."""


class StorageError(PoolError):
    """Model files cannot be written or found."""


class StorageFullError(StorageError):
    """There is no room for the bytes."""


class StorageFailedError(StorageError):
    """The disk or the object store refused to read or write."""


class ContentMissingError(StorageError):
    """A version's file is gone."""


class TransactionError(PoolError):
    """The database could not do what it was asked to; it may a moment later."""


class DatabaseUnavailableError(TransactionError):
    """The database is gone, starting, overloaded or out of room."""


class WriteConflictError(TransactionError):
    """Another transaction took the same name or number, or holds the same rows."""


class ServerStoppingError(PoolError):
    """The process finishes what it was asked before, and ends."""


class StartError(PoolError):
    """The server cannot start."""


class BackupUnusableError(StartError):
    """A backup that cannot be written, or that is missing, damaged or of another program."""


class DatabaseUnusableError(StartError):
    """The database cannot be opened or reached, or does not belong to a pool."""
