"""Evaluations in the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Row, Select, func, or_, select
from sqlalchemy.orm import Session, contains_eager, selectinload

from pool_server.database.records import (
    EvaluationRecord,
    EvaluationScoreRecord,
    ModelRecord,
    ModelVersionRecord,
    SiteRecord,
)
from pool_server.http.identity import Caller
from pool_server.registry.access import listed_for, readable_by

ModelRow = Row[int, str, str, str, str, int]
CellRow = Row[EvaluationRecord, str, float, float | None, float | None]

# Of these there is one that counts: the newest.
SAME_MEASUREMENT = (
    EvaluationRecord.digest,
    EvaluationRecord.site_id,
    EvaluationRecord.dataset_digest,
    EvaluationRecord.protocol,
)


@dataclass(frozen=True)
class MatrixQuery:
    """What a matrix shows.

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


def _told_to(caller: Caller) -> ColumnElement[bool]:
    """Return which evaluations a caller is told of: the own site's, and those of what it sees.

    The same file may stand in the pool as a private copy.
    """
    seen = select(ModelVersionRecord.id).join(ModelVersionRecord.model).where(readable_by(caller))
    is_seen = seen.where(ModelVersionRecord.id == EvaluationRecord.version_id).exists()
    return or_(EvaluationRecord.site_id == caller.site_id, is_seen)


def list_evaluations(
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
    wanted = (EvaluationRecord.digest == digest, _told_to(caller))
    query = whole_evaluations().where(*wanted)
    if not history:
        newest = select(func.max(EvaluationRecord.id)).where(*wanted).group_by(*SAME_MEASUREMENT)
        query = query.where(EvaluationRecord.id.in_(newest))
    if before_id is not None:
        query = query.where(EvaluationRecord.id < before_id)
    return session.scalars(query.order_by(EvaluationRecord.id.desc()).limit(limit + 1)).all()


def list_models(session: Session, caller: Caller, query: MatrixQuery) -> Sequence[ModelRow]:
    """Return (id, digest, kind, site, name, number) of versions that have the score.

    Newest first, one more than the query's limit.
    """
    measured = (
        select(EvaluationRecord.digest)
        .join(EvaluationScoreRecord, EvaluationScoreRecord.evaluation_id == EvaluationRecord.id)
        .join(EvaluationRecord.site)
        .where(*_measured_as(query), _told_to(caller))
    )
    conditions = [
        listed_for(caller),
        ModelVersionRecord.digest.in_(measured),
    ]
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
    conditions = [EvaluationRecord.digest.in_(digests), _told_to(caller), *_measured_as(query)]
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
