"""Exports: models that leave the pool. The pool decides which, not the client.

A version may leave if its owner granted the rights ``download`` and ``redistribute``, its terms do
not forbid it, it is in good standing, and its signature, if any, is not by a compromised key.
"""

from typing import cast

from fastapi import APIRouter
from sqlalchemy.orm import Session

from pool_server.activity.events import write_event
from pool_server.database.records import ModelVersionRecord, StatementRecord
from pool_server.errors import NotAllowedError, TermsForbidError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, needs
from pool_server.http.parameters import describe
from pool_server.http.session import WritingSession
from pool_server.registry import access, repository, service, terms
from pool_server.signatures.keys import COMPROMISED, find_statement
from pool_server.wire import exports, merges, models
from pool_server.wire.signatures.keys import Envelope
from pool_server.wire.signatures.statements import Revocation

router = APIRouter(tags=["exports"], dependencies=[needs("models:read")])

NEEDED: tuple[models.Right, ...] = ("download", "redistribute")


@router.post("/models/{site}/{name}/versions/{reference}/export", summary="Export a version")
def export(
    caller: SignedIn, session: WritingSession, version: service.VersionToChange
) -> exports.PortableVersion:
    """Return labels, terms, card, recipe and signature in a form for other pools.

    The version must be in good standing; its owner must have granted `download` and `redistribute`,
    and its terms must not forbid it. Ancestors remain known by their digests. The audit records the
    export, and the owner is notified.
    """
    _require_exportable(caller, version)
    record_act(session, caller, "version.export", version.subject, digest=version.digest)
    session.flush()
    if version.model.site_id != caller.site_id:
        write_event(
            session, version.model.site_id, "version.exported", version.address, by=caller.site
        )
    return describe(
        exports.PortableVersion,
        version,
        site=version.model.site.name,
        name=version.model.name,
        version=version.number,
        labels={label.key: label.value for label in version.labels},
        metrics={metric.name: metric.value for metric in version.metrics},
        terms=[describe(exports.PortableTerm, term) for term in version.terms],
        recipe=_recipe_for(session, caller, version),
        parents=list(dict.fromkeys(parent.parent_digest for parent in version.parents)),
        statement=_portable_statement(find_statement(session, version.id)),
        evaluations=(),
    )


def _require_exportable(caller: Caller, version: ModelVersionRecord) -> None:
    if problems := _reasons_against(caller, version):
        raise NotAllowedError(
            f"{version.address} may not leave the pool: {', '.join(problems)}",
            code="export_refused",
            hint="Ask its site for the right `redistribute`; a model that was merged from it can "
            "go without it.",
        )


def _reasons_against(caller: Caller, version: ModelVersionRecord) -> list[str]:
    reasons = []
    if version.state != access.AVAILABLE:
        reasons.append(f"it is {version.state}")
    elif version.flags:
        reasons.append("it contains a withdrawn file")
    missing = [right for right in NEEDED if not access.may(caller, version.model, right)]
    if missing:
        reasons.append(f"{version.model.site.name} has not granted {' and '.join(missing)}")
    try:
        terms.require_redistributable(version)
    except TermsForbidError as error:
        reasons.append(error.message)
    if version.statement is not None and version.statement.key.revocation == COMPROMISED:
        reasons.append("it is signed with a key that was declared compromised")
    return reasons


def _recipe_for(
    session: Session, caller: Caller, version: ModelVersionRecord
) -> dict[str, object] | None:
    """Return a version's recipe without names that the caller must not see.

    Inputs that others do not share with the caller are given by digest only.
    """
    if version.recipe is None:
        return None
    document = version.recipe.document
    if access.curates_pool(caller) or version.model.site_id == caller.site_id:
        return document
    placed = repository.visible_addresses(session, caller, set(merges.list_named_digests(document)))
    return merges.strip_names(document, placed)


def _portable_statement(statement: StatementRecord | None) -> exports.PortableStatement | None:
    if statement is None:
        return None
    return exports.PortableStatement(
        envelope=Envelope.model_validate(statement.envelope),
        public_key=statement.key.public_key,
        key_name=statement.key.name,
        origin=statement.origin or None,
        revoked_as=cast("Revocation | None", statement.key.revocation or None),
    )
