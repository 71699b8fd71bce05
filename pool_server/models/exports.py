"""Exports: models that leave the pool in a bundle. The pool decides which, not the client.

A version may leave if its owner granted the rights ``download`` and ``redistribute``, its terms do
not forbid it, it is in good standing, and its signature, if any, is not by a compromised key. One
forbidden version blocks the whole bundle, because a bundle is requested as a whole.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, cast

from fastapi import APIRouter, Query
from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from pool_server.activity.events import NewEvent, write_events
from pool_server.database.records import (
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    SiteRecord,
    StatementRecord,
)
from pool_server.errors import MissingError, NotAllowedError, QueryError, TermsForbidError
from pool_server.evaluations import read_evaluations
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, needs
from pool_server.http.parameters import describe
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.registry import access, repository, service, terms
from pool_server.registry.query import read_address
from pool_server.registry.withdrawal_status import address_of, subject_of
from pool_server.signatures.keys import COMPROMISED, find_statement
from pool_server.wire import bundles, merges, models
from pool_server.wire.signatures.keys import Envelope
from pool_server.wire.signatures.statements import Revocation

router = APIRouter(tags=["exports"], dependencies=[needs("models:read")])

NEEDED: tuple[models.Right, ...] = ("download", "redistribute")
_MOST_NAMED = 10
_MOST_LISTED = 200


@router.post("/exports", summary="Request an export of models")
def grant_export(
    caller: SignedIn, session: WritingSession, request: bundles.ExportRequest
) -> bundles.ExportResponse:
    """Decide on all requested models together, and record the export in the audit.

    Each must be in good standing; its owner must have granted `download` and `redistribute`, and
    its terms must not forbid it. Ancestors that you cannot see, or that the pool does not have,
    remain known by digest only. The owners are notified.
    """
    versions = _find_requested(session, caller, [_place_of(text) for text in request.addresses])
    if request.with_parents:
        versions = _with_ancestors(session, caller, versions)
    _require_exportable(caller, versions)
    ordered = in_family_order(versions)
    for version in ordered:
        record_act(
            session,
            caller,
            "version.export",
            subject_of(version),
            digest=version.digest,
            together=len(ordered),
        )
    session.flush()
    write_events(session, _export_events(caller, ordered))
    return bundles.ExportResponse(
        items=[
            bundles.GrantedVersion(
                address=address_of(version), digest=version.digest, size_bytes=version.size_bytes
            )
            for version in ordered
        ]
    )


@router.get(
    "/models/{site}/{name}/versions/{reference}/record", summary="Get a version's portable record"
)
def portable_record(
    caller: SignedIn,
    session: ReadingSession,
    version: service.VersionToRead,
    evaluations: Annotated[bool, Query(description="Include the sites' evaluations.")] = False,
) -> bundles.PortableVersion:
    """Return labels, terms, card, recipe, signature and scores in a form for other pools."""
    _require_exportable(caller, [version])
    scores = None
    if evaluations:
        scores = read_evaluations(session, caller, version, limit=bundles.MOST_EVALUATIONS).items
    return describe(
        bundles.PortableVersion,
        version,
        site=version.model.site.name,
        name=version.model.name,
        version=version.number,
        labels={label.key: label.value for label in version.labels},
        metrics={metric.name: metric.value for metric in version.metrics},
        terms=[describe(bundles.PortableTerm, term) for term in version.terms],
        recipe=_recipe_for(session, caller, version),
        parents=_parents_of(version),
        statement=_portable_statement(find_statement(session, version.id)),
        evaluations=[
            describe(bundles.PortableEvaluation, evaluation) for evaluation in (scores or ())
        ],
    )


def in_family_order(versions: Iterable[ModelVersionRecord]) -> list[ModelVersionRecord]:
    """Return versions ordered so that parents precede models merged from them.

    The order depends only on the set. Contradictory recipes may form a circle, which is cut
    somewhere.
    """
    by_address = sorted(
        versions, key=lambda version: (version.model.site.name, version.model.name, version.number)
    )
    homes: dict[str, list[ModelVersionRecord]] = defaultdict(list)
    for version in by_address:
        homes[version.digest].append(version)
    ordered: list[str] = []
    begun: set[str] = set()
    for start in homes:
        # Each step is a digest and its remaining parents. The walk is iterative, because
        # families may be deep.
        steps: list[tuple[str, Iterator[str]]] = []
        if start not in begun:
            begun.add(start)
            steps.append((start, iter(_parents_of(homes[start][0]))))
        while steps:
            digest, parents = steps[-1]
            following = next(
                (parent for parent in parents if parent in homes and parent not in begun), ""
            )
            if following:
                begun.add(following)
                steps.append((following, iter(_parents_of(homes[following][0]))))
            else:
                ordered.append(digest)
                steps.pop()
    return [version for digest in ordered for version in homes[digest]]


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


def _with_ancestors(
    session: Session, caller: Caller, versions: Sequence[ModelVersionRecord]
) -> list[ModelVersionRecord]:
    """Add one version of each ancestor that the caller may see."""
    known = {version.digest for version in versions}
    digests = ancestor_digests(session, caller, known, bundles.MOST_VERSIONS)
    if len(digests) > bundles.MOST_VERSIONS:
        raise NotAllowedError(
            f"these models have more than {bundles.MOST_VERSIONS:,} ancestors, which is the most "
            "that one bundle may hold",
            code="export_refused",
        )
    homes: dict[str, list[ModelVersionRecord]] = defaultdict(list)
    for version in session.scalars(
        repository.whole_versions()
        .where(repository.among(ModelVersionRecord.digest, "digests"), access.readable_by(caller))
        .order_by(ModelVersionRecord.id),
        {"digests": sorted(digests - known)},
    ).all():
        homes[version.digest].append(version)
    chosen = []
    for candidates in homes.values():
        # Another site's copy of the file may be free to leave.
        free = [candidate for candidate in candidates if not _reasons_against(caller, candidate)]
        chosen.append((free or candidates)[0])
    return [*versions, *chosen]


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


def _portable_statement(statement: StatementRecord | None) -> bundles.PortableStatement | None:
    if statement is None:
        return None
    return bundles.PortableStatement(
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


def ancestor_digests(
    session: Session, caller: Caller, digests: Collection[str], most: int
) -> set[str]:
    """Return `digests` and those of all ancestors in recipes that the caller may see.

    The result is cut off at `most` + 1.
    """
    tree = (
        select(ModelVersionRecord.digest.label("digest"))
        .where(ModelVersionRecord.digest.in_(sorted(digests)))
        .distinct()
        .cte("ancestors", recursive=True)
    )
    tree = tree.union(
        select(ParentRecord.parent_digest)
        .join(tree, ParentRecord.child_digest == tree.c.digest)
        .join(ModelVersionRecord, ModelVersionRecord.id == ParentRecord.version_id)
        .join(ModelVersionRecord.model)
        .where(access.readable_by(caller))
    )
    return set(session.scalars(select(tree.c.digest).limit(most + 1)))
