"""Statements of versions, and their routes: the pool accepts only valid ones.

A statement is checked twice: when the file is announced, to save sending a gigabyte for nothing,
and in the transaction that publishes the file, because the key may have been revoked meanwhile. It
must be signed with a key of the site and match the upload; `pool_server.wire.signatures.statements`
explains the compared fields.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
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
from pool_server.http.identity import Caller, Uploader, needs
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.registry.service import VersionToChange, VersionToRead
from pool_server.settings import PoolSettings
from pool_server.signatures import keys
from pool_server.wire.merges import recipe_digest
from pool_server.wire.signatures import SignedStatement, StatementResponse
from pool_server.wire.signatures.keys import Envelope, PublicKey
from pool_server.wire.signatures.statements import (
    VersionFacts,
    differences,
    open_statement,
    text_digest,
)

router = APIRouter(
    prefix="/models/{site}/{name}/versions/{reference}/statement", tags=["signatures"]
)


@router.get(
    "", dependencies=[needs("models:read")], summary="Get the signed statement of a version"
)
def get_statement(session: ReadingSession, version: VersionToRead) -> StatementResponse:
    """Return the site's signed statement about a version, and the key to verify it.

    The reader decides whether to trust the key: `poolctl` remembers a site's first key and refuses
    others.
    """
    statement = keys.find_statement(session, version.id)
    if statement is None:
        raise MissingError(
            f"{version.subject} is not signed",
            code="statement_not_found",
            hint=f"{version.model.site.name} can still do so: `poolctl models sign "
            f"{version.subject}`.",
        )
    return describe_statement(version, statement)


@router.put("", dependencies=[needs("models:write")], summary="Sign a published version")
def add_statement(
    caller: Uploader, session: WritingSession, version: VersionToChange, request: SignedStatement
) -> StatementResponse:
    """Add a statement to a version that has none or only an invalid one.

    For versions older than the site's key, those made by the pool itself, and those that were
    changed or signed with a revoked key.
    """
    caller.require_upload_to(version.model.site.name)
    # Locked, so that the key cannot be revoked meanwhile.
    keys.lock_keys(session, version.model.site_id)
    known = keys.find_statement(session, version.id)
    if known is not None:
        holds = _describes(known, version)
        if holds and known.envelope == request.envelope.model_dump(mode="json"):
            return describe_statement(version, known)
        if holds and known.key.revoked_at is None:
            raise ConflictError(
                f"the version was signed on {known.created_at:%Y-%m-%d} with key {known.key_id}",
                code="statement_exists",
                hint="Revoke that key first, if its signature must no longer count.",
            )
        # Flushed before the insertion, because a version has one statement at a time.
        session.delete(known)
        session.flush()
    _attach(session, caller, version, request, facts_of_version(version, request.origin))
    attached = keys.find_statement(session, version.id)
    assert attached is not None
    return describe_statement(version, attached)


def facts_of_upload(upload: UploadRecord, kind: str = "") -> VersionFacts:
    """Return the uploader's description of a file, with the kind that the check found."""
    origin = None
    if upload.statement is not None:
        origin = SignedStatement.model_validate(upload.statement).origin
    recipe: Mapping[str, Any] | None = upload.recipe
    inputs = [] if recipe is None else [str(source["digest"]) for source in recipe["inputs"]]
    return VersionFacts(
        site=_signing_site(upload.site.name, origin),
        name=upload.model_name,
        file_name=upload.file_name,
        digest=upload.digest,
        size_bytes=upload.size_bytes,
        kind=kind,
        description=upload.description,
        labels=dict(upload.labels),
        metrics=dict(upload.metrics),
        own_terms=frozenset((term["code"], term.get("detail", "")) for term in upload.terms or ()),
        inherited_terms=frozenset(),
        card_digest=text_digest(upload.card),
        recipe_digest=None if recipe is None else recipe_digest(recipe),
        parents=tuple(dict.fromkeys(digest for digest in inputs if digest != upload.digest)),
        terms_are_settled=origin is not None,
        is_import=origin is not None,
    )


def facts_of_version(version: ModelVersionRecord, origin: str | None = None) -> VersionFacts:
    """Return the pool's description of a version, which must be loaded as a whole.

    `origin` is ``SITE@POOL``, the place where an imported version was signed.
    """
    recipe = version.recipe
    return VersionFacts(
        site=_signing_site(version.model.site.name, origin),
        name=version.model.name,
        file_name=version.file_name,
        digest=version.digest,
        size_bytes=version.size_bytes,
        kind=version.kind,
        description=version.description,
        labels={label.key: label.value for label in version.labels},
        metrics={metric.name: metric.value for metric in version.metrics},
        own_terms=frozenset((t.code, t.detail) for t in version.terms if not t.inherited),
        inherited_terms=frozenset((t.code, t.detail) for t in version.terms if t.inherited),
        card_digest=text_digest(version.card),
        recipe_digest=None if recipe is None else recipe_digest(recipe.document),
        parents=tuple(dict.fromkeys(parent.parent_digest for parent in version.parents)),
        is_import=origin is not None,
    )


def require_signature(settings: PoolSettings, upload: UploadRecord) -> None:
    """Raise `RefusedError` for an unsigned upload if the pool demands signatures."""
    if settings.require_signatures and upload.statement is None:
        raise RefusedError(
            f"this pool accepts only signed versions; {upload.file_name} has no signature",
            code="signature_required",
            hint="Create and register a key (`poolctl keys create`); "
            "uploads are then signed automatically.",
        )


