"""Exports: models that leave the pool. The pool decides which, not the client.

A version may leave if its owner granted the rights ``download`` and ``redistribute``, its terms do
not forbid it, it is in good standing, and its signature, if any, is not by a compromised key. One
forbidden version blocks all that are requested together.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

from fastapi import APIRouter
from sqlalchemy import and_, or_
from sqlalchemy.orm import Session

from pool_server.activity.events import NewEvent, write_events
from pool_server.database.records import (
    ModelRecord,
    ModelVersionRecord,
    SiteRecord,
    StatementRecord,
)
from pool_server.errors import MissingError, NotAllowedError, QueryError, TermsForbidError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, needs
from pool_server.http.parameters import describe
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.registry import access, repository, service, terms
from pool_server.registry.query import read_address
from pool_server.registry.withdrawal_status import address_of, subject_of
from pool_server.signatures.keys import COMPROMISED, find_statement
from pool_server.wire import exports, merges, models
from pool_server.wire.signatures.keys import Envelope
from pool_server.wire.signatures.statements import Revocation

router = APIRouter(tags=["exports"], dependencies=[needs("models:read")])

NEEDED: tuple[models.Right, ...] = ("download", "redistribute")
_MOST_NAMED = 10
_MOST_LISTED = 200


@router.post("/exports", summary="Request an export of models")
def grant_export(
    caller: SignedIn, session: WritingSession, request: exports.ExportRequest
) -> exports.ExportResponse:
    """Decide on all requested models together, and record the export in the audit.

    Each must be in good standing; its owner must have granted `download` and `redistribute`, and
    its terms must not forbid it. Ancestors remain known by their digests. The owners are notified.
    """
    versions = _find_requested(session, caller, [_place_of(text) for text in request.addresses])
    _require_exportable(caller, versions)
    for version in versions:
        record_act(
            session,
            caller,
            "version.export",
            subject_of(version),
            digest=version.digest,
            together=len(versions),
        )
    session.flush()
    write_events(session, _export_events(caller, versions))
    return exports.ExportResponse(
        items=[
            exports.GrantedVersion(
                address=address_of(version), digest=version.digest, size_bytes=version.size_bytes
            )
            for version in versions
        ]
    )


@router.get(
    "/models/{site}/{name}/versions/{reference}/record", summary="Get a version's portable record"
)
def portable_record(
    caller: SignedIn, session: ReadingSession, version: service.VersionToRead
) -> exports.PortableVersion:
    """Return labels, terms, card, recipe and signature in a form for other pools."""
    _require_exportable(caller, [version])
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
        parents=_parents_of(version),
        statement=_portable_statement(find_statement(session, version.id)),
        evaluations=(),
    )


def _find_requested(
    session: Session, caller: Caller, places: "Sequence[Place]"
) -> list[ModelVersionRecord]:
    versions = {
        (version.model.site.name, version.model.name, version.number): version
        for version in find_places(session, caller, places)
    }
    for site, name, number in places:
        if (site, name, number) not in versions:
            raise MissingError(
                f"the pool has no model {site}/{name}@{number}",
                code="version_not_found",
                hint="`poolctl models ls` lists the pool's models.",
            )
    return list(versions.values())


def _require_exportable(caller: Caller, versions: Iterable[ModelVersionRecord]) -> None:
    problems = {
        address_of(version): reasons
        for version in versions
        if (reasons := _reasons_against(caller, version))
    }
    if not problems:
        return
    named = [f"{address}: {', '.join(why)}" for address, why in problems.items()][:_MOST_NAMED]
    more = f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
    raise NotAllowedError(
        f"{len(problems)} of the models may not leave the pool: {'; '.join(named)}{more}",
        code="export_refused",
        hint="Ask their sites for the right `redistribute`, or leave them "
        "out; models that were merged from them can go without them.",
        details={"problems": problems},
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


def _parents_of(version: ModelVersionRecord) -> list[str]:
    return list(dict.fromkeys(parent.parent_digest for parent in version.parents))


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


def _export_events(caller: Caller, versions: Sequence[ModelVersionRecord]) -> list[NewEvent]:
    by_site: Mapping[int, list[str]] = defaultdict(list)
    for version in versions:
        if version.model.site_id != caller.site_id:
            by_site[version.model.site_id].append(address_of(version))
    return [
        NewEvent(
            site_id,
            "versions.exported",
            caller.site,
            {"by": caller.name, "count": len(addresses),
             "addresses": addresses[:_MOST_LISTED]},
        )
        for site_id, addresses in by_site.items()
    ]  # fmt: skip


def _place_of(text: str) -> "Place":
    address = read_address(text)
    if not address.reference.isdigit():
        raise QueryError(
            f"{text!r} names no version by its number; expected for example site-a/face-68@2"
        )
    return address.site, address.name, int(address.reference)


Place = tuple[str, str, int]
"""Site, name and number of a version."""


def find_places(
    session: Session, caller: Caller, places: Collection[Place]
) -> Sequence[ModelVersionRecord]:
    """Return the versions at these places that the caller may see."""
    return session.scalars(
        repository.whole_versions()
        .where(
            or_(
                *(
                    and_(
                        SiteRecord.name == site,
                        ModelRecord.name == name,
                        ModelVersionRecord.number == number,
                    )
                    for site, name, number in sorted(set(places))
                )
            ),
            access.readable_by(caller),
        )
        .order_by(ModelVersionRecord.id)
    ).all()
