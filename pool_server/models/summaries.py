"""The evaluations of the models of a listing, each in one number."""

from collections import defaultdict
from statistics import median
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from pool_server.database.records import EvaluationRecord, EvaluationScoreRecord
from pool_server.evaluations import SAME_MEASUREMENT, known_to
from pool_server.http.identity import Caller, SignedIn, needs
from pool_server.http.parameters import MOST_ITEMS
from pool_server.http.session import LookingSession
from pool_server.wire.evaluations import HEADLINES, EvaluationSummary, EvaluationSummaryList
from pool_server.wire.names import Digest

router = APIRouter(tags=["evaluations"])


@router.get(
    "/evaluations/summaries",
    summary="Sum up the evaluations of files",
    dependencies=[needs("models:read")],
)
def list_summaries(
    caller: SignedIn,
    session: LookingSession,
    digest: Annotated[
        list[Digest],
        Query(max_length=MOST_ITEMS, description="Of the files.", examples=[["60ab" * 16]]),
    ],
) -> EvaluationSummaryList:
    """Return the score that counts most for each kind of model, over all sites that measured.

    Files that nobody measured, or that the caller may not see, are left out.
    """
    return EvaluationSummaryList(items=summarise(session, caller, digest))


def summarise(session: Session, caller: Caller, digests: list[str]) -> list[EvaluationSummary]:
    """Return one summary for each of these files that has one, in their order."""
    wanted = (EvaluationRecord.digest.in_(digests), known_to(caller))
    newest = select(func.max(EvaluationRecord.id)).where(*wanted).group_by(*SAME_MEASUREMENT)
    rows = session.execute(
        select(
            EvaluationRecord.digest,
            EvaluationRecord.site_id,
            EvaluationScoreRecord.name,
            EvaluationScoreRecord.value,
        )
        .join(EvaluationScoreRecord, EvaluationScoreRecord.evaluation_id == EvaluationRecord.id)
        .where(EvaluationRecord.id.in_(newest), EvaluationScoreRecord.name.in_(HEADLINES.values()))
    )
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    sites: dict[tuple[str, str], set[int]] = defaultdict(set)
    for digest, site_id, name, value in rows:
        values[digest, name].append(value)
        sites[digest, name].add(site_id)
    return [
        EvaluationSummary(
            digest=digest,
            score=name,
            median=median(values[digest, name]),
            sites=len(sites[digest, name]),
        )
        for digest in dict.fromkeys(digests)
        for name in HEADLINES.values()
        if (digest, name) in values
    ]
