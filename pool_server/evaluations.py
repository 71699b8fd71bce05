"""Evaluations: scores of models on the private data of sites; never the data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import ColumnElement, Row, Select, func, or_, select
from sqlalchemy.orm import Session, contains_eager, selectinload

from pool_server.activity.events import write_event
from pool_server.database.records import (
    EvaluationRecord,
    EvaluationScoreRecord,
    ModelRecord,
    ModelVersionRecord,
    SiteRecord,
)
from pool_server.errors import MissingError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, Uploader, needs
from pool_server.http.parameters import BeforeId, Limit, ModelName, Reference, SiteName, cut_page
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.people.sites import get_site
from pool_server.registry import repository as registry
from pool_server.registry.access import listed_for, readable_by
from pool_server.registry.filters import ModelChoice
from pool_server.registry.service import resolve_version
from pool_server.wire.evaluations import (
    EvaluationMatrix,
    EvaluationPage,
    EvaluationRequest,
    EvaluationResponse,
    MatrixCell,
    MatrixRow,
    Score,
)
from pool_server.wire.names import Digest, LabelKey, ModelAddress, Name

router = APIRouter(tags=["evaluations"])


# A site that measures again replaces its earlier scores: of evaluations that agree in these
# columns the newest counts.
SAME_MEASUREMENT = (
    EvaluationRecord.digest,
    EvaluationRecord.site_id,
    EvaluationRecord.dataset_digest,
    EvaluationRecord.protocol,
)


@router.post(
    "/evaluations",
    status_code=201,
    summary="Post scores of a model",
    dependencies=[needs("evaluations:write")],
)
def post_evaluation(
    caller: Uploader, session: WritingSession, request: EvaluationRequest
) -> EvaluationResponse:
    """Keep how a model did on a site's own data, which stay at the site.

    Any site may, for any model that it may see. Of the same site, data and protocol the newest
    counts; earlier ones stay and can be asked for.
    """
    site = get_site(session, request.site or caller.site)
    caller.require_upload_to(site.name)
    version = _find_model(session, caller, request.model)
    record = EvaluationRecord(
        digest=version.digest,
        version_id=version.id,
        site_id=site.id,
        dataset=request.dataset,
        dataset_digest=request.dataset_digest,
        split=request.split,
        protocol=request.protocol,
        images=request.images,
        note=request.note,
        details={} if request.faces is None else {"faces": request.faces},
        created_by=caller.name,
        token_id=caller.token_id,
        scores=[
            EvaluationScoreRecord(name=name, value=score.value, low=score.low, high=score.high)
            for name, score in request.scores.items()
        ],
    )
    session.add(record)
    session.flush()
    subject = f"{version.model.site.name}/{version.model.name}@{version.number}"
    record_act(
        session,
        caller,
        "evaluation.post",
        subject,
        digest=version.digest,
        site=site.name,
        evaluation_id=record.id,
        dataset_digest=request.dataset_digest,
    )
    if site.id != version.model.site_id:
        write_event(
            session,
            version.model.site_id,
            "evaluation.posted",
            f"pool://{subject}",
            site=site.name,
            evaluation_id=record.id,
        )
    session.flush()
    session.expire(record)
    return describe_evaluation(get_evaluation(session, record.id))


@router.get("/evaluations", summary="Show models x sites", dependencies=[needs("models:read")])
def matrix(  # noqa: PLR0917 - FastAPI gives them by name
    caller: SignedIn,
    session: ReadingSession,
    score: Annotated[LabelKey, Query(description="Which score.", examples=["mean_error"])],
    kind: Annotated[
        str | None,
        Query(description="`hog-svm`, `ert` or `network`.", max_length=16, examples=["ert"]),
    ] = None,
    site: Annotated[
        Name | None, Query(description="Only models of this site.", examples=["site-a"])
    ] = None,
    name: Annotated[
        Name | None, Query(description="Only models of this name.", examples=["face-68"])
    ] = None,
    measured_by: Annotated[
        Name | None, Query(description="Only scores by this site.", examples=["site-b"])
    ] = None,
    dataset_digest: Annotated[
        Digest | None, Query(description="Only on this data set.", examples=["60ab" * 16])
    ] = None,
    protocol: Annotated[
        str | None,
        Query(description="Only measured in this way.", max_length=128, examples=["inter-ocular"]),
    ] = None,
    limit: Limit = 50,
    before_id: BeforeId = None,
) -> EvaluationMatrix:
    """Return one score of all models by all sites, newest models first, a page at a time.

    A site may have several cells in a row: one for each of its data sets and protocols.
    """
    query = MatrixQuery(
        score=score,
        kind=kind,
        site=site,
        name=name,
        measured_by=measured_by,
        dataset_digest=dataset_digest,
        protocol=protocol,
        limit=limit,
        before_id=before_id,
    )
    return show_matrix(session, caller, query)


@router.get(
    "/models/{site}/{name}/versions/{reference}/evaluations",
    summary="List the evaluations of a version",
    dependencies=[needs("models:read")],
)
def list_evaluations(  # noqa: PLR0917
    caller: SignedIn,
    session: ReadingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    history: Annotated[
        bool, Query(description="Include evaluations that were repeated since.", examples=[False])
    ] = False,
    limit: Limit = 50,
    before_id: BeforeId = None,
) -> EvaluationPage:
    """Return the evaluations of a version's file, newest first, a page at a time."""
    version = resolve_version(
        session, caller, site, name, reference, versions=registry.bare_versions
    )
    return read_evaluations(
        session, caller, version, history=history, before_id=before_id, limit=limit
    )


