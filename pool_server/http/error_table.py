"""Which status and code each error of the server has on the wire.

A test proves that every leaf class below `PoolError` is here, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass

from pool_server import errors
from pool_server.errors import PoolError


@dataclass(frozen=True)
class ErrorEntry:
    """How one class of error looks from outside.

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
    errors.RightMissingError: ErrorEntry(
        403, "right_missing", "The model may be seen, but this use of it was not granted."
    ),
    errors.SuspendedError: ErrorEntry(
        403, "suspended", "The token's site is suspended, or its user disabled."
    ),
    errors.InvitationRefusedError: ErrorEntry(
        403, "invitation_refused", "The invitation is unknown, used, revoked or expired."
    ),
    errors.TooManyRequestsError: ErrorEntry(
        429, "too_many_requests", "Too many attempts; `Retry-After` says when to try again."
    ),
    errors.SiteNotFoundError: ErrorEntry(404, "site_not_found", "No such site."),
    errors.TokenNotFoundError: ErrorEntry(404, "token_not_found", "No such token."),
    errors.UserNotFoundError: ErrorEntry(404, "user_not_found", "No such user."),
    errors.InvitationNotFoundError: ErrorEntry(404, "invitation_not_found", "No such invitation."),
    errors.ModelNotFoundError: ErrorEntry(404, "model_not_found", "No such model."),
    errors.VersionNotFoundError: ErrorEntry(404, "version_not_found", "No such version."),
    errors.VersionWithdrawnError: ErrorEntry(
        410, "version_withdrawn", "The version was withdrawn; its bytes are not given out any more."
    ),
    errors.WebhookNotFoundError: ErrorEntry(404, "webhook_not_found", "No such webhook."),
    errors.ExportRefusedError: ErrorEntry(
        403, "export_refused", "Some of the models may not leave the pool in a bundle."
    ),
    errors.KeyNotFoundError: ErrorEntry(404, "key_not_found", "The site has no such key."),
    errors.StatementNotFoundError: ErrorEntry(
        404, "statement_not_found", "The version is not signed."
    ),
    errors.StatementExistsError: ErrorEntry(
        409, "statement_exists", "The version is signed, with a key that counts."
    ),
    errors.KeyRefusedError: ErrorEntry(
        422, "key_refused", "No proof of holding the key, or the key was revoked."
    ),
    errors.StatementRefusedError: ErrorEntry(
        422, "statement_refused", "The signature is by no valid key, or the statement does not fit."
    ),
    errors.SignatureRequiredError: ErrorEntry(
        422, "signature_required", "The pool takes only versions that are signed."
    ),
    errors.AliasNotFoundError: ErrorEntry(404, "alias_not_found", "No such alias."),
    errors.UploadNotFoundError: ErrorEntry(404, "upload_not_found", "No such upload."),
    errors.RoundNotFoundError: ErrorEntry(
        404, "round_not_found", "No such round, or none that the token's site takes part in."
    ),
    errors.ContributionNotFoundError: ErrorEntry(
        404, "contribution_not_found", "The site has not contributed to the round."
    ),
    errors.MergeNotFoundError: ErrorEntry(
        404, "merge_not_found", "No such merge, or none of the token's site."
    ),
    errors.SiteExistsError: ErrorEntry(409, "site_exists", "The site is there already."),
    errors.TokenExistsError: ErrorEntry(
        409, "token_exists", "The site has a valid token of that name."
    ),
    errors.UserExistsError: ErrorEntry(409, "user_exists", "The site has a user of that name."),
    errors.QuotaExceededError: ErrorEntry(
        409, "quota_exceeded", "The site's files would take more bytes than the site may."
    ),
    errors.LastAdminError: ErrorEntry(409, "last_admin", "The last admin token cannot be revoked."),
    errors.ModelKindError: ErrorEntry(
        409, "kind_differs", "The model's earlier versions are of another kind."
    ),
    errors.ModelDeletedError: ErrorEntry(
        409, "model_deleted", "The model was deleted; its name is not used again."
    ),
    errors.HasDescendantsError: ErrorEntry(
        409, "has_descendants", "Something in the pool was made from it."
    ),
    errors.TermsForbidError: ErrorEntry(
        409, "terms_forbid", "The terms of use of the files forbid this."
    ),
    errors.VersionStateError: ErrorEntry(
        409, "wrong_state", "The version's state does not allow this."
    ),
    errors.AlreadyWithdrawnError: ErrorEntry(
        409, "already_withdrawn", "The version is withdrawn already, as strictly."
    ),
    errors.BytesWithdrawnError: ErrorEntry(
        409, "bytes_withdrawn", "These bytes were withdrawn and are not taken again."
    ),
    errors.TooManyWebhooksError: ErrorEntry(
        409, "too_many_webhooks", "The site has too many webhooks."
    ),
    errors.UploadBusyError: ErrorEntry(
        409, "upload_busy", "The upload is being checked; ask for it again in a moment."
    ),
    errors.UploadClosedError: ErrorEntry(
        409, "upload_closed", "The upload is over and takes no more parts."
    ),
    errors.UploadIncompleteError: ErrorEntry(409, "upload_incomplete", "Parts are missing."),
    errors.PartsElsewhereError: ErrorEntry(
        409, "parts_elsewhere", "The pool's storage takes the parts; ask for their addresses."
    ),
    errors.TooManyUploadsError: ErrorEntry(
        409, "too_many_uploads", "The site has too many open uploads."
    ),
    errors.TooManyMergesError: ErrorEntry(
        409, "too_many_merges", "The site has too many merges under way."
    ),
    errors.RoundOpenError: ErrorEntry(409, "round_open", "The round still waits for sites."),
    errors.RoundClosedError: ErrorEntry(
        409, "round_closed", "The round is over, or its deadline has passed."
    ),
    errors.ContributionExistsError: ErrorEntry(
        409, "contribution_exists", "The site has contributed other bytes to this round."
    ),
    errors.SharingRefusedError: ErrorEntry(
        422, "sharing_refused", "The model cannot be shared in this way."
    ),
    errors.QueryError: ErrorEntry(
        422, "invalid_query", "A filter, reference or cursor cannot be read."
    ),
    errors.LabelsRefusedError: ErrorEntry(
        422, "labels_refused", "A key of the core vocabulary has a value that it cannot have."
    ),
    errors.TermsRefusedError: ErrorEntry(
        422, "terms_refused", "The terms of use contradict each other."
    ),
    errors.CardRefusedError: ErrorEntry(
        422, "card_refused", "The front matter of the card cannot be read."
    ),
    errors.AliasRefusedError: ErrorEntry(422, "alias_refused", "No alias can have this name."),
    errors.PartMismatchError: ErrorEntry(
        422, "part_mismatch", "The part has another number, size or digest than it should."
    ),
    errors.DigestMismatchError: ErrorEntry(
        422, "digest_mismatch", "The file has another SHA-256 than was announced."
    ),
    errors.FormatRefusedError: ErrorEntry(
        422, "format_refused", "The file is no model in a format that the pool takes."
    ),
    errors.RecipeRefusedError: ErrorEntry(
        422, "recipe_refused", "The recipe cannot be read or belongs to another file."
    ),
    errors.MergeRefusedError: ErrorEntry(
        422, "merge_refused", "The pool cannot make this merge: recipe, inputs, rights or limits."
    ),
    errors.WithdrawalRefusedError: ErrorEntry(
        422, "withdrawal_refused", "The effect is too weak for the reason, or the successor unfit."
    ),
    errors.WebhookRefusedError: ErrorEntry(
        422, "webhook_refused", "The pool does not call this address."
    ),
    errors.RoundRefusedError: ErrorEntry(
        422, "round_refused", "A round cannot be held with this base, method, or deadline."
    ),
    errors.ContributionRefusedError: ErrorEntry(
        422, "contribution_refused", "The file is no contribution that fits the round."
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
    errors.FolderBusyError: ErrorEntry(
        503, "not_ready", "The pool is not ready.", shows_message=False
    ),
    errors.FolderUnusableError: ErrorEntry(
        503, "not_ready", "The pool is not ready.", shows_message=False
    ),
    errors.BackupUnusableError: ErrorEntry(
        503, "not_ready", "The pool is not ready.", shows_message=False
    ),
    errors.PoolNotEmptyError: ErrorEntry(
        503, "not_ready", "The pool is not ready.", shows_message=False
    ),
    errors.AddressBusyError: ErrorEntry(
        503, "not_ready", "The pool is not ready.", shows_message=False
    ),
    errors.SchemaNewerError: ErrorEntry(
        503, "not_ready", "The pool is not ready.", shows_message=False
    ),
    errors.SchemaOlderError: ErrorEntry(
        503, "not_ready", "The pool is not ready.", shows_message=False
    ),
    errors.StorageSettingsError: ErrorEntry(
        503, "not_ready", "The pool is not ready.", shows_message=False
    ),
    errors.ServerStoppingError: ErrorEntry(
        503, "stopping", "This server finishes what it was asked before, and ends."
    ),
    errors.StartFailedError: ErrorEntry(
        503, "not_ready", "The pool is not ready.", shows_message=False
    ),
    errors.DatabaseUnusableError: ErrorEntry(
        503, "not_ready", "The pool is not ready.", shows_message=False
    ),
}
