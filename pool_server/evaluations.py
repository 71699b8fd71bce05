"""Evaluations: scores of models on the private data of sites; never the data."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache
from statistics import median
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import ColumnElement, Integer, Row, Select, bindparam, func, or_, select, union_all
from sqlalchemy.orm import Session, contains_eager, selectinload

from pool_server.activity.events import write_event
from pool_server.database.records import (
    EvaluationRecord,
    EvaluationScoreRecord,
    ModelRecord,
    ModelVersionRecord,
    SiteRecord,
)
from pool_server.errors import QueryError
from pool_server.http import parameters
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, Uploader, needs
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.registry.access import ANY, curates_pool, listed_for, readable
from pool_server.registry.query import read_address
from pool_server.registry.repository import among
from pool_server.registry.service import VersionToName, find_named
from pool_server.wire import evaluations
from pool_server.wire.names import Digest, ModelAddress

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
    caller: Uploader, session: WritingSession, request: evaluations.EvaluationRequest
) -> evaluations.EvaluationResponse:
    """Keep how a model did on a site's own data, which stay at the site.

    Any site may, for any model that it may see. Of the same site, data and protocol the newest
    counts.
    """
    hint = "Scores are taken of models that the pool has: upload it first."
    version = find_named(session, caller, request.model, hint=hint)
    record = EvaluationRecord(
        digest=version.digest,
        version_id=version.id,
        site_id=caller.site_id,
        **request.model_dump(exclude={"model", "faces", "scores"}),
        details={} if request.faces is None else {"faces": request.faces},
        created_by=caller.name,
        token_id=caller.token_id,
        scores=[
            EvaluationScoreRecord(name=name, **score.model_dump())
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
        site=caller.site,
        evaluation_id=record.id,
        dataset_digest=request.dataset_digest,
    )
    if caller.site_id != version.model.site_id:
        write_event(
            session,
            version.model.site_id,
            "evaluation.posted",
            f"pool://{subject}",
            site=caller.site,
            evaluation_id=record.id,
        )
    session.flush()
    session.expire(record)
    kept = whole_evaluations().where(EvaluationRecord.id == record.id)
    return describe_evaluation(session.scalars(kept).one())


@router.get("/evaluations", summary="Show models x sites", dependencies=[needs("models:read")])
def matrix(
    caller: SignedIn, session: ReadingSession, query: Annotated[evaluations.MatrixQuery, Query()]
) -> evaluations.EvaluationMatrix:
    """Return one score of all models by all sites, newest models first, a page at a time.

    A site may have several cells in a row: one for each of its data sets and protocols.
    """
    models = find_measured_models(session, caller, query)
    page, next_cursor = parameters.cut_page(models, query.limit)
    cells: dict[str, list[evaluations.MatrixCell]] = defaultdict(list)
    digests = {row[1] for row in page}
    for record, site, value, low, high in (
        list_cells(session, caller, digests, query) if digests else ()
    ):
        cell = parameters.describe(
            evaluations.MatrixCell, record, site=site, value=value, low=low, high=high
        )
        cells[record.digest].append(cell)
    return evaluations.EvaluationMatrix(
        score=query.score,
        sites=sorted({cell.site for row in cells.values() for cell in row}),
        rows=[
            evaluations.MatrixRow(
                address=str(ModelAddress(site, name, str(number))),
                digest=digest,
                kind=kind,
                cells=cells[digest],
            )
            for _id, digest, kind, site, name, number in page
        ],
        next_cursor=next_cursor,
    )


@router.get(
    "/models/{site}/{name}/versions/{reference}/evaluations",
    summary="List the evaluations of a version",
    dependencies=[needs("models:read")],
)
def list_evaluations(
    caller: SignedIn,
    session: ReadingSession,
    version: VersionToName,
    limit: parameters.Limit = 50,
    cursor: parameters.Cursor = None,
) -> evaluations.EvaluationPage:
    """Return the evaluations of a version's file, newest first, a page at a time."""
    return read_evaluations(session, caller, version, cursor=cursor, limit=limit)


def read_evaluations(
    session: Session,
    caller: Caller,
    version: ModelVersionRecord,
    *,
    cursor: int | None = None,
    limit: int = 50,
) -> evaluations.EvaluationPage:
    """Return one page of a version's evaluations that the caller may see, newest first.

    Of each repeated measurement, only the newest.
    """
    is_known = (EvaluationRecord.digest == version.digest, known_to(caller))
    newest = select(func.max(EvaluationRecord.id)).where(*is_known).group_by(*SAME_MEASUREMENT)
    query = whole_evaluations().where(EvaluationRecord.id.in_(newest))
    page, next_cursor = parameters.find_page(session, query, EvaluationRecord.id, cursor, limit)
    return evaluations.EvaluationPage(
        items=[describe_evaluation(evaluation) for evaluation in page], next_cursor=next_cursor
    )


def describe_evaluation(record: EvaluationRecord) -> evaluations.EvaluationResponse:
    return parameters.describe(
        evaluations.EvaluationResponse,
        record,
        evaluation_id=record.id,
        site=record.site.name,
        faces=record.details.get("faces"),
        scores={
            score.name: parameters.describe(evaluations.Score, score) for score in record.scores
        },
    )


ModelRow = Row[int, str, str, str, str, int]
CellRow = Row[EvaluationRecord, str, float, float | None, float | None]