def _find_model(session: Session, caller: Caller, text: str) -> ModelVersionRecord:
    choice = ModelChoice.parse(text)
    if choice.address is not None:
        address = choice.address
        return resolve_version(session, caller, address.site, address.name, address.reference)
    version = registry.find_anywhere(session, caller, choice.digest or "")
    if version is None:
        raise MissingError(
            f"the pool has no model with digest {choice.digest}",
            code="version_not_found",
            hint="Scores are taken of models that the pool has: upload it first.",
        )
    return version


def read_evaluations(
    session: Session,
    caller: Caller,
    version: ModelVersionRecord,
    *,
    history: bool = False,
    before_id: int | None = None,
    limit: int = 50,
) -> EvaluationPage:
    """Return one page of who measured what of a version, newest first."""
    found = find_evaluations(
        session, caller, version.digest, history=history, before_id=before_id, limit=limit
    )
    page, next_cursor = cut_page(found, limit)
    return EvaluationPage(
        items=[describe_evaluation(each) for each in page], next_cursor=next_cursor
    )


def describe_evaluation(record: EvaluationRecord) -> EvaluationResponse:
    return EvaluationResponse(
        evaluation_id=record.id,
        digest=record.digest,
        site=record.site.name,
        dataset=record.dataset,
        dataset_digest=record.dataset_digest,
        split=record.split,
        protocol=record.protocol,
        images=record.images,
        faces=record.details.get("faces"),
        note=record.note,
        scores={
            each.name: Score(value=each.value, low=each.low, high=each.high)
            for each in record.scores
        },
        created_at=record.created_at,
        created_by=record.created_by,
    )


def show_matrix(session: Session, caller: Caller, query: MatrixQuery) -> EvaluationMatrix:
    """Return models x sites for one score: a page of models that the caller may see."""
    found = find_measured_models(session, caller, query)
    page, next_cursor = cut_page(found, query.limit)
    cells: dict[str, list[MatrixCell]] = defaultdict(list)
    for record, site, value, low, high in list_cells(
        session, caller, {row[1] for row in page}, query
    ):
        cells[record.digest].append(
            MatrixCell(
                site=site,
                dataset=record.dataset,
                dataset_digest=record.dataset_digest,
                split=record.split,
                protocol=record.protocol,
                images=record.images,
                value=value,
                low=low,
                high=high,
                created_at=record.created_at,
            )
        )
    return EvaluationMatrix(
        score=query.score,
        sites=sorted({cell.site for row in cells.values() for cell in row}),
        rows=[
            MatrixRow(
                address=str(ModelAddress(site, name, str(number))),
                digest=digest,
                kind=kind,
                own_site=site,
                cells=cells[digest],
            )
            for _id, digest, kind, site, name, number in page
        ],
        next_cursor=next_cursor,
    )


ModelRow = Row[int, str, str, str, str, int]
CellRow = Row[EvaluationRecord, str, float, float | None, float | None]


@dataclass(frozen=True)
class MatrixQuery:
    """The filters of a matrix.

    Attributes
    ----------
    score : str
    kind, site, name : str or None
        Of the models.
    measured_by, dataset_digest, protocol : str or None
        Of the evaluations.
    limit : int
        Models of a page.
    before_id : int or None
    """

    score: str
    kind: str | None = None
    site: str | None = None
    name: str | None = None
    measured_by: str | None = None
    dataset_digest: str | None = None
    protocol: str | None = None
    limit: int = 50
    before_id: int | None = None


def whole_evaluations() -> Select[EvaluationRecord]:
    return (
        select(EvaluationRecord)
        .join(EvaluationRecord.site)
        .options(contains_eager(EvaluationRecord.site), selectinload(EvaluationRecord.scores))
    )


