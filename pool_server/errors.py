"""Everything that the pool server raises on purpose.

    PoolError
    ├── AccessError
    │   ├── NotAuthenticatedError    no token, or none that is valid
    │   ├── NotAllowedError          a valid token that may not do this
    │   ├── RightMissingError        a model that is seen but not, say, downloaded
    │   ├── SuspendedError           the site is suspended, or the user disabled
    │   ├── InvitationRefusedError   an invitation that is unknown, used, revoked or expired
    │   ├── ExportRefusedError       models that may not leave the pool in a bundle
    │   └── TooManyRequestsError     too many attempts within a short time
    ├── MissingError
    │   ├── SiteNotFoundError
    │   ├── TokenNotFoundError
    │   ├── UserNotFoundError
    │   ├── InvitationNotFoundError
    │   ├── ModelNotFoundError
    │   ├── VersionNotFoundError
    │   ├── VersionWithdrawnError    its bytes are not given out any more
    │   ├── WebhookNotFoundError     no such webhook of the caller's site
    │   ├── KeyNotFoundError         no such key of that site
    │   ├── StatementNotFoundError   the version is not signed
    │   ├── AliasNotFoundError
    │   ├── UploadNotFoundError
    │   ├── RoundNotFoundError       no such round, or one that the caller has no part in
    │   ├── ContributionNotFoundError
    │   └── MergeNotFoundError       no such merge of the caller's site
    ├── ConflictError
    │   ├── SiteExistsError
    │   ├── TokenExistsError
    │   ├── UserExistsError
    │   ├── QuotaExceededError       the site's files would take more than it may
    │   ├── LastAdminError           the last admin token is not revoked
    │   ├── ModelKindError           a model's versions are all of one kind
    │   ├── ModelDeletedError        the model was deleted; its name is not used again
    │   ├── HasDescendantsError      something in the pool was made from what is to be deleted
    │   ├── TermsForbidError         terms of use forbid a merge, or handing a file on
    │   ├── VersionStateError        the version's state does not allow it
    │   ├── AlreadyWithdrawnError    a version is withdrawn once
    │   ├── BytesWithdrawnError      these bytes were withdrawn, whatever they are called now
    │   ├── TooManyWebhooksError     the site has as many as are allowed
    │   ├── UploadBusyError          the upload is being checked at this moment
    │   ├── UploadClosedError        the upload is over: refused or expired
    │   ├── UploadIncompleteError    parts are missing
    │   ├── StatementExistsError     the version is signed, with a key that counts
    │   ├── PartsElsewhereError      the parts go to the storage, not to the server
    │   ├── TooManyMergesError       the site has too many merges under way
    │   ├── TooManyUploadsError      the site has too many open uploads
    │   ├── RoundOpenError           the round still waits for sites
    │   ├── RoundClosedError         the round takes nothing any more
    │   └── ContributionExistsError  the site has contributed something else already
    ├── RefusedError
    │   ├── SharingRefusedError      a visibility, site or right that a model cannot be given
    │   ├── QueryError               a filter, reference or cursor that cannot be read
    │   ├── LabelsRefusedError       a key of the core vocabulary with a wrong value
    │   ├── TermsRefusedError        terms of use that contradict each other
    │   ├── CardRefusedError         a card whose front matter cannot be read
    │   ├── AliasRefusedError        a name that no alias can have
    │   ├── PartMismatchError        a part of the wrong number, size or digest
    │   ├── DigestMismatchError      the whole file has another digest than announced
    │   ├── FormatRefusedError       no model file, a broken one, or one that cannot be checked
    │   ├── RecipeRefusedError       a recipe that cannot be read or is of another file
    │   ├── KeyRefusedError          no proof of holding the key, or one that was revoked
    │   ├── StatementRefusedError    a signature or statement that does not fit the version
    │   ├── SignatureRequiredError   the pool takes only what is signed
    │   ├── WithdrawalRefusedError   an effect too weak for its reason, an unfit successor
    │   ├── WebhookRefusedError      an address that is not called
    │   ├── MergeRefusedError        a merge that the pool cannot or will not make
    │   ├── RoundRefusedError        a round that cannot be held as asked
    │   ├── ContributionRefusedError a contribution that does not fit its round
    │   └── TooLargeError            more bytes than this pool takes
    ├── StorageError
    │   ├── StorageFullError         no room for the bytes
    │   ├── StorageFailedError       the disk or the object store refused
    │   └── ContentMissingError      a record whose file is gone
    ├── TransactionError
    │   ├── DatabaseUnavailableError the database does not answer at this moment
    │   └── WriteConflictError       another transaction was first
    ├── ServerStoppingError          the process finishes what it was asked before, and ends
    └── StartError
        ├── FolderBusyError          another server uses the data folder
        ├── FolderUnusableError      the data folder cannot be made or written
        ├── AddressBusyError         the port is taken
        ├── SchemaNewerError         the database belongs to a newer poolctl
        ├── SchemaOlderError         `poolctl db upgrade` has to be run first
        ├── DatabaseUnusableError    it cannot be reached, or is no database of a pool
        ├── BackupUnusableError      a backup that cannot be written, read, or trusted
        ├── PoolNotEmptyError        a backup is put back into an empty pool only
        ├── StorageSettingsError     the storage's settings are incomplete
        └── StartFailedError         anything else; the log has it

None of them knows of HTTP: `pool_server.http.error_table` gives each leaf a status and a code.
Only leaves are raised.
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
    hint : str
        What to do about it.
    details : mapping
        Values for programs.
    """

    def __init__(
        self, message: str, *, hint: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        self.message = message
        self.hint = hint
        self.details = dict(details or {})
        super().__init__(message)


class AccessError(PoolError):
    """Who asks may not."""


class NotAuthenticatedError(AccessError):
    """No token, or one that is unknown, expired or revoked."""


class NotAllowedError(AccessError):
    """A valid token whose role or site does not allow the act."""


class RightMissingError(AccessError):
    """The caller may see a model, but has not the right to this use of it."""


class SuspendedError(AccessError):
    """The site is suspended, or the user of the token disabled."""


class InvitationRefusedError(AccessError):
    """An invitation that is unknown, or that was used, revoked, or has expired."""


class TooManyRequestsError(AccessError):
    """Too many attempts within a short time; `details` has ``retry_after_s``."""


class ExportRefusedError(AccessError):
    """Some of the models may not leave the pool in a bundle; the message names each."""


class MissingError(PoolError):
    """What was asked for is not there."""


class SiteNotFoundError(MissingError):
    """No site of that name."""


class TokenNotFoundError(MissingError):
    """No token of that identifier."""


class UserNotFoundError(MissingError):
    """No user of that name at that site."""


class InvitationNotFoundError(MissingError):
    """No invitation of that identifier."""


class ModelNotFoundError(MissingError):
    """No model of that name at that site."""


class VersionNotFoundError(MissingError):
    """The model has no such version."""


class VersionWithdrawnError(MissingError):
    """The version was withdrawn for a reason for which its bytes are not given out any more."""


class WebhookNotFoundError(MissingError):
    """No webhook of that identifier that the caller may see."""


class KeyNotFoundError(MissingError):
    """The site has no such key."""


class StatementNotFoundError(MissingError):
    """The version is not signed."""


class AliasNotFoundError(MissingError):
    """The model has no such alias."""


class UploadNotFoundError(MissingError):
    """No upload of that identifier that the caller may see."""


class RoundNotFoundError(MissingError):
    """No round of that key that the caller has a part in."""


class ContributionNotFoundError(MissingError):
    """The site has not contributed to the round."""


class MergeNotFoundError(MissingError):
    """No merge of that key that the caller may see."""


class ConflictError(PoolError):
    """The act does not fit the state that the pool is in."""


class SiteExistsError(ConflictError):
    """A site of that name is there already."""


class TokenExistsError(ConflictError):
    """The site has a valid token of that name already."""


class UserExistsError(ConflictError):
    """The site has a user of that name already."""


class QuotaExceededError(ConflictError):
    """With this file the site's files would take more bytes than the site may."""


class LastAdminError(ConflictError):
    """Without its last admin token nobody could look after the pool."""


class ModelKindError(ConflictError):
    """A version of another kind than the model's earlier ones."""


class ModelDeletedError(ConflictError):
    """The model was deleted, and its name is never used again."""


class HasDescendantsError(ConflictError):
    """Something in the pool was made from what is to be deleted."""


class TermsForbidError(ConflictError):
    """The terms of use of the files forbid what was asked for."""


class VersionStateError(ConflictError):
    """A draft, quarantined or withdrawn version with which this cannot be done."""


class AlreadyWithdrawnError(ConflictError):
    """The version was withdrawn before, with an effect that is as strict."""


class BytesWithdrawnError(ConflictError):
    """These very bytes were withdrawn for a reason for which nobody shall have them."""


class TooManyWebhooksError(ConflictError):
    """The site has as many webhooks as the pool allows."""


class UploadBusyError(ConflictError):
    """The upload is being checked at this moment."""


class UploadClosedError(ConflictError):
    """The upload is over and takes no more parts."""


class StatementExistsError(ConflictError):
    """The version is signed already, with a key that still counts."""


class UploadIncompleteError(ConflictError):
    """Parts are missing."""


class PartsElsewhereError(ConflictError):
    """The pool's storage takes the parts itself."""


class TooManyUploadsError(ConflictError):
    """The site has as many open uploads as the pool allows."""


class TooManyMergesError(ConflictError):
    """The site has as many merges under way as the pool allows."""


class RoundOpenError(ConflictError):
    """The round waits for sites and cannot be finished yet."""


class RoundClosedError(ConflictError):
    """The round is over, or its deadline has passed."""


class ContributionExistsError(ConflictError):
    """A site contributes to a round once."""


class RefusedError(PoolError):
    """The request cannot be taken as it is."""


class SharingRefusedError(RefusedError):
    """A visibility, a listed site or a right that a model cannot be given."""


class QueryError(RefusedError):
    """A filter, a reference or a cursor that cannot be read."""


class LabelsRefusedError(RefusedError):
    """A key of the core vocabulary with a value that it cannot have."""


class TermsRefusedError(RefusedError):
    """Terms of use that contradict each other."""


class CardRefusedError(RefusedError):
    """A card whose front matter cannot be read, or is none."""


class AliasRefusedError(RefusedError):
    """A name that no alias can have."""


class PartMismatchError(RefusedError):
    """A part of the wrong number, size or digest."""


class DigestMismatchError(RefusedError):
    """The assembled file has another digest than was announced."""


class FormatRefusedError(RefusedError):
    """No well-formed model file, or one that could not be checked within the limits."""


class KeyRefusedError(RefusedError):
    """A key whose holder was not proved, that was revoked, or one too many."""


class StatementRefusedError(RefusedError):
    """A signature by no valid key of the site, or a statement about something else."""


class SignatureRequiredError(RefusedError):
    """A version without a signature, at a pool that demands one."""


class RecipeRefusedError(RefusedError):
    """A recipe that cannot be read, or that belongs to another file."""


class MergeRefusedError(RefusedError):
    """A merge that the pool cannot make: recipe, inputs, rights, or limits are against it."""


class WithdrawalRefusedError(RefusedError):
    """A withdrawal that cannot be made as asked."""


class WebhookRefusedError(RefusedError):
    """An address that the pool does not call: of a wrong scheme, private, or none at all."""


class RoundRefusedError(RefusedError):
    """A round of this base, method, options, sites or deadline cannot be held."""


class ContributionRefusedError(RefusedError):
    """A contribution of another base, other settings or another shape, or a broken one."""


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


class FolderBusyError(StartError):
    """Another server uses the data folder."""


class FolderUnusableError(StartError):
    """The data folder cannot be made or written."""


class BackupUnusableError(StartError):
    """A backup that cannot be written, or that is missing, damaged or of another program."""


class PoolNotEmptyError(StartError):
    """A backup is put back into an empty pool only."""


class AddressBusyError(StartError):
    """The address or port is taken or not allowed."""


class SchemaNewerError(StartError):
    """The database was written by a newer version of the program."""


class SchemaOlderError(StartError):
    """The database is empty, or was last used by an older version of the program."""


class DatabaseUnusableError(StartError):
    """The database cannot be opened or reached, or is none of a pool."""


class StorageSettingsError(StartError):
    """The settings of the storage are incomplete or contradict each other."""


class StartFailedError(StartError):
    """The server ended while it started."""
