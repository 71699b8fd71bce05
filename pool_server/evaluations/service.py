"""Taking scores from sites, and showing them: by model, and as a matrix of models x sites."""

from __future__ import annotations

from collections import defaultdict

from sqlalchemy.orm import Session

from pool_server.activity.events import write_event
from pool_server.database.records import EvaluationRecord, EvaluationScoreRecord, ModelVersionRecord
from pool_server.errors import MissingError
from pool_server.evaluations import repository
from pool_server.evaluations.repository import MatrixQuery
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.http.parameters import write_cursor
from pool_server.people.sites.repository import get_site
from pool_server.registry import repository as registry
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
from pool_server.wire.names import ModelAddress


def post_evaluation(
    session: Session, caller: Caller, request: EvaluationRequest
) -> EvaluationResponse:
    """Keep what a site measured of a model that it may see.

    Measuring again stands beside what was measured before; the newest counts.
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
        created_by=f"{caller.site}/{caller.token_name}",
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
    return describe_evaluation(repository.get_evaluation(session, record.id))


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


def list_evaluations(
    session: Session,
    caller: Caller,
    version: ModelVersionRecord,
    *,
    history: bool = False,
    before_id: int | None = None,
    limit: int = 50,
) -> EvaluationPage:
    """Return one page of who measured what of a version, newest first."""
    found = repository.list_evaluations(
        session, caller, version.digest, history=history, before_id=before_id, limit=limit
    )
    page = found[:limit]
    return EvaluationPage(
        items=[describe_evaluation(each) for each in page],
        next_cursor=write_cursor(page[-1].id) if len(found) > len(page) else None,
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
    found = repository.list_models(session, caller, query)
    page = found[: query.limit]
    cells: dict[str, list[MatrixCell]] = defaultdict(list)
    for record, site, value, low, high in repository.list_cells(
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
        next_cursor=write_cursor(page[-1][0]) if len(found) > len(page) else None,
    )