def get_evaluation(session: Session, evaluation_id: int) -> EvaluationRecord:
    return session.scalars(whole_evaluations().where(EvaluationRecord.id == evaluation_id)).one()


def known_to(caller: Caller) -> ColumnElement[bool]:
    """Return which evaluations a caller may know: its own site's, and those of versions it sees.

    The same file may stand in the pool as a private copy.
    """
    seen = select(ModelVersionRecord.id).join(ModelVersionRecord.model).where(readable_by(caller))
    is_seen = seen.where(ModelVersionRecord.id == EvaluationRecord.version_id).exists()
    return or_(EvaluationRecord.site_id == caller.site_id, is_seen)


def find_evaluations(
    session: Session,
    caller: Caller,
    digest: str,
    *,
    history: bool,
    before_id: int | None,
    limit: int,
) -> Sequence[EvaluationRecord]:
    """Return evaluations of a file that the caller may know, newest first, one more than `limit`.

    Parameters
    ----------
    history : bool
        Include evaluations that were repeated since.
    """
    wanted = (EvaluationRecord.digest == digest, known_to(caller))
    query = whole_evaluations().where(*wanted)
    if not history:
        newest = select(func.max(EvaluationRecord.id)).where(*wanted).group_by(*SAME_MEASUREMENT)
        query = query.where(EvaluationRecord.id.in_(newest))
    if before_id is not None:
        query = query.where(EvaluationRecord.id < before_id)
    return session.scalars(query.order_by(EvaluationRecord.id.desc()).limit(limit + 1)).all()


def find_measured_models(
    session: Session, caller: Caller, query: MatrixQuery
) -> Sequence[ModelRow]:
    """Return (id, digest, kind, site, name, number) of versions that have the score.

    Newest first, one more than the query's limit.
    """
    measured = (
        select(EvaluationRecord.digest)
        .join(EvaluationScoreRecord, EvaluationScoreRecord.evaluation_id == EvaluationRecord.id)
        .join(EvaluationRecord.site)
        .where(*_measured_as(query), known_to(caller))
    )
    conditions = [listed_for(caller), ModelVersionRecord.digest.in_(measured)]
    if query.kind is not None:
        conditions.append(ModelVersionRecord.kind == query.kind)
    if query.site is not None:
        conditions.append(SiteRecord.name == query.site)
    if query.name is not None:
        conditions.append(ModelRecord.name == query.name)
    if query.before_id is not None:
        conditions.append(ModelVersionRecord.id < query.before_id)
    return session.execute(
        select(
            ModelVersionRecord.id,
            ModelVersionRecord.digest,
            ModelVersionRecord.kind,
            SiteRecord.name,
            ModelRecord.name,
            ModelVersionRecord.number,
        )
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .where(*conditions)
        .order_by(ModelVersionRecord.id.desc())
        .limit(query.limit + 1)
    ).all()


def list_cells(
    session: Session, caller: Caller, digests: Collection[str], query: MatrixQuery
) -> Sequence[CellRow]:
    """Return (evaluation, site, value, low, high) of the score of these files.

    Of several evaluations of the same file, on the same data, in the same way, the newest that
    has the score.
    """
    conditions = [EvaluationRecord.digest.in_(digests), known_to(caller), *_measured_as(query)]
    scored = EvaluationScoreRecord.evaluation_id == EvaluationRecord.id
    newest = (
        select(func.max(EvaluationRecord.id))
        .join(EvaluationScoreRecord, scored)
        .join(EvaluationRecord.site)
        .where(*conditions)
        .group_by(*SAME_MEASUREMENT)
    )
    return session.execute(
        select(
            EvaluationRecord,
            SiteRecord.name,
            EvaluationScoreRecord.value,
            EvaluationScoreRecord.low,
            EvaluationScoreRecord.high,
        )
        .join(EvaluationScoreRecord, scored)
        .join(EvaluationRecord.site)
        .where(EvaluationScoreRecord.name == query.score, EvaluationRecord.id.in_(newest))
        .order_by(SiteRecord.name, EvaluationRecord.dataset, EvaluationRecord.id)
    ).all()


def _measured_as(query: MatrixQuery) -> list[ColumnElement[bool]]:
    """Return which evaluations a matrix takes, in queries that join scores and sites."""
    conditions = [EvaluationScoreRecord.name == query.score]
    if query.measured_by is not None:
        conditions.append(SiteRecord.name == query.measured_by)
    if query.dataset_digest is not None:
        conditions.append(EvaluationRecord.dataset_digest == query.dataset_digest)
    if query.protocol is not None:
        conditions.append(EvaluationRecord.protocol == query.protocol)
    return conditions
