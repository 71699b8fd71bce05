"""Merges on the pool: those of one's site, and the progress of one."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from starlette.responses import Response

from pool_server.pages.matrix import build_matrix
from pool_server.pages.showing import go_to, page_router, show
from pool_server.pages.visitor import Anyone
from pool_server.wire.evaluations import SCORES, EvaluationMatrix
from pool_server.wire.merges import MERGE_KEY_PATTERN, MergeJobPage, MergeJobResponse

router = page_router()
MergeId = Annotated[str, Path(pattern=MERGE_KEY_PATTERN)]
UNDER_WAY = frozenset({"queued", "running"})


@router.get("/merges")
async def merges(visitor: Anyone, cursor: str = "") -> Response:
    """List the merges of one's site; an admin of the pool sees all."""
    found = await visitor.api.get(MergeJobPage, "/merges", cursor=cursor)
    older = visitor.next_page(found.next_cursor)
    return await show(visitor, "merges.html", jobs=found.items, next_address=older)


@router.get("/merges/{merge_id}")
async def merge_page(visitor: Anyone, merge_id: MergeId) -> Response:
    """Show how far a merge is, what it became, or why it failed."""
    job = await visitor.api.get(MergeJobResponse, f"/merges/{merge_id}")
    return await show(visitor, "merge.html", job=job, is_under_way=job.state in UNDER_WAY)


@router.post("/merges/{merge_id}/cancel")
async def cancel(visitor: Anyone, merge_id: MergeId) -> Response:
    """Cancel a merge."""
    await visitor.api.send("POST", f"/merges/{merge_id}/cancel")
    return go_to(f"/merges/{merge_id}")


@router.get("/evaluations")
async def evaluations(
    visitor: Anyone, score: str = "mean_error", kind: str = "", cursor: str = ""
) -> Response:
    """Show one score of all models by all sites."""
    found = await visitor.api.get(
        EvaluationMatrix, "/evaluations", score=score, kind=kind, cursor=cursor, limit=30
    )
    return await show(
        visitor,
        "evaluations.html",
        matrix=build_matrix(score, found.rows),
        score_choices=[(name, meaning.words) for name, meaning in SCORES.items()],
        score=score,
        next_address=visitor.next_page(found.next_cursor),
    )
