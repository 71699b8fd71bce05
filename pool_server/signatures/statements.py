"""Statements of versions: whether they are signed by whom they should be, and say what is so.

A statement is checked twice: when the file is announced, so that nobody sends a gigabyte for
nothing, and in the transaction that makes the file a version, for the key may have been revoked
meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from pool_server.database.records import (
    ModelVersionRecord,
    SiteKeyRecord,
    SiteRecord,
    StatementRecord,
    UploadRecord,
    now_utc,
)
from pool_server.errors import ConflictError, MissingError, RefusedError, StatementRefusedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.settings import PoolSettings
from pool_server.signatures import repository
from pool_server.signatures.service import COMPROMISED, describe_key, import_key, read_key
from pool_server.wire.models.recipes import recipe_digest
from pool_server.wire.signatures.dsse import Envelope
from pool_server.wire.signatures.keys import PublicKey
from pool_server.wire.signatures.signatures import SignedStatement, StatementResponse
from pool_server.wire.signatures.statements import Statement, open_statement

_SHOWN = 120
# Of these a statement may be silent: nobody can tell what was not said.
_MAY_BE_SILENT = frozenset({"kind", "card_digest"})


@dataclass(frozen=True)
class Claims:
    """What a statement of a file must say, field by field.

    Attributes
    ----------
    site : SiteRecord
        Whose version it is, or is to be.
    fields : mapping
        By the names of `ModelPredicate`, and ``file_name`` and ``digest``. ``site`` is missing:
        a statement from another pool names another.
    """

    site: SiteRecord
    fields: Mapping[str, Any]

    @classmethod
    def of_upload(cls, upload: UploadRecord) -> Claims:
        """Return what the uploader says of a file."""
        recipe = upload.recipe
        inputs = [] if recipe is None else _inputs_of(recipe)
        return cls(
            upload.site,
            {
                "name": upload.model_name,
                "file_name": upload.file_name,
                "digest": upload.digest,
                "size_bytes": upload.size_bytes,
                "description": upload.description,
                "labels": dict(upload.labels),
                "metrics": dict(upload.metrics),
                "terms": {(each["code"], each.get("detail", "")) for each in upload.terms or ()},
                "card_digest": text_digest(upload.card),
                "recipe_digest": None if recipe is None else recipe_digest(recipe),
                "parents": tuple(each for each in inputs if each != upload.digest),
            },
        )

    @classmethod
    def of_version(cls, version: ModelVersionRecord) -> Claims:
        """Return what the pool has of a version, which was loaded as a whole."""
        return cls(
            version.model.site,
            {
                "name": version.model.name,
                "file_name": version.file_name,
                "digest": version.digest,
                "size_bytes": version.size_bytes,
                "kind": version.kind,
                "description": version.description,
                "labels": {each.key: each.value for each in version.labels},
                "metrics": {each.name: each.value for each in version.metrics},
                "terms": {(each.code, each.detail) for each in version.terms if not each.inherited},
                "card_digest": text_digest(version.card),
                "recipe_digest": None
                if version.recipe is None
                else recipe_digest(version.recipe.document),
                "parents": tuple(dict.fromkeys(each.parent_digest for each in version.parents)),
            },
        )

    def difference(self, statement: Statement, site: str, *, is_import: bool) -> str:
        """Say where a statement by `site` differs; empty where it does not."""
        said = statement.predicate
        stated: dict[str, Any] = {
            **said.model_dump(),
            "file_name": statement.file_name,
            "digest": statement.digest,
            "terms": {(each.code, each.detail) for each in said.terms},
        }
        for name, expected in {"site": site, **self.fields}.items():
            found = stated[name]
            if name in _MAY_BE_SILENT and not found:
                continue
            if name == "card_digest" and is_import:
                # A card may be written anew after it was signed.
                continue
            if name == "terms" and is_import and found <= expected:
                # An imported version brings what it had inherited where it comes from.
                continue
            if found != expected:
                return f"signed was {name} {_short(found)}, expected {_short(expected)}"
        return ""


def require_signature(settings: PoolSettings, upload: UploadRecord) -> None:
    """Raise `RefusedError` for an upload without one, at a pool that demands it."""
    if settings.require_signatures and upload.statement is None:
        raise RefusedError(
            f"this pool takes only signed versions; {upload.file_name} comes without a signature",
            code="signature_required",
            hint="Make and register a key (`poolctl keys create`, `poolctl keys register`); "
            "uploads are then signed by themselves.",
        )


def require_signed(session: Session, settings: PoolSettings, version: ModelVersionRecord) -> None:
    """Raise unless a version may be shown to other sites as far as its signature goes.

    Raises
    ------
    RefusedError
        It has none, at a pool that demands signatures.
    """
    if settings.require_signatures and repository.find_statement(session, version.id) is None:
        site = version.model.site.name
        address = f"{site}/{version.model.name}@{version.number}"
        raise RefusedError(
            f"this pool shows others only signed versions; {address} is not signed",
            code="signature_required",
            hint=f"{site} signs it with `poolctl keys sign {address}`; publish it then.",
        )


def check_upload(session: Session, upload: UploadRecord) -> None:
    """Raise unless the statement that an upload brings, if it brings one, holds."""
    if upload.statement is not None:
        signed = SignedStatement.model_validate(upload.statement)
        _check(session, signed, Claims.of_upload(upload))


def attach_upload(
    session: Session, caller: Caller, version: ModelVersionRecord, upload: UploadRecord
) -> None:
    """Give a new version the statement that its upload brought."""
    if upload.statement is None:
        return
    signed = SignedStatement.model_validate(upload.statement)
    claims = Claims.of_upload(upload)
    claims = Claims(claims.site, {**claims.fields, "kind": version.kind})
    _attach(session, caller, version, signed, claims)


def attach_if_fitting(
    session: Session, caller: Caller, version: ModelVersionRecord, upload: UploadRecord
) -> bool:
    """Give a known version without a statement the one of an upload of the same file.

    Nothing happens, and False is returned, when the statement says other things than the version
    does: to send a file again is no error, and changes nothing of the version.
    """
    if upload.statement is None or repository.find_statement(session, version.id) is not None:
        return False
    signed = SignedStatement.model_validate(upload.statement)
    claims = Claims.of_version(version)
    repository.lock_keys(session, version.model.site_id)
    try:
        _check(session, signed, claims)
    except StatementRefusedError:
        return False
    _attach(session, caller, version, signed, claims)
    return True


def add_statement(
    session: Session,
    caller: Caller,
    version: ModelVersionRecord,
    signed: SignedStatement,
    *,
    is_changed: bool = False,
) -> StatementResponse:
    """Sign an existing version, or sign it again: after its key was revoked, or it was changed.

    Raises
    ------
    ConflictError
        It is signed with a key that counts; the same statement again is no error.
    """
    caller.require_upload_to(version.model.site.name)
    # One after the other, for the same reason as changes of the keys.
    repository.lock_keys(session, version.model.site_id)
    known = repository.find_statement(session, version.id)
    if known is not None:
        if not is_changed and known.envelope == signed.envelope.model_dump(mode="json"):
            return describe_statement(version, known)
        if not is_changed and known.key.revoked_at is None:
            raise ConflictError(
                f"the version was signed on {known.created_at:%Y-%m-%d} with key {known.key_id}",
                code="statement_exists",
                hint="Revoke that key first, if it is not to count any more.",
            )
        session.delete(known)
        session.flush()
    _attach(session, caller, version, signed, Claims.of_version(version))
    attached = repository.find_statement(session, version.id)
    assert attached is not None
    return describe_statement(version, attached)


def get_statement(session: Session, version: ModelVersionRecord) -> StatementResponse:
    """Return what was signed of a version."""
    found = repository.find_statement(session, version.id)
    if found is None:
        site = version.model.site.name
        raise MissingError(
            f"{site}/{version.model.name}@{version.number} is not signed",
            code="statement_not_found",
            hint=f"{site} can still do so: "
            f"`poolctl keys sign {site}/{version.model.name}@{version.number}`.",
        )
    return describe_statement(version, found)


def describe_statement(version: ModelVersionRecord, found: StatementRecord) -> StatementResponse:
    return StatementResponse(
        address=f"pool://{version.model.site.name}/{version.model.name}@{version.number}",
        digest=version.digest,
        envelope=Envelope.model_validate(found.envelope),
        key=describe_key(found.key),
        origin=found.origin or None,
        accepted_at=found.created_at,
    )


def text_digest(text: str | None) -> str | None:
    return hashlib.sha256(text.encode()).hexdigest() if text else None


def _attach(
    session: Session,
    caller: Caller,
    version: ModelVersionRecord,
    signed: SignedStatement,
    claims: Claims,
) -> None:
    checked = _check(session, signed, claims)
    foreign = signed.foreign_key
    if foreign is None:
        key_id, origin = checked.key_id, ""
    else:
        record = import_key(session, caller, claims.site, foreign, checked)
        key_id, origin = record.id, foreign.origin
    session.add(
        StatementRecord(
            version_id=version.id,
            site_id=claims.site.id,
            key_id=key_id,
            origin=origin,
            envelope=signed.envelope.model_dump(mode="json"),
            created_at=now_utc(),
        )
    )
    subject = f"{claims.site.name}/{version.model.name}@{version.number}"
    record_act(session, caller, "version.sign", subject, key_id=key_id, origin=origin)
    session.flush()


def _check(session: Session, signed: SignedStatement, claims: Claims) -> PublicKey:
    """Return the key that made a statement which holds."""
    if signed.foreign_key is None:
        key = _own_key(session, signed.envelope, claims.site)
        said_by = claims.site.name
    else:
        key = read_key(signed.foreign_key.public_key)
        said_by = signed.foreign_key.origin.partition("@")[0]
        known = repository.find_key(session, claims.site.id, key.key_id)
        if known is not None and known.revocation == COMPROMISED:
            raise _revoked(known)
    try:
        statement = open_statement(signed.envelope, key)
    except ValueError as error:
        raise StatementRefusedError(str(error), hint=_HINT) from error
    is_import = signed.foreign_key is not None
    if difference := claims.difference(statement, said_by, is_import=is_import):
        raise StatementRefusedError(
            f"the signed statement is about something else: {difference}",
            hint="Sign what is uploaded; `poolctl upload` does so by itself.",
        )
    return key


_HINT = "Sign again with a key of the site; `poolctl keys ls` shows which those are."


def _own_key(session: Session, envelope: Envelope, site: SiteRecord) -> PublicKey:
    """Return the registered key that an envelope names."""
    named = envelope.key_ids()
    keys = [each for each in repository.list_keys(session, site.id) if not each.origin]
    fitting = [each for each in keys if each.id in named or not named]
    valid = [each for each in fitting if each.revoked_at is None]
    if fitting and not valid:
        raise _revoked(fitting[0])
    for each in valid:
        key = PublicKey.from_text(each.public_key)
        if len(valid) == 1 or _signed_with(envelope, key):
            return key
    raise StatementRefusedError(
        f"site {site.name!r} has not registered the key {(named or ('?',))[0][:16]}... "
        "that this was signed with",
        hint="Register it with `poolctl keys register`, or upload with --no-sign.",
    )


def _signed_with(envelope: Envelope, key: PublicKey) -> bool:
    try:
        return envelope.signed_by([key]) is not None
    except ValueError:
        return False


def _revoked(key: SiteKeyRecord) -> StatementRefusedError:
    return StatementRefusedError(
        f"key {key.id[:16]}... of site {key.site.name!r} was revoked on "
        f"{key.revoked_at:%Y-%m-%d} as {key.revocation}",
        hint="Make and register a new one: `poolctl keys create --replace`, "
        "`poolctl keys register`.",
    )


def _inputs_of(recipe: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(str(each["digest"]) for each in recipe["inputs"]))


def _short(value: object) -> str:
    text = repr(sorted(value) if isinstance(value, set) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