def require_signed(session: Session, settings: PoolSettings, version: ModelVersionRecord) -> None:
    """Raise if the pool demands signatures and a version to publish has none."""
    if settings.require_signatures and keys.find_statement(session, version.id) is None:
        site = version.model.site.name
        address = f"{site}/{version.model.name}@{version.number}"
        raise RefusedError(
            f"this pool publishes only signed versions; {address} is not signed",
            code="signature_required",
            hint=f"{site} signs it with `poolctl models sign {address}`; publish it then.",
        )


def require_resigned(version: ModelVersionRecord, signed: SignedStatement | None) -> None:
    """Raise `RefusedError` if a change of a signed version comes without a new signature.

    Otherwise readers would find that the version no longer matches its statement, and refuse it.
    """
    if version.statement is not None and signed is None:
        raise RefusedError(
            "the version is signed, and the signature covers this change",
            code="signature_required",
            hint="`poolctl models` signs it again, on the machine that has the site's key.",
        )


def check_upload(session: Session, upload: UploadRecord) -> None:
    """Raise if an upload has an invalid statement."""
    if upload.statement is not None:
        signed = SignedStatement.model_validate(upload.statement)
        _check(session, upload.site, signed, facts_of_upload(upload))


def attach_upload(
    session: Session, caller: Caller, version: ModelVersionRecord, upload: UploadRecord
) -> None:
    """Add the upload's statement to a new version."""
    if upload.statement is None:
        return
    signed = SignedStatement.model_validate(upload.statement)
    _attach(session, caller, version, signed, facts_of_upload(upload, version.kind))


def attach_if_fitting(
    session: Session, caller: Caller, version: ModelVersionRecord, upload: UploadRecord
) -> bool:
    """Add an upload's statement to an unsigned version of the same file, if they match.

    Return False, changing nothing, if they do not: sending a file again is allowed, and does not
    change the version.
    """
    if upload.statement is None or keys.find_statement(session, version.id) is not None:
        return False
    signed = SignedStatement.model_validate(upload.statement)
    keys.lock_keys(session, version.model.site_id)
    try:
        _attach(session, caller, version, signed, facts_of_version(version, signed.origin))
    except StatementRefusedError:
        return False
    return True


def describe_statement(
    version: ModelVersionRecord, statement: StatementRecord
) -> StatementResponse:
    return StatementResponse(
        address=f"pool://{version.model.site.name}/{version.model.name}@{version.number}",
        digest=version.digest,
        envelope=Envelope.model_validate(statement.envelope),
        key=keys.describe_key(statement.key),
        origin=statement.origin or None,
        accepted_at=statement.created_at,
    )


def _describes(known: StatementRecord, version: ModelVersionRecord) -> bool:
    """Return whether a statement still matches its version, which may have been corrected."""
    key = PublicKey.from_text(known.key.public_key)
    try:
        statement = open_statement(Envelope.model_validate(known.envelope), key)
    except ValueError:
        return False
    return not differences(statement, facts_of_version(version, known.origin or None))


def _attach(
    session: Session,
    caller: Caller,
    version: ModelVersionRecord,
    signed: SignedStatement,
    facts: VersionFacts,
) -> None:
    site = version.model.site
    checked = _check(session, site, signed, facts)
    foreign = signed.foreign_key
    if foreign is None:
        key_id, origin = checked.key_id, ""
    else:
        record = keys.import_key(session, caller, site, foreign, checked)
        key_id, origin = record.id, foreign.origin
    session.add(
        StatementRecord(
            version_id=version.id,
            site_id=site.id,
            key_id=key_id,
            origin=origin,
            envelope=signed.envelope.model_dump(mode="json"),
            created_at=now_utc(),
        )
    )
    subject = f"{site.name}/{version.model.name}@{version.number}"
    record_act(session, caller, "version.sign", subject, key_id=key_id, origin=origin)
    session.flush()


def _check(
    session: Session, site: SiteRecord, signed: SignedStatement, facts: VersionFacts
) -> PublicKey:
    """Return the key of a valid statement."""
    if signed.foreign_key is None:
        key = _own_key(session, signed.envelope, site)
    else:
        key = keys.read_key(signed.foreign_key.public_key)
        known = keys.find_key(session, site.id, key.key_id)
        if known is not None and known.revocation == keys.COMPROMISED:
            raise _revoked(known)
    try:
        statement = open_statement(signed.envelope, key)
    except ValueError as error:
        raise StatementRefusedError(str(error), hint=_HINT) from error
    if problems := differences(statement, facts):
        raise StatementRefusedError(
            f"the signed statement is about something else: {'; '.join(problems)}",
            hint="Sign the uploaded file; `poolctl upload` does so automatically.",
        )
    return key


def _signing_site(site: str, origin: str | None) -> str:
    """Return the site that must have signed: for an imported version, its site elsewhere."""
    return origin.partition("@")[0] if origin else site


_HINT = "Sign again with a key of the site; `poolctl keys ls` lists them."


def _own_key(session: Session, envelope: Envelope, site: SiteRecord) -> PublicKey:
    """Return the registered key that an envelope names."""
    # The identifier in an envelope is not signed: it only narrows the search.
    named = envelope.key_ids()
    site_keys = [key for key in keys.list_keys(session, site.id) if not key.origin]
    fitting = [record for record in site_keys if record.id in named or not named]
    valid = [record for record in fitting if record.revoked_at is None]
    if fitting and not valid:
        raise _revoked(fitting[0])
    for record in valid:
        key = PublicKey.from_text(record.public_key)
        if len(valid) == 1 or _signed_with(envelope, key):
            return key
    raise StatementRefusedError(
        f"site {site.name!r} has not registered the key {(named or ('?',))[0][:16]}... "
        "of this signature",
        hint="Register it with `poolctl keys create`, or upload with --no-sign.",
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
        hint="Create and register a new one: `poolctl keys create --force`.",
    )