@cache
def whole_evaluations() -> Select[EvaluationRecord]:
    return (
        select(EvaluationRecord)
        .join(EvaluationRecord.site)
        .options(contains_eager(EvaluationRecord.site), selectinload(EvaluationRecord.scores))
    )


def known_to(caller: Caller) -> ColumnElement[bool]:
    """Return which evaluations a caller may know: its own site's, and those of versions it sees.

    The same file may stand in the pool as a private copy.
    """
    return _known_to(caller.site_id, curates=curates_pool(caller))


def _known_to(site_id: Any, *, curates: bool) -> ColumnElement[bool]:
    is_readable = readable(site_id, curates=curates)
    seen = select(ModelVersionRecord.id).join(ModelVersionRecord.model).where(is_readable)
    is_seen = seen.where(ModelVersionRecord.id == EvaluationRecord.version_id).exists()
    return or_(EvaluationRecord.site_id == site_id, is_seen)


def find_measured_models(
    session: Session, caller: Caller, query: evaluations.MatrixQuery
) -> Sequence[ModelRow]:
    """Return (id, digest, kind, site, name, number) of versions that have the score.

    Newest first, one more than the query's limit.
    """
    measured = (
        select(EvaluationRecord.digest)
        .join(EvaluationScoreRecord, EvaluationScoreRecord.evaluation_id == EvaluationRecord.id)
        .join(EvaluationRecord.site)
        .where(EvaluationScoreRecord.name == query.score, known_to(caller))
    )
    named = [_read_exact(model) for model in query.model]
    conditions = [
        listed_for(caller, ANY if named else None),
        ModelVersionRecord.digest.in_(measured),
    ]
    if named:
        # One look-up a version: SQLite would compare a list of addresses with every version.
        look_ups = [
            select(ModelVersionRecord.id)
            .join(ModelVersionRecord.model)
            .join(ModelRecord.site)
            .where(
                SiteRecord.name == site,
                ModelRecord.name == name,
                ModelVersionRecord.number == number,
            )
            for site, name, number in named
        ]
        conditions.append(ModelVersionRecord.id.in_(union_all(*look_ups)))
    # Of kind and order no index is used: only a few of many versions are measured.
    if query.kind is not None:
        conditions.append(func.coalesce(ModelVersionRecord.kind, "") == query.kind)
    if query.cursor is not None:
        conditions.append(ModelVersionRecord.id < query.cursor)
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
        .order_by((ModelVersionRecord.id + 0).desc())
        .limit(query.limit + 1)
    ).all()


def _read_exact(text: str) -> tuple[str, str, int]:
    address = read_address(text)
    if not address.reference.isdecimal():
        raise QueryError(f"model={text!r} has no number of a version, expected SITE/NAME@NUMBER")
    return address.site, address.name, int(address.reference)


def list_cells(
    session: Session, caller: Caller, digests: Collection[str], query: evaluations.MatrixQuery
) -> Sequence[CellRow]:
    """Return (evaluation, site, value, low, high) of the score of these files.

    Of several evaluations of the same file, on the same data, in the same way, the newest that
    has the score.
    """
    conditions = [
        EvaluationRecord.digest.in_(digests),
        known_to(caller),
        EvaluationScoreRecord.name == query.score,
    ]
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


@router.get(
    "/evaluations/summaries",
    summary="Sum up the evaluations of files",
    dependencies=[needs("models:read")],
)
def list_summaries(
    caller: SignedIn,
    session: ReadingSession,
    digest: Annotated[
        list[Digest], Query(max_length=parameters.MOST_ITEMS, description="Of the files.")
    ],
) -> evaluations.EvaluationSummaryList:
    """Return the score that counts most for each kind of model, over all sites that measured.

    Files that nobody measured, or that the caller may not see, are left out.
    """
    return evaluations.EvaluationSummaryList(items=summarise(session, caller, digest))


def summarise(
    session: Session, caller: Caller, digests: list[str]
) -> list[evaluations.EvaluationSummary]:
    """Return one summary for each of these files that has one, in their order."""
    sought = {"digests": digests, "site": caller.site_id}
    rows = session.execute(_headline_scores(curates=curates_pool(caller)), sought)
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    sites: dict[tuple[str, str], set[int]] = defaultdict(set)
    for digest, site_id, name, value in rows:
        values[digest, name].append(value)
        sites[digest, name].add(site_id)
    return [
        evaluations.EvaluationSummary(
            digest=digest,
            score=name,
            median=median(values[digest, name]),
            sites=len(sites[digest, name]),
        )
        for digest in dict.fromkeys(digests)
        for name in evaluations.HEADLINES.values()
        if (digest, name) in values
    ]


@cache
def _headline_scores(*, curates: bool) -> Select[*tuple[Any, ...]]:
    """Select the newest scores of files that count most, by those that a site may know."""
    is_known = _known_to(bindparam("site", type_=Integer), curates=curates)
    newest = (
        select(func.max(EvaluationRecord.id))
        .where(among(EvaluationRecord.digest, "digests"), is_known)
        .group_by(*SAME_MEASUREMENT)
    )
    return (
        select(
            EvaluationRecord.digest,
            EvaluationRecord.site_id,
            EvaluationScoreRecord.name,
            EvaluationScoreRecord.value,
        )
        .join(EvaluationScoreRecord, EvaluationScoreRecord.evaluation_id == EvaluationRecord.id)
        .where(
            EvaluationRecord.id.in_(newest),
            EvaluationScoreRecord.name.in_(evaluations.HEADLINES.values()),
        )
    )
